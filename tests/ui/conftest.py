"""An application in this process, without a server and on the real one, with an index that attacks its reader."""

import uuid

import orjson
import pytest

pytest.importorskip("starlette", reason="the extra 'ui' is not installed")

from starlette.testclient import TestClient

from termweave import corpora, engine, settings
from termweave.catalog import generations
from termweave.evaluation.book.store import INDEX, JudgementBook
from termweave.indexer import BuildOptions, build
from termweave.serving.model_server import model_application
from termweave.ui import application
from termweave.ui.serve_options import ServeOptions
from tests.cli.conftest import DOCUMENTS as ENTRIES

URL = "http://127.0.0.1:8321"
TOKEN = "a-token-of-more-than-16-characters"
#: The index of attacks, one for the tests of every folder in this process.
ATTACKED = f"test-ui-{uuid.uuid4().hex[:10]}"
#: The pages besides those that search.
WORKBENCH = ("/judge", "/book", "/evaluate", "/tune", "/learn", "/generations")
#: Texts that would run, break out of an attribute or end an element if a page did not escape them.
ATTACKS = (
    "<script>document.title='taken'</script>",
    '"><img src=x onerror=alert(1)>',
    "'><svg/onload=alert(1)>",
    "</textarea></title><script>alert(1)</script>",
    "javascript:alert(1)",
    "{{ 1337*1337 }}{% include 'login.html' %}",
    "</mark><iframe src=//evil.example></iframe>",
    "\x00\x08\ufffe<b onmouseover=alert(1)>bold</b>",
)
TEXTS = {
    **{key: both for key, both in ENTRIES.items() if any(both)},
    "sched": ("Scheduler", "Run a function at a later time: an event scheduler that calls functions after a delay."),
    "zh": ("自然语言处理", "自然语言处理是人工智能的一个重要方向。function 函数"),
    "he": ("שלום עולם", "זה משפט ארוך בעברית function"),
    "ar": ("معالجة اللغات", "معالجة اللغات الطبيعية فرع من الذكاء الاصطناعي function"),
    "emoji": ("party 👍🏽", "A function that makes a party 👍🏽 1️⃣ İstanbul 𝒜"),
}
DOCUMENTS = TEXTS | {f"attack-{n}{text}": (f"attack {text}", f"run a function {text} later") for n, text in enumerate(ATTACKS)}


def client_of(connection, **options):
    """A browser at an application with these options: its forms come from the application's own pages."""
    app = application.create(connection, ServeOptions(**options))
    return TestClient(app, base_url=URL, headers={"origin": URL}, follow_redirects=False)


def models_of(connection, **options):
    """A program at a model server with these options."""
    app = model_application.create(connection, ServeOptions(serves_models=True, **options))
    return TestClient(app, base_url=URL)


def requests_of_every_kind(app, document):
    """Hold the answers of an application to its OpenAPI document: the addresses that schemathesis asked, with valid bodies and others."""
    schemathesis = pytest.importorskip("schemathesis")
    from hypothesis import HealthCheck, Phase, given, settings
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    local, health = {"host": "127.0.0.1"}, list(HealthCheck)
    schema = schemathesis.openapi.from_asgi(document, app, headers=local)
    tried = set()
    for operation in (each.ok() for each in schema.get_all_operations()):

        @given(case=operation.as_strategy())
        @settings(max_examples=8, deadline=None, derandomize=True, phases=[Phase.generate], suppress_health_check=health)
        def probe(case):
            # No schema says which modes, documents and models there are: valid requests may ask for something that does not exist.
            case.call_and_validate(headers=local, excluded_checks=[positive_data_acceptance])
            tried.add(case.operation.path)

        probe()
    return tried


def opened(client, name):
    """The index as the application has it open."""
    return client.app._app.state.workspace.index(name)


def post(client, path, **fields):
    """Send a form as a page does; fields that are tuples are files."""
    files = {name: fields.pop(name) for name in list(fields) if isinstance(fields[name], tuple)}
    return client.post(path, data=fields, files=files or None)


def built(connection, name, folder, *documents, **options):
    """Build a generation of texts (an id stands for one); return its name."""
    path = folder / "corpus.jsonl"
    whole = [each if isinstance(each, dict) else {"_id": each, "text": "parse json"} for each in documents]
    path.write_bytes(b"".join(orjson.dumps(each) + b"\n" for each in whole))
    return build(connection, corpora.open_source(path), name, BuildOptions(**options)).index


def lexical(connection, name, folder, *documents):
    """Build a generation without a model."""
    return built(connection, name, folder, *documents, signals=("lexical",))


def remove_book(connection, name):
    params = {"refresh": True, "ignore_unavailable": True}
    connection.request("POST", f"/{INDEX}/_delete_by_query", params=params, body={"query": {"term": {"book": name}}})


@pytest.fixture
def book(opensearch_engine, attacked):
    """The book of that index, empty."""
    yield JudgementBook(opensearch_engine, attacked)
    remove_book(opensearch_engine, attacked)


@pytest.fixture
def hasty(monkeypatch):
    """No pause before a request is sent again."""
    monkeypatch.setattr("termweave.engine.client.retries._pause", lambda *_: 0.0)


@pytest.fixture
def unreachable(hasty):
    """A connection to a port that nobody listens on: what the filter refuses never gets there."""
    return engine.connect(settings.load(url="http://127.0.0.1:9"))


@pytest.fixture(scope="session")
def attacked(opensearch_engine, tmp_path_factory):
    """The name of an index whose documents, ids and metadata hold attacks."""
    if generations.live(opensearch_engine, ATTACKED) is None:  # each folder that imports this fixture has one of its own
        documents = (
            {"_id": key, "title": title, "text": text, "kind": key.partition("-")[0], "year": 2000 + number, "note": text}
            for number, (key, (title, text)) in enumerate(DOCUMENTS.items())
        )
        built(opensearch_engine, ATTACKED, tmp_path_factory.mktemp("attacks"), *documents)
    yield ATTACKED
    opensearch_engine.request("DELETE", f"/{ATTACKED}*", params={"expand_wildcards": "all"})


@pytest.fixture(scope="session")
def client(opensearch_engine, attacked):
    """A client of an application on that index."""
    return client_of(opensearch_engine, index=attacked)
