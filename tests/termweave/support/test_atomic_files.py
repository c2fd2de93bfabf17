"""A file is the old one or the new one, and nothing lies beside it."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from termweave.support import atomic_files


def test_a_file_that_cannot_be_written_is_as_it_was(tmp_path):
    file = tmp_path / "kept.json"
    atomic_files.write(file, b"old")
    if os.geteuid():
        tmp_path.chmod(0o500)
    else:  # root may write everywhere: a folder cannot be replaced by a file
        file.unlink()
        file.mkdir()
    before = sorted(tmp_path.iterdir())
    with pytest.raises(OSError, match=r"kept\.json"):
        atomic_files.write(file, b"new")
    assert sorted(tmp_path.iterdir()) == before
    tmp_path.chmod(0o700)


def test_what_a_killed_writer_left_is_known_for_it(tmp_path, monkeypatch):
    file = tmp_path / "run.json"
    monkeypatch.setattr(Path, "replace", lambda *_: 1 / 0)  # as if it were killed there
    with pytest.raises(ZeroDivisionError):
        atomic_files.write(file, b"{}")
    (beside,) = tmp_path.iterdir()
    assert atomic_files.left_over(file, beside)
    assert not atomic_files.left_over(file, file)
    assert not atomic_files.left_over(file, tmp_path / "notes.txt")


def test_threads_may_write_one_file(tmp_path):
    file = tmp_path / "note.json"

    def write(letter):
        for _ in range(200):
            atomic_files.write(file, letter * 20_000)
            assert len(set(file.read_bytes())) == 1

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, (b"a", b"b")))
    assert len(file.read_bytes()) == 20_000
    assert list(tmp_path.iterdir()) == [file]
