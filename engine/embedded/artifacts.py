"""Archives of Maven Central, above all the server's: pinned by checksum, and taken from a folder of the user, from a cache, or downloaded.

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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from termweave.engine.embedded import folders
from termweave.errors import TermweaveError
from termweave.support import private_files
from termweave.support.file_locks import one_at_a_time
from termweave.support.messages import first_line
from termweave.support.paths import expanded

VERSION = "3.6.0"

#: Variable that names a folder (path or ``file:`` address) with the three archives, for machines without a network.
OVERRIDE = "TERMWEAVE_OPENSEARCH_ARCHIVES"

#: Free bytes that are needed: 180 MB of archives, 260 MB unpacked, and a reserve; with ml-commons 390 MB and 400 MB more.
_NEEDED_BYTES, _NEEDED_WITH_ML = 600_000_000, 1_400_000_000


@dataclass(frozen=True, slots=True)
class MavenArtifact:
    """An archive in a Maven repository.

    Attributes:
        group, name, version: Maven coordinates.
        sha256: Checksum of the archive.
        packaging: "zip" or "jar".
        plugin: For a plugin of the server its folder below `plugins/`; "": the archive is another one.
    """

    group: str
    name: str
    version: str
    sha256: str
    packaging: str = "zip"
    plugin: str = ""

    @property
    def file_name(self) -> str:
        """Name of the file in a Maven repository."""
        return f"{self.name}-{self.version}.{self.packaging}"


@dataclass(frozen=True, slots=True)
class Shelf:
    """The places of archives on this host.

    Attributes:
        cache: Folder that keeps downloaded archives.
        variable: Name of the environment variable that may name a folder (path or ``file:`` address) with the archives, for
            machines without a network.
    """

    cache: Path
    variable: str

    @property
    def brought(self) -> Path | None:
        """The folder with archives that the environment variable names; None: the variable is not set."""
        value = os.environ.get(self.variable)
        if not value:
            return None
        return Path(unquote(urlsplit(value).path)) if value.startswith("file:") else expanded(value)

    def holds(self, artifact: MavenArtifact) -> bool:
        """Whether the archive can be had without a download. Its checksum is not compared."""
        places = [self.cache, *([self.brought] if self.brought else [])]
        return any((place / artifact.file_name).is_file() for place in places)

    def archive(self, artifact: MavenArtifact, say: Callable[[str], None] = lambda _: None) -> Path:
        """Get an archive, by a download if need be, compare its checksum, and return its path.

        Args:
            artifact: The archive.
            say: Called with a message before a download.

        Raises:
            TermweaveError: There is no network, the disk is full, or the checksum is wrong.
        """
        provided = (self.brought or self.cache) / artifact.file_name
        if provided.is_file():
            _verify(provided, artifact)
            return provided
        if self.brought is not None:
            hint = "Put the file there, or unset the variable."
            raise TermweaveError(f"{provided} does not exist, but ${self.variable} names its folder.", hint)
        self.cache.mkdir(parents=True, exist_ok=True)
        # Downloaded to a temporary folder and moved when complete: an interrupted download must not look like an archive.
        with private_files.scratch_in(self.cache, "download-") as staging:
            say(f"Downloading {artifact.file_name}.")
            downloaded = self._download(artifact, staging)
            _verify(downloaded, artifact)
            downloaded.replace(provided)
        return provided

    def _download(self, artifact: MavenArtifact, folder: Path) -> Path:
        """Download an archive from Maven Central into a folder.

        The library jgo gives up if no byte comes for ten seconds, but has no limit for the whole: it waits for a slow server. Ctrl-C leaves no file.
        """
        import requests  # noqa: PLC0415 - jgo uses it, 100 ms
        from jgo.maven import MavenContext, PythonResolver  # noqa: PLC0415

        context = MavenContext(repo_cache=folder, resolver=PythonResolver(progress_callback=_bar))
        project = context.project(artifact.group, artifact.name)
        try:
            archive: Any = project.at_version(artifact.version).artifact(packaging=artifact.packaging).resolve()
        except (requests.RequestException, RuntimeError) as error:
            reason, advice = first_line(error), "Check the network"
            if isinstance(error, requests.exceptions.SSLError):
                advice = "If a proxy reads TLS, name its authority's file in $REQUESTS_CA_BUNDLE"
                reason = f"TLS failed ({reason})"
            elif isinstance(error, requests.exceptions.ProxyError) and "Failed to establish" not in reason:
                reason, advice = f"the proxy refuses ({reason})", "Check $HTTPS_PROXY"
            elif isinstance(error, requests.ConnectionError | requests.Timeout):
                reason = "there is no network"
            hint = f"{advice}; or put the file in a folder and name the folder in ${self.variable}."
            raise TermweaveError(f"{artifact.file_name} could not be downloaded from Maven Central: {reason}.", hint) from error
        except OSError as error:
            raise disk_error(error, folder) from error
        return Path(archive)


def _verify(archive: Path, artifact: MavenArtifact) -> None:
    """Compare an archive with its checksum.

    Raises:
        TermweaveError: The checksums differ.
    """
    with archive.open("rb") as file:
        checksum = hashlib.file_digest(file, "sha256").hexdigest()
    if checksum != artifact.sha256:
        difference = f"its SHA-256 is {checksum[:12]}…, expected {artifact.sha256[:12]}…"
        hint = "Delete the file and start again. If it happens again, a proxy or firewall changes the download."
        raise TermweaveError(f"{archive} is not the archive that was tested: {difference}.", hint)


def disk_error(error: OSError, path: Path) -> TermweaveError:
    """Make the error for an archive that cannot be written or unpacked."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        hint = "Free 600 MB and start again; no incomplete files are left."
        return TermweaveError(f"The disk that holds {path} became full while an archive was unpacked.", hint)
    hint = "Check the folder, or set XDG_CACHE_HOME to another one."
    return TermweaveError(f"The archive cannot be unpacked to {path}: {error.strerror or error}.", hint)


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


def _plugin(name: str, sha256: str, folder: str = "") -> MavenArtifact:
    """The archive of a plugin; its folder has the name of the archive unless another is given."""
    return MavenArtifact("org.opensearch.plugin", name, f"{VERSION}.0", sha256, plugin=folder or name)


_SERVER_SHA256 = "a91faa1dc1cadc78cb278b4f63847e19e1627a4e9de698e14e7efc14ee37b286"
ARTIFACTS = (
    MavenArtifact("org.opensearch.distribution.integ-test-zip", "opensearch", VERSION, _SERVER_SHA256),
    _plugin("opensearch-knn", "ac392ca28a39b3bf290648a422ef30cb149dda2963a9d7feb26060e932341c9a"),
    _plugin("neural-search", "6ef1b206e79391e2e36268e32dc34d27fd8b8a59a8eb0a7393c97d53b038e433", "opensearch-neural-search"),
)
#: The plugin ml-commons, through which the server asks a model server (`termweave connect`), and the plugin that it needs.
ML_ARTIFACTS = (
    _plugin("opensearch-job-scheduler", "f81d0aa9fc850b18f803292bd7ae68bd33561f6c1d12db0f68529d40eddcee24"),
    _plugin("opensearch-ml-plugin", "c051d436fe1936da1477bb999db829eb2bc92b12989e376c300d0a874fb90f9d", "opensearch-ml"),
)


def distribution(say: Callable[[str], None] = lambda _: None, *, ml: bool = False) -> Path:
    """The folder of the unpacked server with its plugins. The first call downloads and unpacks it.

    Args:
        say: Called with a message before each step that takes time.
        ml: Whether the server has the plugin ml-commons; such a server has a folder of its own.

    Raises:
        TermweaveError: There is no network, the disk is full, or a checksum is wrong.
    """
    cache = folders.distribution_cache()
    ready = unpacked(cache, ml=ml)
    if ready.is_dir():
        return ready
    folders.make(cache)
    with one_at_a_time(cache / "lock", lambda: say("Another process is downloading the server; waiting for it.")):
        if not ready.is_dir():  # another process may have done it while we waited
            folders.require_space(cache, _NEEDED_WITH_ML if ml else _NEEDED_BYTES, "the OpenSearch server")
            folders.make(cache / VERSION)
            artifacts = (*ARTIFACTS, *ML_ARTIFACTS) if ml else ARTIFACTS
            archives = [shelf(cache).archive(artifact, say) for artifact in artifacts]
            say("Unpacking the server.")
            unpack(archives, ready, artifacts)
    return ready


def unpacked(cache: Path, *, ml: bool = False) -> Path:
    """The folder in which the unpacked server lies, or will lie."""
    return cache / VERSION / f"opensearch-{VERSION}{'-ml' if ml else ''}"


def shelf(cache: Path) -> Shelf:
    """The place of the server's archives below `cache`, which is `folders.distribution_cache`."""
    return Shelf(cache / VERSION, OVERRIDE)


def unpack(archives: list[Path], target: Path, artifacts: Sequence[MavenArtifact]) -> None:
    """Unpack server and plugins into a temporary folder and rename it, so that `target` is complete or does not exist.

    Args:
        archives: Paths of the archives.
        target: Folder of the server; it does not exist yet.
        artifacts: The artifact of each archive, in the order of `archives`; the server comes first.

    Raises:
        TermweaveError: The disk is full.
    """
    folders.make(target.parent)
    staging = Path(tempfile.mkdtemp(dir=target.parent, prefix="unpack-"))
    server = staging / f"{artifacts[0].name}-{artifacts[0].version}"
    try:
        for file, artifact in zip(archives, artifacts, strict=True):
            folder = server / "plugins" / artifact.plugin if artifact.plugin else staging
            with zipfile.ZipFile(file) as content:
                content.extractall(folder)
        # All users may read the server, because root runs it as another user. zipfile does not restore modes anyway.
        for path in (server, *server.rglob("*")):
            path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)
        server.rename(target)
    except OSError as error:
        raise disk_error(error, target) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
