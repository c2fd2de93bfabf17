"""One server process: its configuration, its command line, whether it lives, why it died.

The recipe was run on 3.6.0; what is unusual in it has its reason beside it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from typing import TYPE_CHECKING

from termweave.engine import folders
from termweave.engine.state import NodeProcess
from termweave.errors import TermweaveError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from termweave.engine.java import Java

#: The server refuses `integ-test-zip`, which is what the archive really is.
_DISTRIBUTION_TYPE = "zip"

# The server's disk thresholds are for fleets: at 90 % it moves shards away, at 95 % it makes indices read-only. A laptop's node
# has nowhere to move to, and 5 % of its disk is plenty: so they are absolute, and only a really full disk closes an index.
_SETTINGS = """\
cluster.name: termweave
node.name: {name}
path.data: {data}
path.logs: {logs}
network.host: 127.0.0.1
http.port: {port}
transport.port: {transport}
cluster.routing.allocation.disk.watermark.low: 400mb
cluster.routing.allocation.disk.watermark.high: 250mb
cluster.routing.allocation.disk.watermark.flood_stage: 100mb
{discovery}
"""

_LOGGING = """\
status = error
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {logs}/{name}.log
appender.file.filePattern = {logs}/{name}-%i.log
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = [%d{{ISO8601}}][%-5p][%c{{1}}] %m%n%throwable{{40}}
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
logger.deprecation.name = org.opensearch.deprecation
logger.deprecation.level = error
"""

PORT_TAKEN = "its port is taken by another program"

#: What a log line means to a user: pattern -> (what is wrong, what to do). First match wins.
_CAUSES = (
    (
        r"BindException|Address already in use|Failed to bind",
        (PORT_TAKEN, "Choose another --port, or none: then a free one is found."),
    ),
    (r"No space left on device|Disk quota exceeded", ("the disk is full", "Free some space and start again.")),
    # The server speaks of locks whatever kept it from its data folder: what did comes first.
    (
        r"AccessDeniedException|Permission denied",
        ("it may not use one of its folders", "Check who owns the folder, or run: termweave node wipe."),
    ),
    (
        r"Mount point not found",
        (
            "Java does not find the file system that its data folder lies on, as in a chroot whose root is no mount",
            "Bind-mount the root (mount --rbind ROOT ROOT) before chroot, or use a container.",
        ),
    ),
    (
        r"failed to obtain node locks|LockObtainFailedException",
        ("its data folder is in use by another server", "Stop that server, or run: termweave node stop."),
    ),
    (
        r"Could not reserve enough space|Cannot allocate memory|insufficient memory|unable to create native thread",
        ("there is not enough memory for its heap", "Give it less with --heap 512, or close other programs."),
    ),
    (r"OutOfMemoryError", ("its heap is too small for the data", "Give it more with --heap 2048.")),
    (
        r"UnsupportedClassVersionError|Unrecognized (VM )?option|Module jdk\.incubator\.vector not found",
        ("the Java found cannot run it", "Set JAVA_HOME to a JDK 21 or 25."),
    ),
    (
        r"IndexFormatTooOld|cannot upgrade a node|cannot downgrade a node",
        ("its data were written by another version", "Remove them with: termweave node wipe."),
    ),
    (
        r"CorruptIndexException|CorruptStateException|EOFException",
        ("its data are damaged", "Remove them with: termweave node wipe, and index again."),
    ),
)


class Layout:
    """The folders of one process below a node's run folder."""

    def __init__(self, root: Path, name: str) -> None:
        self.name = name
        self.conf = root / "conf" / name
        self.data = root / "data" / name
        self.logs = root / "logs"
        self.tmp = root / "tmp" / name

    @property
    def log(self) -> Path:
        """What the server logs."""
        return self.logs / f"{self.name}.log"

    @property
    def output(self) -> Path:
        """What the Java process prints: failures before logging is up."""
        return self.logs / f"{self.name}.out"

    def mine(self, process: NodeProcess) -> bool:
        """Whether the process lives and is the server of this folder: a pid alone may have gone to somebody else."""
        import psutil  # noqa: PLC0415

        with contextlib.suppress(ChildProcessError, OSError):
            os.waitpid(process.pid, os.WNOHANG)  # where it is our child and died, let it go
        try:
            found = psutil.Process(process.pid)
            return found.status() != psutil.STATUS_ZOMBIE and f"-Dopensearch.path.conf={self.conf}" in found.cmdline()
        except psutil.Error:
            return False


def prepare(layout: Layout, distribution: Path, port: int, transport: int, discovery: Sequence[str]) -> None:
    """Write a process's configuration afresh and make its folders."""
    shutil.rmtree(layout.conf, ignore_errors=True)
    shutil.rmtree(layout.tmp, ignore_errors=True)
    folders.make(layout.conf)
    shutil.copytree(distribution / "config", layout.conf, dirs_exist_ok=True)
    settings = _SETTINGS.format(
        name=layout.name, data=layout.data, logs=layout.logs, port=port, transport=transport, discovery="\n".join(discovery)
    )
    (layout.conf / "opensearch.yml").write_text(settings, encoding="utf-8")
    (layout.conf / "log4j2.properties").write_text(_LOGGING.format(logs=layout.logs, name=layout.name), encoding="utf-8")
    # What an earlier run said must not be taken for the reason why this one died.
    layout.log.unlink(missing_ok=True)
    folders.own(layout.conf, layout.data, layout.logs, layout.tmp)


def launch(layout: Layout, distribution: Path, java: Java, *, heap: int, port: int, transport: int) -> NodeProcess:
    """Start a process that outlives us.

    Raises:
        TermweaveError: The system does not let us.
    """
    command = [
        str(java.executable),
        f"-Xms{min(heap, 512)}m",
        f"-Xmx{heap}m",
        "-XX:+UseG1GC",
        "-XX:+ExitOnOutOfMemoryError",  # a node that lost its heap only answers nonsense
        f"-XX:ErrorFile={layout.logs}/{layout.name}-crash.log",
        f"-javaagent:{distribution}/agent/opensearch-agent.jar",
        "--add-opens=java.base/java.nio=ALL-UNNAMED",
        "--add-modules=jdk.incubator.vector",
        "--enable-native-access=ALL-UNNAMED",
        f"-Dopensearch.path.home={distribution}",
        f"-Dopensearch.path.conf={layout.conf}",
        f"-Dopensearch.distribution.type={_DISTRIBUTION_TYPE}",
        "-Dopensearch.bundled_jdk=false",
        f"-Djava.io.tmpdir={layout.tmp}",
        "-Dfile.encoding=UTF-8",
        "-Dlog4j2.disable.jmx=true",
        "-cp",
        f"{distribution}/lib/*",
        "org.opensearch.bootstrap.OpenSearch",
    ]
    uid = folders.server_uid()
    rights: dict[str, object] = {} if uid is None else {"user": uid, "group": uid, "extra_groups": []}
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(layout.tmp),
        "LANG": "C.UTF-8",
        "OPENSEARCH_PATH_CONF": str(layout.conf),
    }
    try:
        with layout.output.open("wb") as output:
            child = subprocess.Popen(  # type: ignore[call-overload]  # noqa: S603 - our own command
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=layout.tmp,
                env=environment,
                start_new_session=True,  # Ctrl-C in our terminal is not meant for it
                **rights,
            )
    except OSError as error:
        raise TermweaveError(
            f"The server could not be started: {error.strerror or error}.",
            "Run as an ordinary user." if uid is not None else "Look at: termweave doctor.",
        ) from error
    child.returncode = 0  # it is meant to outlive us: its handle must not complain when it is forgotten
    return NodeProcess(layout.name, child.pid, port, transport)


def end(layouts: Sequence[tuple[Layout, NodeProcess]], *, patience: float = 30.0) -> None:
    """End processes that are ours: asked first, killed when they do not go."""
    for kind in (signal.SIGTERM, signal.SIGKILL):
        living = [(layout, process) for layout, process in layouts if layout.mine(process)]
        for _, process in living:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, kind)
        until = time.monotonic() + patience
        while living and time.monotonic() < until:
            time.sleep(0.1)
            living = [(layout, process) for layout, process in living if layout.mine(process)]
        if not living:
            return
    raise TermweaveError(
        f"Process {living[0][1].pid} does not end.", "It belongs to another user, or the disk hangs; end it by hand."
    )


def cause_of_death(layout: Layout) -> tuple[str, str]:
    """Why a process died, from what it printed and logged.

    Returns:
        ``(what is wrong, what to do)``.
    """
    text = "\n".join(tail(path, 400) for path in (layout.output, layout.log))
    for pattern, (wrong, advice) in _CAUSES:
        if re.search(pattern, text):
            return wrong, advice
    meaningful = [
        line.strip()
        for line in text.splitlines()
        if re.search(r"Exception|Error|ERROR|FATAL|[Rr]efus", line) and not line.lstrip().startswith("at ")
    ]
    if meaningful:
        return f"it says: {meaningful[-1][:300]}", f"The whole story is in {layout.log}."
    return "it said nothing", f"Look at {layout.log}; was it killed for want of memory?"


def tail(path: Path, lines: int) -> str:
    """The last lines of a file, at most 256 KB of it; "" where it does not exist."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(file.tell() - 2**18, 0))
            return "\n".join(file.read().decode("utf-8", "replace").splitlines()[-lines:])
    except OSError:
        return ""
