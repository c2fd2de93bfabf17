"""Configure, start and end a server process, and tell whether it runs and why it ended.

Tested with OpenSearch 3.6.0; comments give the reasons for unusual settings.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from termweave.engine.client.capabilities import WITHOUT_NATIVE_VECTORS
from termweave.engine.embedded import folders
from termweave.engine.embedded.state import NAME
from termweave.errors import TermweaveError

if TYPE_CHECKING:
    from termweave.engine.embedded.java import Java

#: Options of Java. Without heap a node sends wrong responses, so that it ends; the archive is an `integ-test-zip`, but the server rejects that name.
_OPTIONS = """
-XX:+UseG1GC -XX:+ExitOnOutOfMemoryError --add-opens=java.base/java.nio=ALL-UNNAMED --add-modules=jdk.incubator.vector
--enable-native-access=ALL-UNNAMED -Dopensearch.distribution.type=zip -Dopensearch.bundled_jdk=false -Dfile.encoding=UTF-8
-Dlog4j2.disable.jmx=true
""".split()  # noqa: SIM905 - reads better than a list

# By default the server moves shards to other nodes when a disk is 90 % full, and makes indices read-only at 95 %. A single node has no
# other nodes, and 5 % of its disk is enough space. So the thresholds are absolute, and only a nearly full disk blocks an index.
SETTINGS = f"""\
cluster.name: termweave
{WITHOUT_NATIVE_VECTORS}
node.name: {{name}}
path.data: {{data}}
path.logs: {{logs}}
network.host: 127.0.0.1
http.port: {{port}}
transport.port: {{transport}}
discovery.type: single-node
cluster.routing.allocation.disk.watermark.low: 400mb
cluster.routing.allocation.disk.watermark.high: 250mb
cluster.routing.allocation.disk.watermark.flood_stage: 100mb
{{further}}
"""

#: Settings of the plugin ml-commons. A server outside would not ask a model server at a private address, and would wait for nodes of
#: the role `ml`. The limit of memory counts the whole machine, caches of files included, so that a busy machine would refuse searches.
ML_SETTINGS = (
    "plugins.ml_commons.only_run_on_ml_node: false",
    "plugins.ml_commons.connector.private_ip_enabled: true",
    "plugins.ml_commons.trusted_connector_endpoints_regex: ['^https?://(127\\.0\\.0\\.1|localhost)(:[0-9]+)?/.*$']",
    "plugins.ml_commons.native_memory_threshold: 100",
)

PORT_TAKEN = "its port is taken by another program"

#: Patterns in logs -> (what is wrong, what to do). The first match counts.
_CAUSES = {
    r"Address already in use": (PORT_TAKEN, "Choose another --port, or leave --port out to use any free port."),
    r"No space left on device|Disk quota exceeded": ("the disk is full", "Free some space and start again."),
    # The server reports a lock error after any problem with its data folder, so the other problems come first.
    r"AccessDeniedException|Permission denied": (
        "it has no permission to use one of its folders",
        "Check who owns the folder, or run: termweave node wipe.",
    ),
    r"Mount point not found": (
        "Java does not find the file system of its data folder, for example in a chroot whose root is not a mount",
        "Bind-mount the root (mount --rbind ROOT ROOT) before chroot, or use a container.",
    ),
    r"failed to obtain node locks|LockObtainFailedException": (
        "another server uses its data folder",
        "Stop that server, or run: termweave node stop.",
    ),
    r"Could not reserve enough space|Cannot allocate memory|insufficient memory|unable to create native thread": (
        "there is not enough memory for its heap",
        "Give it less with --heap 512, or close other programs.",
    ),
    # The log names the argument -XX:+ExitOnOutOfMemoryError, too.
    r"(?<!ExitOn)OutOfMemoryError": ("its heap is too small for the data", "Give it more with --heap 2048."),
    r"IndexFormatTooOld|cannot (up|down)grade a node": ("its data were written by another version", "Run: termweave node wipe."),
    r"CorruptIndexException|CorruptStateException|EOFException": (
        "its data are damaged",
        "Run: termweave node wipe; then index again.",
    ),
}


class Layout:
    """Paths below a node's run folder: its folders, the server's log, and Java's output, which has errors before the log begins."""

    def __init__(self, root: Path) -> None:
        self.conf, self.data, self.tmp = (root / part / NAME for part in ("conf", "data", "tmp"))
        self.logs = root / "logs"
        self.log = self.logs / f"{NAME}.log"
        self.output = self.logs / f"{NAME}.out"

    def runs(self, pid: int) -> bool:
        """Whether a process runs and is the server of these folders, and not another program that got the same process id."""
        import psutil  # noqa: PLC0415

        with contextlib.suppress(ChildProcessError, OSError):
            os.waitpid(pid, os.WNOHANG)  # if it is our child and has ended, remove it from the process table
        try:
            current = psutil.Process(pid)
            return current.status() != psutil.STATUS_ZOMBIE and f"-Dopensearch.path.conf={self.conf}" in current.cmdline()
        except psutil.Error:
            return False


def configure(layout: Layout, distribution: Path, port: int, transport: int, further: Sequence[str]) -> None:
    """Write the configuration of a process anew, and make its folders."""
    shutil.rmtree(layout.conf, ignore_errors=True)
    shutil.rmtree(layout.tmp, ignore_errors=True)
    folders.make(layout.conf)
    shutil.copytree(distribution / "config", layout.conf, dirs_exist_ok=True)
    values = {"port": port, "transport": transport, "further": "\n".join(further)}
    settings = SETTINGS.format(name=NAME, data=layout.data, logs=layout.logs, **values)
    (layout.conf / "opensearch.yml").write_text(settings, encoding="utf-8")
    logging = Template(Path(__file__).with_name("log4j2.properties").read_text(encoding="utf-8"))
    (layout.conf / "log4j2.properties").write_text(logging.substitute(logs=layout.logs, name=NAME), encoding="utf-8")
    # An error in the log of an earlier run must not be taken for the reason why this one ends.
    layout.log.unlink(missing_ok=True)
    folders.make_private(layout.conf, layout.data, layout.logs, layout.tmp)


def launch(layout: Layout, distribution: Path, java: Java, heap: int) -> int:
    """Start a server process that keeps running after this program ends, and return its process id.

    Raises:
        TermweaveError: The system does not allow it.
    """
    command = [
        str(java.home / "bin" / "java"),
        f"-Xms{min(heap, 512)}m",
        f"-Xmx{heap}m",
        *_OPTIONS,
        f"-XX:ErrorFile={layout.logs}/{NAME}-crash.log",
        f"-javaagent:{distribution}/agent/opensearch-agent.jar",
        f"-Dopensearch.path.home={distribution}",
        f"-Dopensearch.path.conf={layout.conf}",
        f"-Djava.io.tmpdir={layout.tmp}",
        "-cp",
        f"{distribution}/lib/*",
        "org.opensearch.bootstrap.OpenSearch",
    ]
    uid = folders.server_uid()
    rights: dict[str, object] = {} if uid is None else {"user": uid, "group": uid, "extra_groups": []}
    environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(layout.tmp), "LANG": "C.UTF-8"}
    environment["OPENSEARCH_PATH_CONF"] = str(layout.conf)
    try:
        with layout.output.open("wb") as output:
            child: subprocess.Popen[bytes] = subprocess.Popen(  # type: ignore[call-overload]  # noqa: S603 - the command above
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=layout.tmp,
                env=environment,
                start_new_session=True,  # Ctrl-C in the terminal must not reach it
                **rights,
            )
    except OSError as error:
        hint = "Run as an ordinary user." if uid is not None else "Run: termweave doctor."
        raise TermweaveError(f"The server could not be started: {error.strerror or error}.", hint) from error
    child.returncode = 0  # it keeps running: without this, Popen warns when the object is deleted
    return child.pid


def end(layout: Layout, pid: int, *, patience: float = 30.0) -> None:
    """End a node's process with SIGTERM, or with SIGKILL if it still runs after `patience` seconds.

    Raises:
        TermweaveError: The process still runs.
    """
    for kind in (signal.SIGTERM, signal.SIGKILL):
        if layout.runs(pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, kind)
        until = time.monotonic() + patience
        while layout.runs(pid):
            if time.monotonic() > until:
                break
            time.sleep(0.1)
        else:
            return
    hint = "The process belongs to another user, or waits for a disk: end it by hand."
    raise TermweaveError(f"Process {pid} does not end.", hint)


def cause_of_death(layout: Layout) -> tuple[str, str]:
    """Find out why a process ended, from its output and its log.

    Returns:
        ``(what is wrong, what to do)``.
    """
    text = "\n".join(tail(path, 400) for path in (layout.output, layout.log))
    if cause := next((cause for pattern, cause in _CAUSES.items() if re.search(pattern, text)), None):
        return cause
    lines = [line.strip() for line in text.splitlines() if re.search(r"Exception|Error|ERROR|FATAL|[Rr]efus", line)]
    errors = [line for line in lines if not line.startswith("at ")]
    if errors:
        return f"its last error is: {errors[-1][:300]}", f"The whole log is {layout.log}."
    return "it logged no error", f"Look at {layout.log}. The system may have killed it because memory ran out."


def tail(path: Path, lines: int) -> str:
    """The last lines of a file, at most 256 KB; "": the file does not exist."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(file.tell() - 2**18, 0))
            return "\n".join(file.read().decode("utf-8", "replace").splitlines()[-lines:])
    except OSError:
        return ""
