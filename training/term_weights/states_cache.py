"""The folder in which hidden states are kept: room for new ones, and how much of older runs stays.

Hidden states take some 150 MB for a thousand passages: without a bound, a few evenings of training fill a disk.
"""

from __future__ import annotations

import errno
import os
import shutil
import time
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: Bytes that may lie in the folder, new states included. What is older is made again when it is wanted again.
MOST = 8 * 2**30
#: The file whose time says when states were last used; it comes last, so a folder that has it is whole.
DONE = "done.json"
#: The ending of the file that counts the texts done, where states are not whole yet.
MARK = ".texts"
_STARTED = time.time()
#: Seconds for which states count as in use by another run.
_RECENT = 3600


def used(folder: Path) -> None:
    """Say that the states in `folder` are in use now."""
    os.utime(folder / DONE)


def make_room(home: Path, size: int, say: Callable[[str], None]) -> None:
    """Remove the states used longest ago until `size` new bytes fit below `MOST`.

    Those that this process has used stay, and so do those that were used, or added to, within the hour.

    Args:
        home: The folder of all states.
        size: Of the states about to be made.
        say: Told what was removed.
    """
    found = []
    for folder in home.iterdir():
        with suppress(FileNotFoundError):  # another run makes room, too
            if folder.is_dir():
                found.append((_last_use(folder), folder, _size(folder)))
    total, removed, freed = sum(taken for *_, taken in found) + size, 0, 0
    in_use = min(_STARTED, time.time() - _RECENT)
    for last_use, folder, taken in sorted(found):
        if total - freed <= MOST or last_use >= in_use:
            break
        shutil.rmtree(folder, ignore_errors=True)
        removed += 1
        freed += taken
    if removed:
        say(f"states: {removed} of older runs removed, {freed / 1e9:.1f} GB; at most {MOST / 1e9:.0f} GB are kept in {home}")


def allocate(file: Path, size: int) -> None:
    """Make `file` with `size` bytes that are really there: a memory map on a full disk would end the process with SIGBUS.

    Raises:
        OSError: ENOSPC, there is no such room; nothing is left of the file.
    """
    free = shutil.disk_usage(file.parent).free
    if free < size:  # before anybody else's last bytes are taken
        raise OSError(errno.ENOSPC, f"Hidden states need {size / 1e9:.1f} GB and {free / 1e9:.1f} GB are free", str(file))
    try:
        with file.open("wb") as opened:
            os.truncate(opened.fileno(), size)
            if hasattr(os, "posix_fallocate") and size:
                os.posix_fallocate(opened.fileno(), 0, size)
    except OSError as error:
        file.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(file)) from error


def _last_use(folder: Path) -> float:
    """When states were last read, or last written to where they are not whole yet."""
    files = [folder / DONE, *folder.glob(f"*{MARK}")]
    return next((file for file in files if file.exists()), folder).stat().st_mtime


def _size(folder: Path) -> int:
    """Bytes on the disk."""
    return sum(file.stat().st_blocks * 512 for file in folder.rglob("*") if file.is_file())
