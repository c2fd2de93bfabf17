"""Where the server's files may lie, and whether there is room for them.

OpenSearch refuses to run as root, so root drops to an unprivileged uid. That uid cannot enter `/root` (mode 700), which is
where the XDG folders of root lie: then the distribution, the JDK and the node's data go to the system's folders instead.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from pathlib import Path

from termweave import places
from termweave.errors import TermweaveError
from termweave.words import sized

#: "nobody" on Linux; any uid without rights will do.
UNPRIVILEGED = 65534

#: Where root keeps what the unprivileged uid must read (cache) or own (state), first that can be made.
_SYSTEM_CACHE = (Path("/var/cache/termweave"), Path("/var/tmp/termweave-cache"))  # noqa: S108 - last resort, root only, not world-writable
_SYSTEM_STATE = (Path("/var/lib/termweave"), Path("/var/tmp/termweave-state"))  # noqa: S108 - as above

#: A start needs this much: translog, cluster state and log files of an empty node take less, a refusal later says less.
START_NEEDS = 500_000_000


def server_uid() -> int | None:
    """The uid the server must drop to; None where it may run as who we are."""
    return UNPRIVILEGED if os.name == "posix" and os.geteuid() == 0 else None


def reachable(path: Path, uid: int | None) -> bool:
    """Whether `uid` (None: ourselves) can enter `path`, or could once it is made with ordinary permissions."""
    if uid is None:
        return True
    path = path.resolve()
    return all(_enters(folder, uid) for folder in (path, *path.parents) if folder.is_dir())


def _enters(folder: Path, uid: int) -> bool:
    status = folder.stat()
    needed = stat.S_IXUSR if status.st_uid == uid else stat.S_IXOTH
    return bool(status.st_mode & needed)


def distribution_cache() -> Path:
    """The folder for server archives and unpacked servers, enterable by the server's uid."""
    return _first_reachable(places.cache() / "opensearch", tuple(base / "opensearch" for base in _SYSTEM_CACHE))


def jdk_cache() -> Path:
    """The folder for JDKs that termweave fetched, likewise."""
    return _first_reachable(places.cache() / "jdk", tuple(base / "jdk" for base in _SYSTEM_CACHE))


def default_home() -> Path:
    """Where the user's embedded node keeps its state file."""
    return places.state() / "node"


def run_folder(home: Path) -> Path:
    """Where a node with this home keeps data, logs and configuration: in `home`, or where its uid can go."""
    uid = server_uid()
    if reachable(home, uid):
        return home
    name = f"node-{hashlib.sha256(str(home.resolve()).encode()).hexdigest()[:10]}"
    return _first_reachable(home, tuple(base / name for base in _SYSTEM_STATE))


def _first_reachable(wanted: Path, others: tuple[Path, ...]) -> Path:
    """The first folder that the server's uid can enter and we can make; nothing is made by looking."""
    uid = server_uid()
    for folder in (wanted, *others):
        if reachable(folder, uid) and (uid is None or os.access(_nearest(folder), os.W_OK)):
            return folder
    raise TermweaveError(
        f"The server drops root's rights, and its user (uid {uid}) can use neither {wanted} nor {', '.join(map(str, others))}.",
        "Run as an ordinary user, or set XDG_CACHE_HOME and XDG_STATE_HOME to folders that everybody may enter.",
    )


def _nearest(path: Path) -> Path:
    """The path itself, or the closest folder above it that exists."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def make(path: Path) -> None:
    """Make a folder and those above it; for root so that the server's uid can come through, whatever the umask."""
    absent = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    if server_uid() is not None:
        for folder in absent:
            folder.chmod(0o755)


def own(*paths: Path) -> None:
    """Make folders and, for root, give them with all they hold to the server's uid."""
    uid = server_uid()
    for path in paths:
        make(path)
        if uid is None:
            continue
        try:
            for each in (path, *path.rglob("*")):
                os.chown(each, uid, uid, follow_symlinks=False)
        except OSError as error:
            raise TermweaveError(
                f"{path} cannot be given to the server's user (uid {uid}): {error.strerror}.",
                "Run as an ordinary user; the server refuses to run as root.",
            ) from error


def free_bytes(path: Path) -> int:
    """Free bytes of the file system that holds `path`, or will hold it."""
    return shutil.disk_usage(_nearest(path)).free


def require_space(path: Path, needed: int, purpose: str) -> None:
    """Say it before the work starts when a disk has too little room.

    Raises:
        TermweaveError: Fewer than `needed` bytes are free.
    """
    free = free_bytes(path)
    if free < needed:
        raise TermweaveError(
            f"The disk that holds {path} has {sized(free)} free, and {purpose} needs {sized(needed)}.",
            "Free some space, or point XDG_CACHE_HOME and XDG_STATE_HOME at another disk.",
        )


def size(path: Path) -> int:
    """Bytes below a folder, links not followed; what vanishes meanwhile counts as nothing."""
    total = 0
    for folder, _, files in os.walk(path):
        for name in files:
            try:
                total += os.lstat(Path(folder) / name).st_size
            except OSError:
                continue
    return total
