"""Find the latest checkpoint of a fit, and say why one could not be written."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from termweave.support import atomic_files

#: Written last: without it a checkpoint does not count.
HISTORY = "history.json"


def latest(home: Path) -> Path | None:
    """Return the newest complete checkpoint in `home`, and remove incomplete checkpoints; None: no checkpoint is complete."""
    complete = []
    for folder in home.glob("checkpoint-*"):
        if (folder / HISTORY).is_file():
            complete.append(folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return max(complete, key=lambda folder: int(folder.name.rpartition("-")[2]), default=None)


@contextmanager
def system_errors(folder: Path) -> Iterator[None]:
    """Make a context in which a failure to write into `folder`, as on a full disk, is an OSError: safetensors and torch raise errors of their own.

    Raises:
        OSError: A file could not be written.
    """
    from safetensors import SafetensorError  # noqa: PLC0415 - comes with the extra [train]

    try:
        yield
    except SafetensorError as error:
        if (number := re.search(r"\(os error (\d+)\)", str(error))) is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(folder)) from error
    except RuntimeError:  # torch.save does not say why it failed, but the system refuses the next megabyte, too
        probe = folder / ".probe"
        atomic_files.write(probe, bytes(1 << 20))
        probe.unlink()
        raise
