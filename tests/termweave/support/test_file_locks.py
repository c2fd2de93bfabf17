"""One holder at a time, and no file without a holder."""

import fcntl
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from termweave.support.file_locks import Held, noted, one_at_a_time


def test_who_waited_for_a_file_that_was_removed_holds_the_one_that_is_there(tmp_path):
    """The first holder's file goes while the second waits for it; a third must not find another one free."""
    path, waits, holds, done = tmp_path / "lock", threading.Event(), threading.Event(), threading.Event()

    def second():
        with one_at_a_time(path, waits.set):
            holds.set()
            assert done.wait(60)

    with ThreadPoolExecutor(1) as threads:
        with one_at_a_time(path, lambda: None):
            run = threads.submit(second)
            assert waits.wait(60)
        assert holds.wait(60)
        try:
            with path.open("a") as third, pytest.raises(BlockingIOError):
                fcntl.flock(third, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            done.set()
        run.result(60)
    assert not path.exists()


def test_a_lock_says_who_holds_it_and_nothing_of_those_who_did(tmp_path):
    path = tmp_path / "lock"
    for note in ("the first", "2nd"):
        with noted(path, note):
            for _ in range(2):  # whoever is refused leaves the note as it is
                with pytest.raises(Held) as caught, noted(path, "another"):
                    pytest.fail("two hold it")
                assert caught.value.note == note
        assert path.read_text() == ""
