"""Where termweave keeps things: XDG folders, all removable, listed by `termweave doctor`."""

from __future__ import annotations

from pathlib import Path

from platformdirs import PlatformDirs

_DIRS = PlatformDirs("termweave", appauthor=False)


def state() -> Path:
    """Ledgers, node data, logs. $XDG_STATE_HOME/termweave."""
    return Path(_DIRS.user_state_dir)


def cache() -> Path:
    """Server archives, corpus statistics, hidden states: everything that can be made again. $XDG_CACHE_HOME/termweave."""
    return Path(_DIRS.user_cache_dir)


def config() -> Path:
    """`termweave.toml` of the user. $XDG_CONFIG_HOME/termweave."""
    return Path(_DIRS.user_config_dir)


def models() -> Path:
    """Model folders that a name resolves to. $XDG_DATA_HOME/termweave/models."""
    return Path(_DIRS.user_data_dir) / "models"
