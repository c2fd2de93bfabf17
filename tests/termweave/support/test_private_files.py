"""What holds the terms of a corpus can be read by its owner only."""

import os
import stat
from pathlib import Path

import pytest

from termweave.support import atomic_files, private_files


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def generous_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def test_folders_and_files_are_made_for_their_owner_alone(tmp_path):
    folder = tmp_path / "above" / "private"
    private_files.make_folder(folder)
    private_files.make_file(folder / "file")
    atomic_files.write(folder / "whole", b"content", private=True)
    assert [mode(path) for path in (folder, folder / "file", folder / "whole")] == [0o700, 0o600, 0o600]
    assert mode(folder.parent) == 0o777  # other things may lie there


def test_what_others_could_read_is_closed_and_keeps_its_content(tmp_path):
    folder, file = tmp_path / "folder", tmp_path / "file"
    folder.mkdir()
    file.write_text("content")
    private_files.make_folder(folder)
    private_files.make_file(file)
    assert (mode(folder), mode(file), file.read_text()) == (0o700, 0o600, "content")


def test_a_file_to_write_is_private_if_it_is_new(tmp_path):
    shared = tmp_path / "shared"
    shared.write_text("before")
    for path in (tmp_path / "new", shared):
        with private_files.open_private(path, encoding="utf-8") as file:
            file.write("after")
    assert (mode(tmp_path / "new"), mode(shared)) == (0o600, 0o666)
    assert shared.read_text() == "after"
    with private_files.open_private(Path(os.devnull), "wb") as file:
        file.write(b"nothing")


def test_other_files_have_the_usual_mode(tmp_path):
    atomic_files.write(tmp_path / "model.json", b"{}")
    assert mode(tmp_path / "model.json") == 0o666
