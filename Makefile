# Two commands matter: `make demo` runs the main job, `make test` runs the tests. Both set up what they need.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMPS := .stamps
# setuptools warns of the folder that has the package's name; it is the package.
PIP    := PYTHONWARNINGS=ignore $(BIN)/pip install -q --disable-pip-version-check

.PHONY: demo test nightly check site figures docs model programs clean help

help:
	@echo "make demo    set everything up, then run the main job on a real OpenSearch"
	@echo "make test    set everything up, then run the tests (FAST=1: without the slow ones)"
	@echo "make nightly the tests that take long and rarely break: crashes at many instants, every benchmark"
	@echo "make check   ruff, mypy --strict, import rules, the site"
	@echo "make site    the pages of docs/ as a site with search, in build/site"
	@echo "make figures every figure of README and docs again, on ../shared/data (hours; what is done stays done)"
	@echo "make docs    regenerate the pages that commands write"
	@echo "make programs  Chromium, nginx, curl, jq and an emulator for the tests that use them, where apt-get may install (they are skipped without)"
	@echo "make model   train and export the shipped models again (needs ../shared/data)"

demo: $(STAMPS)/base
	@$(BIN)/termweave demo

# Without ARGS the tests run in two processes, each with its own server and one thread for models: two cores are busy. A file stays in one process.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest
ARGS   ?= -n 2 --dist loadfile --no-loadscope-reorder --durations 20

test: $(STAMPS)/test
	$(PYTEST) $(if $(FAST),-m "not nightly and not slow") $(ARGS)

nightly: $(STAMPS)/test
	$(PYTEST) -m nightly $(ARGS)

check: $(STAMPS)/check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@rm -rf build/check && $(PIP) --no-deps --target build/check .
	cp -r tools build/check
	cd build/check && $(CURDIR)/$(BIN)/mypy -p termweave -p tools --config-file $(CURDIR)/pyproject.toml
	cd build/check && PYTHONPATH=. $(CURDIR)/$(BIN)/lint-imports --config $(CURDIR)/pyproject.toml
	@$(MAKE) --no-print-directory site

# Strict: a link or heading that does not exist fails, and so does anything that a page would load from another host.
site: $(STAMPS)/check
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@! grep -rE --include='*.html' --include='*.css' '<(script|link|img)[^>]+(src|href)="?(https?:)?//|url\((https?:)?//|@import' build/site/*.html build/site/assets

figures: $(STAMPS)/test
	$(BIN)/python benchmarks/figures.py

docs: $(STAMPS)/base
	$(BIN)/python -m tools.generate_docs

model: $(STAMPS)/test
	$(BIN)/python -m tools.shipped_model --data ../shared/data --out encoders/shipped/minilm-l6-anchored
	$(BIN)/python -m tools.shipped_model --data ../shared/data --set backbone=bge-small-en \
	  --out models/small/termweave_model_small/bge-small-en-anchored

# What tests of pages, proxies, examples and other processors run. Fonts: pages and pictures are tested with Chinese and emoji, too.
programs:
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
	  chromium fonts-noto-cjk fonts-noto-color-emoji nginx-light curl jq qemu-user >/dev/null

clean:
	rm -rf $(VENV) $(STAMPS) build *.egg-info

# The base package: no torch in it.
$(STAMPS)/base: pyproject.toml
	@test -d $(VENV) || $(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info[:2] <= (3, 14) else "termweave needs Python 3.11 to 3.14: make PYTHON=python3.12 ...")'
	@test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(PIP) 'pip>=25.1'
	$(PIP) -e .
	@mkdir -p $(STAMPS) && touch $@

# All tests train and export, too: torch comes here, and only here.
$(STAMPS)/test: $(STAMPS)/base
	$(PIP) -e '.[train,parquet,shards,ray,ir]' --group test
	@touch $@

$(STAMPS)/check: $(STAMPS)/test
	$(PIP) --group check
	@touch $@
