"""The folders of termweave, as XDG defines them. All of them can be removed; `termweave doctor` lists them."""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import PlatformDirs

_DIRS = PlatformDirs("termweave", appauthor=False)


def state() -> Path:
    """The folder of ledgers, node data and logs: $XDG_STATE_HOME/termweave."""
    return Path(_DIRS.user_state_dir)


def cache() -> Path:
    """The folder of all files that can be made again (server archives, corpus statistics, hidden states): $XDG_CACHE_HOME/termweave."""
    return Path(_DIRS.user_cache_dir)


def config() -> Path:
    """The folder of the user's `termweave.toml`: $XDG_CONFIG_HOME/termweave."""
    return Path(_DIRS.user_config_dir)


def models() -> Path:
    """The folder where models are looked up by name: $XDG_DATA_HOME/termweave/models."""
    return Path(_DIRS.user_data_dir) / "models"


def expanded(path: str | Path) -> Path:
    """Replace ``~`` or ``~USER`` in a path by the home folder; if there is no such user, the path stays as it is."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 - Path.expanduser raises where there is no such user


def written_as_path(name: str) -> bool:
    """Whether a name can only be a path: ``./x``, ``a/b``, ``/x`` or ``~/x``, but not ``x``, even if the working folder has a folder x.

    Examples:
        >>> written_as_path("./shipped"), written_as_path("~/mine"), written_as_path(".."), written_as_path("shipped")
        (True, True, True, False)
    """
    return any(mark in name for mark in "/\\") or name.startswith("~") or name in {".", ".."}
