"""A genuine Elasticsearch for the tests, as Maven Central has it: fetched under its own licence and never shipped.

The archive is the one of Elastic's own integration tests. It lacks the modules mapper-extras, analysis-common (only `standard` and a few
other analyzers), painless and reindex (no `_reindex`), and it does not answer `GET /`. It runs on the JDK of the embedded OpenSearch.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from itertools import islice
from pathlib import Path

import psutil
import pytest

from termweave.engine.embedded import artifacts, folders, java, node, process
from termweave.engine.embedded.artifacts import MavenArtifact
from termweave.errors import TermweaveError

#: Version -> SHA-256 of its archive.
VERSIONS = {
    "8.19.0": "14833b2d86c30656901f92049f81fb5777a8e4545413c8656cd1a21b55173033",
    "9.2.0": "bf44938a0490ba2a303d39c9cb64b38963dd08c812ce93e10816e878585bcb6b",
}
#: Beginning of the name of a server's folder; the process id of the session that owns it comes next.
_HOME = "termweave-elasticsearch-"
_SETTINGS = """\
cluster.name: termweave
path.data: {root}/data
path.logs: {root}/logs
network.host: 127.0.0.1
http.port: {port}
transport.port: {transport}
discovery.type: single-node
cluster.routing.allocation.disk.threshold_enabled: false
{more}
"""
#: The archive's own options write their log beside the server, where its user may not write.
_JVM = """\
-XX:+UseG1GC
-XX:+ExitOnOutOfMemoryError
-XX:ErrorFile={root}/logs/crash.log
-Djava.io.tmpdir={root}/tmp
--add-modules=jdk.incubator.vector
"""


def start(version, more="xpack.security.enabled: false", prepare=lambda _: None, scheme="http"):
    """Start a server; where it cannot be had, the test is skipped, or fails if a server was promised. `prepare` completes its configuration."""
    try:
        return ElasticsearchServer(version, more, prepare, scheme)
    except TermweaveError as error:
        give_up = pytest.fail if os.environ.get("TERMWEAVE_REQUIRE_ENGINE") else pytest.skip
        give_up(f"no Elasticsearch {version} for the tests: {error}")


class ElasticsearchServer:
    """A server of one process with a heap of 512 MB, in a temporary folder. `conf` is the folder of its configuration."""

    def __init__(self, version, more, prepare, scheme):
        _end_abandoned()
        self._distribution, jdk = _distribution(version), java.find()
        self._root = Path(tempfile.mkdtemp(prefix=f"{_HOME}{os.getpid()}-"))
        self._root.chmod(0o711)
        self.conf = self._root / "conf"
        scratch = str(self._root / "tmp")
        environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": scratch, "LANG": "C.UTF-8", "ES_TMPDIR": scratch}
        environment |= {"ES_JAVA_HOME": str(jdk.home), "ES_JAVA_OPTS": "-Xms512m -Xmx512m", "ES_PATH_CONF": str(self.conf)}
        uid = folders.server_uid()  # it refuses to run as root
        rights = {} if uid is None else {"user": uid, "group": uid, "extra_groups": []}
        self._how = {"env": environment, "cwd": self._root, **rights}
        port, transport = islice(node.free_ports(), 2)
        self.url = f"{scheme}://127.0.0.1:{port}"
        shutil.copytree(self._distribution / "config", self.conf)
        (self.conf / "elasticsearch.yml").write_text(_SETTINGS.format(root=self._root, port=port, transport=transport, more=more))
        (self.conf / "jvm.options").write_text(_JVM.format(root=self._root))
        self._process = None
        try:
            self._own()
            prepare(self)
            self._own()
            self._launch()
        except BaseException:
            self.close()
            raise

    def tool(self, name, *arguments, text=""):
        """Run one of the server's command-line tools on its configuration."""
        command = [str(self._distribution / "bin" / name), *arguments]
        result = subprocess.run(command, input=text, capture_output=True, text=True, check=False, **self._how)
        assert result.returncode == 0, result.stdout + result.stderr

    def close(self):
        """End the server and remove its folder."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)  # nobody wants its data
            self._process.wait()
        shutil.rmtree(self._root, ignore_errors=True)

    def _own(self):
        folders.make_private(self.conf, *(self._root / name for name in ("data", "logs", "tmp")))

    def _launch(self):
        output = self._root / "logs" / "output.log"
        command = [str(self._distribution / "bin" / "elasticsearch")]
        with output.open("wb") as file:
            pipes = {"stdin": subprocess.DEVNULL, "stdout": file, "stderr": subprocess.STDOUT}
            self._process = subprocess.Popen(command, start_new_session=True, **pipes, **self._how)
        until = time.monotonic() + 600
        while not self._listens():
            if self._process.poll() is not None or time.monotonic() > until:
                pytest.fail(f"Elasticsearch did not start:\n{process.tail(output, 30)}")
            time.sleep(0.25)

    def _listens(self):
        """Whether it answers; a secured one only that the user is unknown."""
        host, _, port = self.url.rpartition("/")[2].partition(":")
        try:
            if self.url.startswith("https:"):
                socket.create_connection((host, int(port)), timeout=5).close()
                return True
            with urllib.request.urlopen(f"{self.url}/_cluster/health", timeout=5) as response:
                return json.loads(response.read())["status"] != "red"
        except OSError:
            return False


def _distribution(version):
    """The folder of the unpacked server, fetched and unpacked once."""
    cache = folders.distribution_cache()
    place = cache / f"elasticsearch-{version}"
    if not place.is_dir():
        folders.make(cache)
        folders.require_space(cache, 500_000_000, "Elasticsearch")
        artifact = MavenArtifact("org.elasticsearch.distribution.integ-test-zip", "elasticsearch", version, VERSIONS[version])
        artifacts.unpack([artifacts.shelf(cache).archive(artifact)], place, [artifact])
    return place


def _end_abandoned():
    """End the servers of test sessions that were killed, and remove their folders."""
    for root in Path(tempfile.gettempdir()).glob(f"{_HOME}*-*"):
        owner = root.name.removeprefix(_HOME).partition("-")[0]
        if not owner.isdigit() or psutil.pid_exists(int(owner)):
            continue
        for each in psutil.process_iter(["cmdline"]):
            if any(f"{root}/" in argument for argument in each.info["cmdline"] or ()):
                each.kill()
        shutil.rmtree(root, ignore_errors=True)
