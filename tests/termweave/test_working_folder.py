"""A working folder full of downloads runs nothing: every process that termweave starts imports from the installation alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from termweave import settings
from termweave.errors import TermweaveError
from termweave.support.python_processes import process_pool

PACKAGES = ["click", "docx", "fsspec", "numpy", "onnxruntime", "orjson", "pyarrow", "pydantic", "torch", "transformers"]
COMMAND = str(Path(sys.executable).parent / "termweave")


@pytest.fixture
def hostile(tmp_path, monkeypatch):
    """Make a folder with modules of these names the working folder; the test fails if one of them was run."""
    folder, mark = tmp_path / "downloads", tmp_path / "imported"
    folder.mkdir()

    def fill(names):
        for name in names:
            (folder / f"{name}.py").write_text(f"with open({str(mark)!r}, 'a') as file:\n    print(__name__, file=file)\n")
        monkeypatch.chdir(folder)
        return folder

    yield fill
    assert not mark.exists(), mark.read_text()


@pytest.fixture
def downloads(hostile):
    """A module for each of the standard library, for those of the installation, and for termweave itself."""
    return hostile([*sys.stdlib_module_names, *PACKAGES, "termweave"])


def checked(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_reader_of_office_files(downloads):
    docx = pytest.importorskip("docx", reason="the extra 'office' is not installed")
    from termweave.corpora import open_source

    document = docx.Document()
    document.add_paragraph("The pump hums.")
    document.save(downloads / "b.docx")
    assert [each.text for each in open_source("b.docx").documents()] == ["The pump hums."]


@pytest.mark.nightly  # ray takes half a minute to start
def test_the_workers_of_ray(downloads):
    pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    lines = [json.dumps({"_id": str(number), "text": "Haus am Wasser"}) for number in range(9)]
    (downloads / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    checked(COMMAND, "encode", "corpus.jsonl", "--out", "shards", "--weights", "bm25-german", "--dense", "none")
    assert list((downloads / "shards").glob("shard-*.parquet"))


def test_the_process_that_learns_for_the_page(downloads):
    pytest.importorskip("torch", reason="the extra 'train' is not installed")
    from termweave.ui.learning_process import LearningJob, LearningProcess

    task = LearningJob(settings.load(url="http://127.0.0.1:9"), "docs", {})
    with pytest.raises(TermweaveError, match=r"127\.0\.0\.1:9"):  # it came as far as the server, which is not there
        LearningProcess(task).run(lambda *_, **__: None, lambda _: None)


def test_a_pool_of_processes(downloads):
    before = dict(os.environ)
    with process_pool(2, OMP_NUM_THREADS="1") as pool:
        assert list(pool.map(np.negative, range(3))) == [0, -1, -2]
        assert next(pool.map(os.getenv, ["OMP_NUM_THREADS"])) == "1"
    assert dict(os.environ) == before


def test_the_command(downloads):
    assert "hous" in checked(COMMAND, "weights", "a house at the water")


def test_the_package_as_a_program(hostile):
    """Python imports a few modules, such as runpy, from the working folder before a program of `-m` begins: of the others none is."""
    hostile(["json", *PACKAGES])
    assert "hous" in checked(sys.executable, "-m", "termweave", "weights", "a house at the water")


def test_processes_that_libraries_start(downloads):
    """tqdm's lock starts a process of Python's own where processes are not forked: on macOS, and everywhere from Python 3.14 on."""
    program = "import multiprocessing; from termweave import __main__, cli; multiprocessing.set_start_method('spawn'); "
    checked(sys.executable, "-P", "-c", f"{program} cli.run = lambda _: multiprocessing.RLock() and None; __main__.main()")
