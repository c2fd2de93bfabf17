"""The server's archives: downloaded by Maven coordinates, checked, unpacked once and kept.

3.6.0 is the newest version whose server, k-NN plugin and neural-search plugin are all available this way. The archives are the
official ones. Their SHA-256 checksums are in this file, so that the version that runs is the one that was tested.
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

from termweave.engine.embedded import folders
from termweave.errors import TermweaveError
from termweave.support.file_locks import one_at_a_time
from termweave.support.messages import first_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

VERSION = "3.6.0"

#: Variable that names a folder (path or ``file:`` address) with the three archives, for machines without a network.
OVERRIDE = "TERMWEAVE_OPENSEARCH_ARCHIVES"

#: Free bytes that are needed: 180 MB of archives, 260 MB unpacked, and a reserve.
_NEEDED_BYTES = 600_000_000


@dataclass(frozen=True, slots=True)
class Artifact:
    """An archive of the server or of a plugin.

    Attributes:
        group, name, version: Maven coordinates.
        sha256: Checksum of the archive.
        plugin: Folder of the plugin below `plugins/`; "" for the server itself.
    """

    group: str
    name: str
    version: str
    sha256: str
    plugin: str = ""

    @property
    def file_name(self) -> str:
        """Name of the file in a Maven repository."""
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
    """The folder of the unpacked server with its plugins. The first call downloads and unpacks it.

    Args:
        say: Called with a message before each step that takes time.

    Raises:
        TermweaveError: There is no network, the disk is full, or a checksum is wrong.
    """
    cache = folders.distribution_cache()
    ready = unpacked(cache)
    if ready.is_dir():
        return ready
    folders.make(cache)
    with one_at_a_time(cache / "lock", lambda: say("Another process is downloading the server; waiting for it.")):
        if not ready.is_dir():  # another process may have done it while we waited
            folders.require_space(cache, _NEEDED_BYTES, "the OpenSearch server")
            archives = [archive(artifact, cache, say) for artifact in ARTIFACTS]
            say("Unpacking the server.")
            unpack(archives, ready)
    return ready


def unpacked(cache: Path) -> Path:
    """The folder of the server after it was unpacked."""
    return cache / VERSION / f"opensearch-{VERSION}"


def missing() -> list[str]:
    """File names of the archives that a start would download; empty if the server is unpacked."""
    cache = folders.distribution_cache()
    if unpacked(cache).is_dir():
        return []
    override = os.environ.get(OVERRIDE)
    places = [cache / VERSION, *([_override_folder(override)] if override else [])]
    return [each.file_name for each in ARTIFACTS if not any((place / each.file_name).is_file() for place in places)]


def archive(artifact: Artifact, cache: Path, say: Callable[[str], None]) -> Path:
    """An archive with the right checksum: from the user's folder, from the cache, or downloaded.

    Args:
        artifact: The archive.
        cache: Folder of `folders.distribution_cache`.
        say: Called with a message before a download.

    Raises:
        TermweaveError: There is no network, the disk is full, or the checksum is wrong.
    """
    override = os.environ.get(OVERRIDE)
    if override:
        provided = _override_folder(override) / artifact.file_name
        if not provided.is_file():
            names = ", ".join(each.file_name for each in ARTIFACTS)
            raise TermweaveError(
                f"{provided} does not exist, but ${OVERRIDE} names its folder.", f"Put these files there: {names}."
            )
        check(provided, artifact)
        return provided
    cached = cache / VERSION / artifact.file_name
    if cached.is_file():
        check(cached, artifact)
        return cached
    # Downloaded to a temporary folder and moved when complete: an interrupted download must not look like an archive.
    with tempfile.TemporaryDirectory(dir=cache, prefix="download-") as staging:
        say(f"Downloading {artifact.file_name}.")
        downloaded = _download(artifact, Path(staging))
        check(downloaded, artifact)
        folders.make(cached.parent)
        downloaded.replace(cached)
    return cached


def _override_folder(value: str) -> Path:
    """The folder that $TERMWEAVE_OPENSEARCH_ARCHIVES names, as a path or as a ``file:`` address."""
    return Path(unquote(urlsplit(value).path)) if value.startswith("file:") else Path(value).expanduser()


def check(archive: Path, artifact: Artifact) -> None:
    """Compare an archive with its checksum.

    Raises:
        TermweaveError: The checksums differ.
    """
    with archive.open("rb") as file:
        checksum = hashlib.file_digest(file, "sha256").hexdigest()
    if checksum != artifact.sha256:
        raise TermweaveError(
            f"{archive} is not the archive that was tested: its SHA-256 is {checksum[:12]}…, expected {artifact.sha256[:12]}….",
            "Delete the file and start again. If it happens again, a proxy or firewall changes the download.",
        )


def _download(artifact: Artifact, folder: Path) -> Path:
    """Download an archive from Maven Central into a folder."""
    import requests  # noqa: PLC0415 - jgo uses it, 100 ms
    from jgo.maven import MavenContext, PythonResolver  # noqa: PLC0415

    context = MavenContext(repo_cache=folder, resolver=PythonResolver(progress_callback=_bar))
    try:
        archive: Any = (
            context.project(artifact.group, artifact.name).at_version(artifact.version).artifact(packaging="zip").resolve()
        )
    except (requests.RequestException, RuntimeError) as error:
        reason = "there is no network" if _is_offline(error) else first_line(error)
        files = ", ".join(each.file_name for each in ARTIFACTS)
        raise TermweaveError(
            f"{artifact.file_name} could not be downloaded from Maven Central: {reason}.",
            f"Check the network; or put {files} in a folder and name it in ${OVERRIDE}.",
        ) from error
    except OSError as error:
        raise _disk_error(error, folder) from error
    return Path(archive)


@contextmanager
def _bar(name: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show the progress of a download as a bar, if standard error is a terminal. jgo calls this."""
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn  # noqa: PLC0415

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(name, total=total)
        yield lambda count: progress.update(task, advance=count)


def unpack(archives: list[Path], target: Path) -> None:
    """Unpack server and plugins into a temporary folder and rename it, so that `target` is complete or does not exist.

    Args:
        archives: Paths of the archives, in the order of `ARTIFACTS`.
        target: Folder of the server; it does not exist yet.

    Raises:
        TermweaveError: The disk is full, or an archive is damaged.
    """
    folders.make(target.parent)
    staging = Path(tempfile.mkdtemp(dir=target.parent, prefix="unpack-"))
    try:
        for file, artifact in zip(archives, ARTIFACTS, strict=True):
            folder = staging / target.name / "plugins" / artifact.plugin if artifact.plugin else staging
            with zipfile.ZipFile(file) as content:
                content.extractall(folder)
        server = staging / target.name
        _make_readable(server)
        server.rename(target)
    except OSError as error:
        raise _disk_error(error, target) from error
    except zipfile.BadZipFile as error:
        raise TermweaveError(
            f"An archive of the server is damaged: {error}.", f"Delete {archives[0].parent} and start again."
        ) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _make_readable(folder: Path) -> None:
    """Let all users read the server, because root runs it as another user. zipfile does not restore modes anyway."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)


def _disk_error(error: OSError, path: Path) -> TermweaveError:
    if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        return TermweaveError(
            f"The disk that holds {path} became full while the server was unpacked.",
            "Free 600 MB and start again; no incomplete files are left.",
        )
    return TermweaveError(
        f"The server cannot be unpacked to {path}: {error.strerror or error}.",
        "Check the folder, or set XDG_CACHE_HOME to another one.",
    )


def _is_offline(error: Exception) -> bool:
    import requests  # noqa: PLC0415

    return isinstance(error, requests.ConnectionError | requests.Timeout)
