"""A check before a command starts its work: whether it can write its output files."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def writable(folder: Path | None, files: Sequence[Path | None]) -> None:
    """Check that a folder and files can be written; the folder is created if necessary.

    Args:
        folder: Folder for several files; None if there is none.
        files: Single files; None stands for an option that was not given.

    Raises:
        UsageError: One of them cannot be written.
    """
    from os import W_OK, access

    from termweave.errors import UsageError

    hint = "Name another place. Nothing was done yet."
    if folder is not None:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{folder} cannot be created: {error.strerror}.", hint) from None
    if is_folder := next((file for file in files if file is not None and file.is_dir()), None):
        raise UsageError(f"{is_folder} is a folder, but a file is needed.", "Name a file in it. Nothing was done yet.")
    for place in [folder, *(file if file is None or file.exists() else file.parent for file in files)]:
        if place is not None and not access(place, W_OK):
            reason = "" if place.exists() else ": it does not exist"
            raise UsageError(f"{place} cannot be written to{reason}.", hint)
