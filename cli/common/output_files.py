"""Files that a command will write: whether it can is seen before the work, not after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def writable(folder: Path | None, files: Sequence[Path | None]) -> None:
    """See, before the work, that its results can be written.

    Raises:
        UsageError: They cannot.
    """
    from os import W_OK, access

    from termweave.errors import UsageError

    hint = "Name another place; nothing was done yet."
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{folder} cannot be made: {error.strerror}.", hint) from None
    if is_folder := next((file for file in files if file is not None and file.is_dir()), None):
        raise UsageError(f"{is_folder} is a folder, and a file is to be written.", "Name a file in it; nothing was done yet.")
    for place in [folder, *(file if file is None or file.exists() else file.parent for file in files)]:
        if place is not None and not access(place, W_OK):
            why = "" if place.exists() else ": it is not there"
            raise UsageError(f"{place} cannot be written to{why}.", hint)
