"""Archives of Maven Central: pinned by their checksum, taken from a folder of the user, from a cache, or downloaded."""

from __future__ import annotations

import errno
import hashlib
import os
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from termweave.errors import TermweaveError
from termweave.support import private_files
from termweave.support.messages import first_line
from termweave.support.paths import expanded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True, slots=True)
class MavenArtifact:
    """An archive in a Maven repository.

    Attributes:
        group, name, version: Maven coordinates.
        sha256: Checksum of the archive.
        packaging: "zip" or "jar".
    """

    group: str
    name: str
    version: str
    sha256: str
    packaging: str = "zip"

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
        """The folder that the variable names; None if it is not set."""
        value = os.environ.get(self.variable)
        if not value:
            return None
        return Path(unquote(urlsplit(value).path)) if value.startswith("file:") else expanded(value)

    def holds(self, artifact: MavenArtifact) -> bool:
        """Whether the archive can be had without a download. Its checksum is not compared."""
        places = [self.cache, *([self.brought] if self.brought else [])]
        return any((place / artifact.file_name).is_file() for place in places)

    def archive(self, artifact: MavenArtifact, say: Callable[[str], None] = lambda _: None) -> Path:
        """The path of an archive whose checksum is right.

        Args:
            artifact: The archive.
            say: Called with a message before a download.

        Raises:
            TermweaveError: There is no network, the disk is full, or the checksum is wrong.
        """
        provided = (self.brought or self.cache) / artifact.file_name
        if provided.is_file():
            check(provided, artifact)
            return provided
        if self.brought is not None:
            hint = "Put the file there, or unset the variable."
            raise TermweaveError(f"{provided} does not exist, but ${self.variable} names its folder.", hint)
        self.cache.mkdir(parents=True, exist_ok=True)
        # Downloaded to a temporary folder and moved when complete: an interrupted download must not look like an archive.
        with private_files.scratch_in(self.cache, "download-") as staging:
            say(f"Downloading {artifact.file_name}.")
            downloaded = self._download(artifact, staging)
            check(downloaded, artifact)
            downloaded.replace(provided)
        return provided

    def _download(self, artifact: MavenArtifact, folder: Path) -> Path:
        """Download an archive from Maven Central into a folder.

        jgo waits ten seconds for a byte, and has no limit for all of them: a server that trickles is waited for. Ctrl-C leaves nothing.
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


def check(archive: Path, artifact: MavenArtifact) -> None:
    """Compare an archive with its checksum.

    Raises:
        TermweaveError: The checksums differ.
    """
    with archive.open("rb") as file:
        checksum = hashlib.file_digest(file, "sha256").hexdigest()
    if checksum != artifact.sha256:
        found = f"its SHA-256 is {checksum[:12]}…, expected {artifact.sha256[:12]}…"
        hint = "Delete the file and start again. If it happens again, a proxy or firewall changes the download."
        raise TermweaveError(f"{archive} is not the archive that was tested: {found}.", hint)


def disk_error(error: OSError, path: Path) -> TermweaveError:
    """The error for an archive that cannot be written or unpacked."""
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
