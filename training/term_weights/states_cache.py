"""The cache folder of hidden states: remove old states to make room for new ones.

Hidden states take about 150 MB for a thousand passages, so without a limit a few runs would fill a disk.
"""

from __future__ import annotations

import errno
import os
import shutil
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from termweave.support import private_files
from termweave.support.messages import counted

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: Most bytes in the folder, including new states. States that were removed are computed again when they are needed.
MOST = 8 * 2**30
#: A file that is written last, so a folder that contains it is complete. Its time is that of the last use.
DONE = "done.json"
#: Ending of the file with the number of finished texts, while states are incomplete.
MARK = ".texts"
_STARTED = time.time()
#: Seconds for which states count as in use by another run.
_RECENT = 3600


def used(folder: Path) -> None:
    """Record that the states in `folder` are used now."""
    os.utime(folder / DONE)


def make_room(home: Path, size: int, say: Callable[[str], None]) -> None:
    """Remove the states that were not used for the longest time, until `size` new bytes fit below `MOST`.

    States that this process has used are kept, and so are states that were used or extended within the last hour.

    Args:
        home: The folder of all states.
        size: Size of the new states.
        say: Called with a line about the removed states.
    """
    folders = []
    for folder in home.iterdir():
        with suppress(FileNotFoundError):  # another run may remove it at the same time
            if folder.is_dir():
                folders.append((_last_use(folder), folder, _size(folder)))
    total, removed, freed = sum(taken for *_, taken in folders) + size, 0, 0
    in_use = min(_STARTED, time.time() - _RECENT)
    for last_use, folder, taken in sorted(folders):
        if total - freed <= MOST or last_use >= in_use:
            break
        shutil.rmtree(folder, ignore_errors=True)
        removed += 1
        freed += taken
    if removed:
        say(
            f"Removed the hidden states of {counted(removed, 'older run')} ({freed / 1e9:.1f} GB): {home} holds at most {MOST / 1e9:.0f} GB."
        )


def allocate(file: Path, size: int) -> None:
    """Create `file` with `size` bytes reserved on disk, because a memory map on a full disk would end the process with SIGBUS.

    Raises:
        OSError: The disk has not enough space (ENOSPC); the file is removed.
    """
    free = shutil.disk_usage(file.parent).free
    if free < size:  # checked first, so that other programs keep the last bytes
        raise OSError(errno.ENOSPC, f"Hidden states need {size / 1e9:.1f} GB and {free / 1e9:.1f} GB are free", str(file))
    try:
        private_files.make_file(file)
        with file.open("wb") as opened:
            os.truncate(opened.fileno(), size)
            if hasattr(os, "posix_fallocate") and size:
                os.posix_fallocate(opened.fileno(), 0, size)
    except OSError as error:
        file.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(file)) from error


def _last_use(folder: Path) -> float:
    """Time when states were last read or, if they are incomplete, last written."""
    files = [folder / DONE, *folder.glob(f"*{MARK}")]
    return next((file for file in files if file.exists()), folder).stat().st_mtime


def _size(folder: Path) -> int:
    """Size of a folder on disk, in bytes."""
    return sum(file.stat().st_blocks * 512 for file in folder.rglob("*") if file.is_file())
