"""Choose and make folders for the server's files, and check the free space on their disks.

OpenSearch refuses to run as root, so root starts it as an unprivileged user. That user cannot enter `/root` (mode 0700), where root's
XDG folders are. In this case the server's archive, the JDK and the node's data go to folders of the system instead.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

from termweave.errors import TermweaveError
from termweave.support import paths
from termweave.support.messages import sized

#: "nobody" on Linux; any user id without rights works.
UNPRIVILEGED = 65534

#: Folders for root: what the unprivileged user must read (cache) or own (state). The first one that can be made is used.
_SYSTEM_CACHE = (Path("/var/cache/termweave"), Path("/var/tmp/termweave-cache"))  # noqa: S108 - last resort, root only, not world-writable
_SYSTEM_STATE = (Path("/var/lib/termweave"), Path("/var/tmp/termweave-state"))  # noqa: S108 - as above

#: Free bytes that a start asks for. An empty node needs less, but a full disk later fails with a message that is harder to understand.
START_NEEDS = 500_000_000


def server_uid() -> int | None:
    """The user id that the server must run as; None where it may run as the current user."""
    return UNPRIVILEGED if os.name == "posix" and os.geteuid() == 0 else None


def reachable(path: Path, uid: int | None) -> bool:
    """Whether the user `uid` (None: the current user) can enter `path`, or could after `path` is made with ordinary permissions."""
    if uid is None:
        return True
    path = path.resolve()
    statuses = [folder.stat() for folder in (path, *path.parents) if folder.is_dir()]
    return all(status.st_mode & (stat.S_IXUSR if status.st_uid == uid else stat.S_IXOTH) for status in statuses)


def distribution_cache() -> Path:
    """The folder for server archives and unpacked servers, which the server's user can enter."""
    return _first_reachable(paths.cache() / "opensearch", tuple(base / "opensearch" for base in _SYSTEM_CACHE))


def jdk_cache() -> Path:
    """The folder for JDKs that termweave downloaded, which the server's user can enter."""
    return _first_reachable(paths.cache() / "jdk", tuple(base / "jdk" for base in _SYSTEM_CACHE))


def default_home() -> Path:
    """The folder of the user's embedded node, with its state file."""
    return paths.state() / "node"


def run_folder(home: Path) -> Path:
    """The folder of a node's data, logs and configuration: `home`, or a folder of the system if the server's user cannot enter it."""
    uid = server_uid()
    if reachable(home, uid):
        return home
    name = f"node-{hashlib.sha256(str(home.resolve()).encode()).hexdigest()[:10]}"
    return _first_reachable(home, tuple(base / name for base in _SYSTEM_STATE))


def _first_reachable(usual: Path, others: tuple[Path, ...]) -> Path:
    """The first folder that the server's user can enter and that can be made. No folder is made yet."""
    uid = server_uid()
    for folder in (usual, *others):
        if reachable(folder, uid) and (uid is None or os.access(_nearest(folder), os.W_OK)):
            return folder
    places = f"neither {usual} nor {', '.join(map(str, others))}"
    hint = "Run as an ordinary user, or set XDG_CACHE_HOME and XDG_STATE_HOME to folders that all users can enter."
    raise TermweaveError(f"The server cannot be started as root, and its own user (uid {uid}) can write to {places}.", hint)


def _nearest(path: Path) -> Path:
    """The path itself if it exists, else the nearest folder above it that exists."""
    return next(each for each in (path, *path.absolute().parents) if each.exists())


def make(path: Path) -> None:
    """Make a folder and the folders above it. Root makes them with permissions that let the server's user through, whatever the umask is."""
    absent = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    if server_uid() is not None:
        for folder in absent:
            folder.chmod(0o755)


def make_private(*paths: Path) -> None:
    """Make folders for the server's user alone (mode 0700): indices and logs hold texts. Root gives them to that user.

    Raises:
        TermweaveError: Root cannot give a folder away.
    """
    uid = server_uid()
    for path in paths:
        make(path)
        path.chmod(0o700)
        if uid is None:
            continue
        try:
            for entry in (path, *path.rglob("*")):
                os.chown(entry, uid, uid, follow_symlinks=False)
        except OSError as error:
            hint = "Run as an ordinary user; the server refuses to run as root."
            raise TermweaveError(f"{path} cannot be given to the server's user (uid {uid}): {error.strerror}.", hint) from error


def free_bytes(path: Path) -> int:
    """Free bytes on the disk that holds `path`, or will hold `path` once it is made."""
    return shutil.disk_usage(_nearest(path)).free


def require_space(path: Path, needed: int, purpose: str) -> None:
    """Check that a disk has enough room before the work starts.

    Raises:
        TermweaveError: Fewer than `needed` bytes are free.
    """
    free = free_bytes(path)
    if free < needed:
        hint = "Free some space, or point XDG_CACHE_HOME and XDG_STATE_HOME at another disk."
        raise TermweaveError(f"The disk that holds {path} has {sized(free)} free, and {purpose} needs {sized(needed)}.", hint)


def size(path: Path) -> int:
    """Bytes of all files below a folder. Links are not followed, and files that disappear meanwhile are not counted."""
    total = 0
    for folder, _, files in os.walk(path):
        for name in files:
            with suppress(OSError):
                total += os.lstat(Path(folder) / name).st_size
    return total
