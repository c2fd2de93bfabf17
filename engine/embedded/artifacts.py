"""The server's archives: resolved by Maven coordinates, checked, unpacked once, kept.

3.6.0 is the newest version of which server, k-NN and neural-search can all be had this way. The archives are the genuine
ones; their SHA-256 stand here, so that what runs is what was tested.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from termweave.engine import folders
from termweave.errors import TermweaveError
from termweave.locks import one_at_a_time
from termweave.words import first_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

VERSION = "3.6.0"

#: A folder (path or ``file:`` address) that holds the three archives, for machines without a network.
OVERRIDE = "TERMWEAVE_OPENSEARCH_ARCHIVES"

#: 180 MB of archives, 260 MB unpacked, and air.
_NEEDED_BYTES = 600_000_000


@dataclass(frozen=True, slots=True)
class Artifact:
    """One archive.

    Attributes:
        group, name, version: Maven coordinates.
        sha256: Of the archive.
        plugin: Folder below `plugins/`; "" for the server itself.
    """

    group: str
    name: str
    version: str
    sha256: str
    plugin: str = ""

    @property
    def file_name(self) -> str:
        """As Maven calls the file."""
        return f"{self.name}-{self.version}.zip"


ARTIFACTS = (
    Artifact(
        "org.opensearch.distribution.integ-test-zip",
        "opensearch",
        "3.6.0",
        "a91faa1dc1cadc78cb278b4f63847e19e1627a4e9de698e14e7efc14ee37b286",
    ),
    Artifact(
        "org.opensearch.plugin",
        "opensearch-knn",
        "3.6.0.0",
        "ac392ca28a39b3bf290648a422ef30cb149dda2963a9d7feb26060e932341c9a",
        plugin="opensearch-knn",
    ),
    Artifact(
        "org.opensearch.plugin",
        "neural-search",
        "3.6.0.0",
        "6ef1b206e79391e2e36268e32dc34d27fd8b8a59a8eb0a7393c97d53b038e433",
        plugin="opensearch-neural-search",
    ),
)


def distribution(say: Callable[[str], None] = lambda _: None) -> Path:
    """The unpacked server with its plugins; fetched and unpacked when it is not there.

    Args:
        say: Told what takes time.

    Raises:
        TermweaveError: No network, a full disk, a wrong checksum.
    """
    cache = folders.distribution_cache()
    ready = unpacked(cache)
    if ready.is_dir():
        return ready
    folders.make(cache)
    with one_at_a_time(cache / "lock", lambda: say("Another process is fetching the server; waiting for it.")):
        if not ready.is_dir():  # another process may have done it while we waited
            folders.require_space(cache, _NEEDED_BYTES, "the OpenSearch server")
            archives = [_archive(each, cache, say) for each in ARTIFACTS]
            say("Unpacking the server.")
            unpack(archives, ready)
    return ready


def unpacked(cache: Path) -> Path:
    """Where the server lies once it is unpacked."""
    return cache / VERSION / f"opensearch-{VERSION}"


def missing() -> list[str]:
    """Archives that would have to be downloaded; empty when the server is unpacked."""
    cache = folders.distribution_cache()
    if unpacked(cache).is_dir():
        return []
    offered = os.environ.get(OVERRIDE)
    shelves = [cache / VERSION, *([_shelf(offered)] if offered else [])]
    return [each.file_name for each in ARTIFACTS if not any((shelf / each.file_name).is_file() for shelf in shelves)]


def _archive(artifact: Artifact, cache: Path, say: Callable[[str], None]) -> Path:
    """A checked archive: the one brought along, the one kept, or a fresh one."""
    offered = os.environ.get(OVERRIDE)
    if offered:
        brought = _shelf(offered) / artifact.file_name
        if not brought.is_file():
            names = ", ".join(each.file_name for each in ARTIFACTS)
            raise TermweaveError(
                f"{brought} does not exist, but ${OVERRIDE} says the archives are there.", f"Put these files there: {names}."
            )
        check(brought, artifact)
        return brought
    kept = cache / VERSION / artifact.file_name
    if kept.is_file():
        check(kept, artifact)
        return kept
    # Downloaded beside its place and moved there when it is whole: what was interrupted must not look like an archive.
    with tempfile.TemporaryDirectory(dir=cache, prefix="download-") as staging:
        say(f"Fetching {artifact.file_name}.")
        fresh = _download(artifact, Path(staging))
        check(fresh, artifact)
        folders.make(kept.parent)
        fresh.replace(kept)
    return kept


def _shelf(offered: str) -> Path:
    """The folder that was named, as a path or as a ``file:`` address."""
    return Path(unquote(urlsplit(offered).path)) if offered.startswith("file:") else Path(offered).expanduser()


def check(archive: Path, artifact: Artifact) -> None:
    """Compare an archive with the checksum written here.

    Raises:
        TermweaveError: They differ.
    """
    with archive.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != artifact.sha256:
        raise TermweaveError(
            f"{archive} is not the archive that was tested: its SHA-256 is {found[:12]}…, expected {artifact.sha256[:12]}….",
            "Delete the file and start again; if it happens twice, something between here and Maven Central alters downloads.",
        )


def _download(artifact: Artifact, folder: Path) -> Path:
    import requests  # noqa: PLC0415 - jgo's own, 100 ms
    from jgo.maven import MavenContext, PythonResolver  # noqa: PLC0415

    context = MavenContext(repo_cache=folder, resolver=PythonResolver(progress_callback=_bar))
    try:
        found: Any = (
            context.project(artifact.group, artifact.name).at_version(artifact.version).artifact(packaging="zip").resolve()
        )
    except (requests.RequestException, RuntimeError) as error:
        wrong = "there is no network" if _offline(error) else first_line(error)
        files = ", ".join(each.file_name for each in ARTIFACTS)
        raise TermweaveError(
            f"{artifact.file_name} could not be fetched from Maven Central: {wrong}.",
            f"Check the network; or put {files} in a folder and name it in ${OVERRIDE}.",
        ) from error
    except OSError as error:
        raise _disk(error, folder) from error
    return Path(found)


@contextmanager
def _bar(name: str, total: int) -> Iterator[Callable[[int], None]]:
    """Progress hook of jgo: a bar where standard error is a terminal."""
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn  # noqa: PLC0415

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(name, total=total)
        yield lambda count: progress.update(task, advance=count)


def unpack(archives: list[Path], target: Path) -> None:
    """Unpack server and plugins beside their place, then rename: the folder is whole or not there.

    Args:
        archives: In the order of `ARTIFACTS`.
        target: The server's folder to be.

    Raises:
        TermweaveError: The disk is full, or an archive is damaged.
    """
    folders.make(target.parent)
    staging = Path(tempfile.mkdtemp(dir=target.parent, prefix="unpack-"))
    try:
        for archive, artifact in zip(archives, ARTIFACTS, strict=True):
            place = staging / target.name / "plugins" / artifact.plugin if artifact.plugin else staging
            with zipfile.ZipFile(archive) as content:
                content.extractall(place)
        server = staging / target.name
        _open_to_all(server)
        server.rename(target)
    except OSError as error:
        raise _disk(error, target) from error
    except zipfile.BadZipFile as error:
        raise TermweaveError(
            f"An archive of the server is damaged: {error}.", f"Delete {archives[0].parent} and start again."
        ) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _open_to_all(folder: Path) -> None:
    """Let the server's uid read what root unpacked, whatever root's umask is; zipfile forgets modes anyway."""
    for each in (folder, *folder.rglob("*")):
        each.chmod(0o755 if each.is_dir() or each.parent.name == "bin" else 0o644)


def _disk(error: OSError, path: Path) -> TermweaveError:
    if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        return TermweaveError(
            f"The disk that holds {path} became full while the server was put there.",
            "Free 600 MB and start again; nothing half-made is left.",
        )
    return TermweaveError(
        f"The server cannot be put to {path}: {error.strerror or error}.",
        "Check the folder, or set XDG_CACHE_HOME to another one.",
    )


def _offline(error: Exception) -> bool:
    import requests  # noqa: PLC0415

    return isinstance(error, requests.ConnectionError | requests.Timeout)
