"""Fixtures of all tiers. Unit tests need no server; `engine` tests talk to the real one of `opensearch_engine`."""

import os
import signal
import socket
import threading
import uuid
from pathlib import Path

import pytest

SHARED = Path(__file__).parents[2] / "shared"


def pytest_configure(config):
    """Ctrl-C is tested: where pytest itself runs in the background of a shell, it and its children would ignore it.

    And tests report nothing to ONNX Runtime's makers.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # some tests import onnxruntime themselves


def pytest_collection_modifyitems(config, items):
    """Whatever asks for the real server is an engine test, and for the browser a test that needs programs, said or not."""
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if {"opensearch_engine", "opensearch_node"} & fixtures:
            item.add_marker("engine")
        if "browser" in fixtures:
            item.add_marker("programs")


def pytest_sessionstart(session):
    """Where several processes run the tests, only this one can speak before the first of them."""
    if getattr(session.config.option, "numprocesses", None):
        _say_if_no_server_can_start(session.config)


def pytest_collection_finish(session):
    """Look for a server's needs where a test needs one."""
    if any(item.get_closest_marker("engine") for item in session.items) and not hasattr(session.config, "workerinput"):
        _say_if_no_server_can_start(session.config)


def _say_if_no_server_can_start(config):
    """Say before the first test if no server can be started for want of Java: a JDK is found, else downloaded."""
    if config.option.collectonly or os.environ.get("OPENSEARCH_URL"):
        return
    from termweave.engine import pytest_plugin
    from termweave.engine.embedded import java
    from termweave.errors import TermweaveError

    try:
        if pytest_plugin.docker_missing():
            java.find()
    except TermweaveError as error:
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        reporter.write_line(f"Tests with a server cannot run: {error}", yellow=True)


@pytest.fixture(scope="session", autouse=True)
def own_places(tmp_path_factory):
    """State, cache of statistics and settings of the tests stay out of the user's folders; server archives are shared."""
    patch = pytest.MonkeyPatch()
    root = tmp_path_factory.mktemp("places")
    patch.setattr("termweave.support.paths.state", lambda: root / "state")
    patch.setattr("termweave.support.paths.config", lambda: root / "config")
    patch.setenv("XDG_STATE_HOME", str(root / "xdg-state"))
    patch.setenv("XDG_CONFIG_HOME", str(root / "xdg-config"))
    for name in [name for name in os.environ if name.startswith("TERMWEAVE_") and name != "TERMWEAVE_REQUIRE_ENGINE"]:
        if not name.startswith("TERMWEAVE_OPENSEARCH"):
            patch.delenv(name)
    yield root
    patch.undo()


@pytest.fixture
def closed_port():
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def no_network(monkeypatch, closed_port):
    """Every way out leads to a closed door."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{closed_port}")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def register(tmp_path):
    """Put a data set of local files into the registry of ir_datasets, for one test."""
    ir_datasets = pytest.importorskip("ir_datasets", reason="the extra 'ir' is not installed")
    formats, names = ir_datasets.formats, []

    def add(name, *, docs=None, queries=None, qrels=None):
        parts = []
        for content, make, file in (
            (docs, formats.TsvDocs, "docs.tsv"),
            (queries, formats.TsvQueries, "queries.tsv"),
            (qrels, lambda file: formats.TrecQrels(file, {}), "qrels"),
        ):
            if isinstance(content, str):
                path = tmp_path / name.replace("/", "-") / file
                path.parent.mkdir(exist_ok=True)
                path.write_text(content)
                parts.append(make(ir_datasets.util.LocalDownload(path)))
            elif content is not None:
                parts.append(content)
        ir_datasets.registry.register(name, ir_datasets.Dataset(*parts))
        names.append(name)
        return parts[0] if parts else None

    yield add
    for name in names:
        del ir_datasets.registry._registered[name]


@pytest.fixture
def termweave(capsys):
    """Run a verb in this process; returns what it printed, or its errors where `status`, the expected one, is not 0."""
    from termweave.cli import run

    def call(*arguments, status=0):
        ended = run([str(each) for each in arguments])
        printed = capsys.readouterr()
        assert ended == status, printed.err
        return printed.out if status == 0 else printed.err

    return call


@pytest.fixture
def name(opensearch_engine):
    """An index name of one's own; whatever was made under it is removed afterwards."""
    prefix = f"test-{uuid.uuid4().hex[:10]}"
    yield prefix
    opensearch_engine.request("DELETE", f"/{prefix}*", params={"expand_wildcards": "all"})


@pytest.fixture
def shared():
    """The real data beside the project."""
    if not SHARED.is_dir():
        pytest.skip("the data sets stand beside the project and are not here")
    return SHARED
