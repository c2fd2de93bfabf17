"""The front door: its names, what it costs to open, and how what is missing is installed."""

import subprocess
import sys
from importlib import metadata
from types import SimpleNamespace

import pytest

import termweave
from termweave.support import extras


def test_all_is_exactly_what_can_be_imported():
    for name in termweave.__all__:
        assert getattr(termweave, name) is not None
    assert set(termweave._HOME) | {"__version__"} == set(termweave.__all__)
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = termweave.nothing_of_the_kind


@pytest.mark.parametrize(
    "statement",
    [
        "import termweave",
        "import termweave.engine.pytest_plugin, termweave.engine.client.connection, termweave.engine.embedded.node",
        "import termweave.cli.verbs.node, termweave.cli.verbs.doctor",
        "from termweave.cli import run; run(['--help'])",
    ],
)
def test_nothing_heavy_is_imported_before_it_is_needed(statement):
    slow = (
        "torch transformers numpy pydantic opensearchpy onnxruntime rich tokenizers ir_measures psutil orjson requests jgo cjdk"
    )
    program = f"import sys\n{statement}\nprint([name for name in {slow.split()} if name in sys.modules], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize(
    ("said", "command"),
    [
        (None, "pip install 'termweave[train]'"),
        ('{"url": "file:///home/me/my%20clone", "dir_info": {"editable": true}}', "pip install '/home/me/my clone[train]'"),
        ('{"url": "https://x/termweave.whl", "archive_info": {}}', "pip install 'termweave[train]'"),
    ],
)
def test_an_extra_is_installed_from_where_termweave_came(said, command, monkeypatch):
    monkeypatch.setattr(metadata, "distribution", lambda _: SimpleNamespace(read_text=lambda _: said))
    extras._folder.cache_clear()
    assert extras.install("train") == command
    extras._folder.cache_clear()


def test_in_the_image_they_are_built_into_it(monkeypatch):
    monkeypatch.setenv(extras.IMAGE, "ui")
    build = "docker build . -f docker/Dockerfile -t termweave --build-arg"
    assert extras.install("train") == f"{build} EXTRAS=ui,train"
    assert extras.install_model("small", "termweave-model-small") == f"{build} MODELS=small"
