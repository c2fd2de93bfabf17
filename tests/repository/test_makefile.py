"""`make test` and `make nightly` run in two halves at the same time: no folder is left out, and no failure is lost."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def make(target, folder, failing=""):
    """Run a target with a script in the place of pytest, which fails where it is given the folder `failing`."""
    script = folder / "pytest"
    script.write_text(f'#!/bin/sh\necho "given: $@"\ncase " $* " in *" {failing or "nothing"} "*) exit 1;; esac\n')
    script.chmod(0o755)
    command = ["make", "--silent", f"--old-file={folder}/test", target, f"STAMPS={folder}", f"PYTEST={script}"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("target", ["test", "nightly"])
def test_both_halves_run_and_are_shown(target, tmp_path):
    done = make(target, tmp_path)
    halves = [line.split() for line in done.stdout.splitlines() if line.startswith("given:")]
    assert done.returncode == 0, done.stderr
    assert len(halves) == 2
    folders = [word for half in halves for word in half if word.startswith("tests/")]
    assert sorted(folders) == sorted(f"tests/{each.name}" for each in (ROOT / "tests").glob("[a-z]*/"))


@pytest.mark.parametrize("failing", ["tests/indexer", "tests/repository"])
@pytest.mark.parametrize("target", ["test", "nightly"])
def test_a_failure_of_either_half_is_a_failure(target, failing, tmp_path):
    done = make(target, tmp_path, failing)
    assert done.returncode != 0
    assert done.stdout.count("given:") == 2
