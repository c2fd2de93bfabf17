"""The page Learn: a run in a process of its own, which can be stopped, goes on, and ends with the server."""

import json
import shutil
import signal
import uuid
from functools import partial
from html import unescape
from urllib.request import urlopen

import pytest
import requests

from termweave import settings
from termweave.catalog import generations
from termweave.errors import TermweaveError
from termweave.evaluation.book.store import JudgementBook
from termweave.records import Query
from termweave.training.needs import missing
from termweave.ui.learning_process import LearningJob, LearningProcess
from tests.ui.conftest import built, client_of, post, remove_book
from tests.ui.processes import serving, until

TOPICS = ["steam", "copper", "violet", "harbour", "lantern", "meadow", "orchard", "pepper", "quartz", "saddle"]
TOPICS += ["thunder", "umbrella", "velvet", "walnut", "yarrow", "zither", "basalt", "cinnamon", "dolphin", "ember"]
#: What a real training begins with is here: `make test` installs it.
trains = pytest.mark.skipif(bool(missing()), reason=str(missing()))
FORMS = ("{}", "what is known about {}", "origin and history of {}")


@pytest.fixture(scope="module")
def topics(opensearch_engine, tmp_path_factory):
    """An index with a book: three judged queries for each topic."""
    name = f"test-learn-{uuid.uuid4().hex[:10]}"
    documents = ({"_id": each, "text": f"mainly regarding {each}"} for each in TOPICS)
    built(opensearch_engine, name, tmp_path_factory.mktemp("topics"), *documents)
    queries = [Query(f"{topic}-{way}", form.format(topic)) for topic in TOPICS for way, form in enumerate(FORMS)]
    grades = {query.id: {query.id.partition("-")[0]: 3} for query in queries}
    JudgementBook(opensearch_engine, name).import_qrels("file", queries, grades)
    yield name
    opensearch_engine.request("DELETE", f"/{name}*", params={"expand_wildcards": "all"})
    remove_book(opensearch_engine, name)


@trains
@pytest.mark.slow
def test_a_run_that_is_stopped_with_its_server_goes_on_where_it_was(opensearch_engine, topics, own_places):
    """Ctrl-C on the server, as a user presses it; then a kill of the server, which takes the process that learns with it."""
    state = own_places / "xdg-state"
    begin = partial(serving, topics, OPENSEARCH_URL=opensearch_engine.url, XDG_STATE_HOME=str(state))

    def start(url):
        headers = {"Origin": url.rstrip("/")}  # as browsers send it
        return requests.post(f"{url}learn/start", data={"index": topics}, headers=headers, timeout=60, allow_redirects=False)

    with begin() as (first, said):
        assert start(said["url"]).status_code == 303
        again = start(said["url"])
        assert (again.status_code, "is running" in again.text) == (400, True)
        until(lambda: "Training" in json.load(urlopen(f"{said['url']}api/jobs"))["jobs"][0]["stage"], 300)
        first.send_signal(signal.SIGINT)
        assert first.wait(120) == 0
        assert "Traceback" not in first.stderr.read()
    home = state / "termweave" / "learned" / topics
    lock = home / ".lock"
    with begin() as (second, said):
        assert (lock.exists(), start(said["url"]).status_code) == (False, 303)
        until(lock.exists, 300)
        second.kill()
        until(lambda: not lock.exists(), 60)
    assert "Traceback" not in (home / "log.txt").read_text()


@pytest.fixture
def learner(opensearch_engine, topics):
    made = client_of(opensearch_engine, index=topics, settings=settings.load(url=opensearch_engine.url))
    yield made
    made.app.state.jobs.close()


@trains
def test_a_run_can_be_stopped_on_the_page(learner, topics):
    job = post(learner, "/learn/start", index=topics).headers["location"].partition("job=")[2]
    assert post(learner, "/learn/stop", job=job).status_code == 303

    def state():
        return next(each for each in learner.get("/api/jobs").json()["jobs"] if each["id"] == job)

    until(lambda: state()["state"] == "failed", 300)
    assert "was stopped" in state()["error"]
    assert learner.get(f"/api/learn?job={job}").status_code == 400  # not a fault
    assert post(learner, "/learn/stop", job=job).status_code == 400


def test_what_is_missing_is_said_before_learning(opensearch_engine, topics, learner, monkeypatch):
    reader = client_of(opensearch_engine, index=topics, read_only=True, settings=settings.load(url=opensearch_engine.url))
    assert post(reader, "/learn/start", index=topics).status_code == 403
    assert "<button" not in reader.get("/learn").text.partition("Models learn from")[2]
    monkeypatch.setattr("termweave.ui.pages.job_pages.missing", lambda: [("torch", "Install: pip install 'termweave[train]'.")])
    refused = post(learner, "/learn/start", index=topics)
    said = "Learning needs torch. Install: pip install 'termweave[train]'." in unescape(refused.text)
    assert (refused.status_code, said) == (400, True)


def test_a_result_is_shown_with_its_figures(opensearch_engine, topics, learner, monkeypatch):
    """What a run returns becomes a page and JSON; here it is one that confirmed nothing."""
    live = generations.live(opensearch_engine, topics)
    result = {
        "name": topics, "questions": f"book:{topics}", "folder": "/somewhere", "parts": {"train": 36, "dev": 9, "test": 15},
        "tried": [{"candidate": {"method": "dtr"}, "steps": 12, "seconds": 3.0, "dropped": "too slow", "before": 0.0, "after": 0.0}],
        "notes": [], "before": 0.5, "after": 0.6, "p": 0.2, "generation": live, "confirmed": False, "systems": [],
    }  # fmt: skip
    for after, said in ((0.6, "The gain may be chance"), (0.5, "The new search is not better")):
        monkeypatch.setattr(LearningProcess, "run", lambda *_, after=after: result | {"after": after})
        started = post(learner, "/learn/start", index=topics)
        until(lambda: learner.get("/api/jobs").json()["jobs"][0]["state"] == "done")
        page = unescape(learner.get(started.headers["location"]).text)
        assert f"{said}: 0.5000 before, {after:.4f} after on 15 test questions (p 0.2)" in page
    assert "too slow" in page
    assert f"promote={live}" in page


def test_a_process_that_dies_at_once_is_a_sentence(monkeypatch):
    task = LearningJob(settings.load(url="http://127.0.0.1:9"), "docs", {"weights": "x" * 1_000_000})  # more than a pipe holds
    monkeypatch.setattr("sys.executable", shutil.which("false"))
    with pytest.raises(TermweaveError, match=r"ended without a result \(status 1\)"):
        LearningProcess(task).run(lambda *_: None, lambda _: None)
