"""The server's archives: downloaded by Maven coordinates, checked, unpacked once and kept.

3.6.0 is the newest version whose server, k-NN plugin and neural-search plugin are all available this way. The archives are the
official ones. Their SHA-256 checksums are in this file, so that the version that runs is the one that was tested.
"""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from termweave.engine.embedded import folders, maven
from termweave.errors import TermweaveError
from termweave.support.file_locks import one_at_a_time

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

VERSION = "3.6.0"

#: Variable that names a folder (path or ``file:`` address) with the three archives, for machines without a network.
OVERRIDE = "TERMWEAVE_OPENSEARCH_ARCHIVES"

#: Free bytes that are needed: 180 MB of archives, 260 MB unpacked, and a reserve; with ml-commons 390 MB and 400 MB more.
_NEEDED_BYTES, _NEEDED_WITH_ML = 600_000_000, 1_400_000_000


@dataclass(frozen=True, slots=True)
class Artifact(maven.MavenArtifact):
    """An archive of the server or of a plugin.

    Attributes:
        plugin: Folder of the plugin below `plugins/`; "" for the server itself.
    """

    plugin: str = ""


def _plugin(name: str, sha256: str, folder: str = "") -> Artifact:
    """The archive of a plugin; its folder has the name of the archive unless another is given."""
    return Artifact("org.opensearch.plugin", name, f"{VERSION}.0", sha256, plugin=folder or name)


_SERVER_SHA256 = "a91faa1dc1cadc78cb278b4f63847e19e1627a4e9de698e14e7efc14ee37b286"
ARTIFACTS = (
    Artifact("org.opensearch.distribution.integ-test-zip", "opensearch", VERSION, _SERVER_SHA256),
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
    """The folder of the server after it was unpacked."""
    return cache / VERSION / f"opensearch-{VERSION}{'-ml' if ml else ''}"


def shelf(cache: Path) -> maven.Shelf:
    """The archives below a folder of `folders.distribution_cache`."""
    return maven.Shelf(cache / VERSION, OVERRIDE)


def unpack(archives: list[Path], target: Path, artifacts: Sequence[Artifact]) -> None:
    """Unpack server and plugins into a temporary folder and rename it, so that `target` is complete or does not exist.

    Args:
        archives: Paths of the archives.
        target: Folder of the server; it does not exist yet.
        artifacts: What each archive is, in the order of `archives`; the server comes first.

    Raises:
        TermweaveError: The disk is full, or an archive is damaged.
    """
    folders.make(target.parent)
    staging = Path(tempfile.mkdtemp(dir=target.parent, prefix="unpack-"))
    server = staging / f"opensearch-{VERSION}"
    try:
        for file, artifact in zip(archives, artifacts, strict=True):
            folder = server / "plugins" / artifact.plugin if artifact.plugin else staging
            with zipfile.ZipFile(file) as content:
                content.extractall(folder)
        _make_readable(server)
        server.rename(target)
    except OSError as error:
        raise maven.disk_error(error, target) from error
    except zipfile.BadZipFile as error:
        hint = f"Delete {archives[0].parent} and start again."
        raise TermweaveError(f"An archive of the server is damaged: {error}.", hint) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _make_readable(folder: Path) -> None:
    """Let all users read the server, because root runs it as another user. zipfile does not restore modes anyway."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)
