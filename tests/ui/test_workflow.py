"""Measure, tune and promote on the real server: what the pages do is what the commands do."""

import gc
import re
import shutil
from dataclasses import replace
from html import unescape
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest

from termweave import corpora
from termweave.catalog import audit, generations
from termweave.catalog.profiles import Profile
from termweave.encoders.kinds import read_folder
from termweave.encoders.manifest import write_manifest
from termweave.encoders.model_lookup import resolve
from termweave.errors import UsageError
from termweave.evaluation import Experiment, Row, evaluate, index_comparison, table
from termweave.evaluation.book.reader import HELD_OUT, TRAIN, BookDataset, half_of
from termweave.evaluation.book.store import JudgementBook
from termweave.evaluation.measures import MEASURES
from termweave.evaluation.tuning.tune import TuningReport
from termweave.indexer import BuildOptions, update
from termweave.records import Query
from termweave.search import Index
from termweave.ui import searching
from termweave.ui.jobs import BackgroundJob
from termweave.ui.pages.job_pages import GatedExperiment
from tests.ui.conftest import TEXTS, built, client_of, lexical, opened, post
from tests.ui.processes import until
from tests.ui.test_api import valid


def ended(client, address):
    """The page of a job that has ended."""
    return unescape(until(lambda: 'class="badge">running' not in (page := client.get(address).text) and page, 120))


def worked(client, index, kind, **fields):
    """Evaluate or tune on the book of an index; the page of the result, and the id of the job."""
    started = post(client, f"/{kind}/start", index=index, dataset=f"book:{index}", **fields)
    assert started.status_code == 303, started.text
    return ended(client, started.headers["location"]), started.headers["location"].partition("job=")[2]


def compared(page):
    """The links of a page to two lists of a query."""
    return re.findall(r'href="(/search\?q=[^"]*compare=1[^"]*)"', page)


@pytest.fixture
def judged(book):
    """A book of 24 queries, each a document's words, with its document as the answer."""
    spoken = {key: " ".join(value).split() for key, value in TEXTS.items()}
    words = [word for each in list(spoken.values())[:6] for word in dict.fromkeys(each)]
    texts = {f"q{place}": " ".join(words[3 * place : 3 * place + 3]) for place in range(24)}
    grades = {key: {next(each for each in spoken if text.split()[0] in spoken[each]): 2} for key, text in texts.items()}
    book.import_qrels("file", [Query(*each) for each in texts.items()], grades)
    return book


def test_two_indices_are_compared_with_the_figures_of_the_command(client, opensearch_engine, attacked, judged, name, tmp_path):
    lexical(opensearch_engine, name, tmp_path, *({"_id": key, "text": TEXTS[key][1]} for key in list(TEXTS)[:3]))
    assert f'<option value="{name}">' in client_of(opensearch_engine, index=attacked).get("/evaluate").text
    page, _ = worked(client, attacked, "evaluate", against=name)
    index = opened(client, attacked)
    dataset, other = BookDataset(f"book:{attacked}", judged), Index.open(opensearch_engine, name)
    expected = index_comparison.evaluate_against(index, attacked, other, name, dataset)
    assert expected.notes[-1] in page
    assert all(table.cell(expected, row, measure) in page for row in expected.rows for measure in row.values)
    link = compared(page)[0]
    assert (f"&index={name}&" in link, f"&index2={attacked}" in link, client.get(link).status_code) == (True, True, 200)
    form = {"index": attacked, "dataset": f"book:{attacked}", "gates": "nDCG@10>=0.4"}
    wrong = post(client, "/evaluate/start", **form, against="no-such-index")
    assert (wrong.status_code, "nDCG@10>=0.4" in unescape(wrong.text)) == (400, True)


def test_an_evaluation_shows_the_table_of_the_command_and_both_lists_of_a_query(client, attacked, judged):
    opened(client, attacked)
    gc.collect()
    count = sum(type(each) is Index for each in gc.get_objects())
    page, job = worked(client, attacked, "evaluate")
    answer = valid(client.get(f"/api/evaluate?job={job}"), "evaluate")
    assert client.get(f"/api/tune?job={job}").status_code == 400
    listed = next(each for each in valid(client.get("/api/jobs"), "jobs")["jobs"] if each["id"] == job)
    assert (listed["state"], listed["error"]) == ("done", None)
    expected = evaluate(opened(client, attacked), BookDataset(f"book:{attacked}", judged))
    assert all(table.cell(expected, row, name) in page for row in expected.rows for name in row.values)
    assert {(row["system"], row["measure"]): row["value"] for row in answer["rows"]} == {
        (row.system, name): pytest.approx(value) for row in expected.rows for name, value in row.values.items()
    }
    assert "of the best are the same" in client.get(compared(page)[0]).text
    gc.collect()
    assert sum(type(each) is Index for each in gc.get_objects()) <= count  # a result holds none, whose models take memory


def test_queries_that_moved_open_without_the_ranker_of_a_profile(opensearch_engine, name, tmp_path):
    """Pages may not name it; the mode alone brings it."""
    lexical(opensearch_engine, name, tmp_path, "1")
    index = Index.pinned(opensearch_engine, name)
    ranker = {"kind": "ltr", "model": "shop-ranker", "candidates": 100, "hash": "0" * 64}
    index.adopt(Profile("mine", {"lexical": 1.0}, "sum", None, ranker=ranker))
    systems = {"BM25": ("lexical", "none", 0.2), "mine": ("mine", "ltr@shop-ranker", 0.9), "bare": ("mine", "none", 0.4)}
    rows = tuple(Row(each, mode, rerank, dict.fromkeys(MEASURES, value)) for each, (mode, rerank, value) in systems.items())
    values = {each: {"nDCG@10": np.full(1, value)} for each, (_, _, value) in systems.items()}
    experiment = Experiment("d", ("q",), "BM25", rows, {}, {"q": "parse json"}, values)
    client = client_of(opensearch_engine, index=name)
    job = BackgroundJob("evaluate", "Evaluation on d", {"index": name, "lineage": index.lineage, "against": ""})
    client.app._app.state.jobs.start(job, lambda _: GatedExperiment(experiment, ()))
    page = ended(client, f"/evaluate?index={name}&job={job.id}")
    links = [parse_qs(urlsplit(link).query) for link in compared(page)]
    assert [(each["mode"], each["rerank"], each["mode2"], each.get("rerank2")) for each in links] == [
        (["lexical"], ["none"], ["mine"], None),
        (["lexical"], ["none"], ["mine"], ["none"]),
    ]


def test_gates_of_an_evaluation_pass_or_fail_with_their_figure(client, attacked, judged):
    typed = "MRR@10>=0.01\n\nBM25:nDCG@10>=1\n"
    page, job = worked(client, attacked, "evaluate", gates=typed)
    gates = client.get(f"/api/evaluate?job={job}").json()["gates"]
    assert [(each["gate"], each["met"]) for each in gates] == [("MRR@10>=0.01", True), ("BM25:nDCG@10>=1", False)]
    assert all(each["reason"] in page for each in gates)
    refused = (("nDCG", "not a requirement"), ("MRR@10 within .1 of /etc", "a saved run"), ("MRR@10>=1\n" * 21, "21 gates"))
    for wrong, said in refused:
        answer = post(client, "/evaluate/start", index=attacked, dataset=f"book:{attacked}", gates=wrong)
        filled_in = (said, f">{wrong.strip()}", f"<option selected>book:{attacked}</option>")  # the form is as it was filled in
        assert (answer.status_code, [part in unescape(answer.text) for part in filled_in]) == (400, [True] * 3)


def test_tuning_shows_held_out_figures_and_adopts_only_what_is_better(client, attacked, judged):
    page, job = worked(client, attacked, "tune", measure="MRR@10")
    assert "MRR@10 of 12 held-out queries" in page
    assert valid(client.get(f"/api/tune?job={job}"), "tune")["held_out"] == 12
    better = "Adopt the profile" in page
    assert post(client, "/tune/adopt", job=job).status_code == (303 if better else 400)
    assert bool(opened(client, attacked).lineage.profile) == better


def test_a_profile_is_adopted_only_into_the_generation_that_is_live(opensearch_engine, name, tmp_path):
    lexical(opensearch_engine, name, tmp_path, "1")
    client, index = client_of(opensearch_engine, index=name), Index.pinned(opensearch_engine, name)
    tuned = Profile("tuned", {"lexical": 1.0}, "sum", None)
    report = TuningReport("d", "nDCG@10", 5, 5, 1, tuned, "", {"tuned": 0.6, "default": 0.5}, 0.1, 0.05, 0.15, 0.01)
    job = BackgroundJob("tune", "Tuning on d", {"index": name, "generation": index.generation})
    client.app._app.state.jobs.start(job, lambda _: report)
    ended(client, f"/tune?index={name}&job={job.id}")
    Index.open(opensearch_engine, name).adopt(Profile("other", {"lexical": 1.0}, "sum", None))
    assert post(client, "/tune/adopt", job=job.id).status_code == 303
    opensearch_engine.request("POST", f"/{audit.INDEX}/_refresh")
    (line,) = audit.read(opensearch_engine, name, 1)
    assert (line.act, line.before, line.after) == ("profile", "other", "tuned")
    lexical(opensearch_engine, name, tmp_path, "2")
    live = generations.live(opensearch_engine, name)
    refused = post(client, "/tune/adopt", job=job.id)
    said = f"{name} points to {live} by now; the profile was tuned on {index.generation}." in unescape(refused.text)
    assert (refused.status_code, said) == (400, True)


@pytest.mark.parametrize("kind", ["evaluate", "tune"])
def test_a_book_with_too_few_grades_is_a_sentence(client, attacked, book, kind):
    assert "holds no grade yet" in client.get(f"/{kind}?index={attacked}").text
    started = post(client, f"/{kind}/start", index=attacked, dataset=f"book:{attacked}", measure="MRR@10", gates="MRR@10>=0.5")
    assert (started.status_code, f"book:{attacked} holds no grade." in started.text) == (400, True)
    if kind == "tune":
        book.import_qrels("file", [Query("q", "parse json")], {"q": {"json": 2}})
        page, job = worked(client, attacked, "tune")
        answer = client.get(f"/api/tune?job={job}")
        assert (answer.status_code, answer.json()["error"] in page) == (400, True)
    assert (">MRR@10&gt;=0.5</textarea>" if kind == "evaluate" else "<option selected>MRR@10</option>") in started.text


def test_a_page_that_waits_for_a_job_of_an_earlier_server_is_loaded_again(unreachable):
    answer = client_of(unreachable).get("/progress?job=gone")
    assert (answer.status_code, answer.headers["hx-refresh"]) == (400, "true")
    assert "This result is not kept any more." in answer.text


def test_a_generation_is_promoted_after_a_question_and_rolled_back(opensearch_engine, name, tmp_path, monkeypatch):
    options = {"weights": "none", "dense": "none"}
    older, newer = (built(opensearch_engine, name, tmp_path, *"ab"[:count], shards=count, **options) for count in (1, 2))
    Index.open(opensearch_engine, name).adopt(Profile("tuned", {"lexical": 1.0}, "sum", None))
    monkeypatch.setattr(Index, "open", None)  # as on a host that lacks the models of the live generation
    client = client_of(opensearch_engine, index=name)
    page = client.get(f"/generations?index={name}&promote={older}").text
    for now, then in (("2", "1"), ("--weights none --dense none --shards 2", "--weights none --dense none"), ("tuned", "none")):
        assert f'<td data-label="Now">{now}</td><td data-label="Then">{then}</td>' in page
    assert page.count('title="2"><code>--shards</code> 2</div>') == 1
    for wrong in ({"index": name, "live": older}, {"index": "*", "live": newer}):
        assert post(client, "/generations/promote", generation=older, act="rollback", **wrong).status_code == 400
    assert generations.live(opensearch_engine, name) == newer
    done = post(client, "/generations/promote", index=name, generation=older, live=newer, act="rollback")
    assert done.headers["location"] == f"/generations?index={name}"
    assert generations.live(opensearch_engine, name) == older
    opensearch_engine.request("POST", f"/{audit.INDEX}/_refresh")
    assert audit.read(opensearch_engine, name, 1)[0].act == "rollback"
    assert "It was rolled back from." in client.get(f"/generations?index={name}&promote={newer}").text
    assert client.get(f"/generations?index={name}&promote=no-such-generation").status_code == 400
    opensearch_engine.request("DELETE", f"/{older}/_alias/{name}")  # as after a first build whose gate was not met
    assert "nothing is live" in client.get(f"/generations?index={newer}&promote={newer}").text
    post(client, "/generations/promote", index=name, generation=newer, live="")
    assert generations.live(opensearch_engine, name) == newer


def test_pages_follow_what_another_process_publishes_and_removes(opensearch_engine, name, tmp_path):
    older = lexical(opensearch_engine, name, tmp_path, "old")
    client = client_of(opensearch_engine, index=name)
    assert client.get("/api/encode", params={"q": "parse json"}).json()["generation"] == older
    assert client.get("/api/encode", params={"q": "parse json", "index": older}).status_code == 200
    newer = lexical(opensearch_engine, name, tmp_path, "new")
    opensearch_engine.request("DELETE", f"/{older}")
    client.app._app.state.workspace.indices.seconds = 0.0
    assert client.get("/api/encode", params={"q": "parse json"}).json()["generation"] == newer
    index = opened(client, name)
    assert searching.content_of(index, "new")[1] == "parse json"
    assert [*index.run({"q": "parse json"}).scores["q"]] == ["new"]
    gone = client.get("/api/encode", params={"q": "parse json", "index": older})
    assert (gone.status_code, f"no index named '{older}'" in gone.json()["error"]) == (400, True)


def test_pages_take_the_profile_and_the_encoder_of_queries_that_others_changed(opensearch_engine, name, tmp_path):
    other = tmp_path / "other"
    built(opensearch_engine, name, tmp_path, "only", weights="none", signals=("dense",))
    workspace = client_of(opensearch_engine, index=name).app._app.state.workspace
    opened_before = workspace.index(name)
    Index.open(opensearch_engine, name).adopt(Profile("mine", {"dense": 1.0}, "sum", None))
    assert workspace.index(name) is opened_before  # for some seconds
    shutil.copytree(resolve("shipped"), other)
    write_manifest(other, replace(read_folder(other).manifest, hash="0123456789abcdef"))
    source = corpora.open_source(tmp_path / "corpus.jsonl")
    update(opensearch_engine, source, name, BuildOptions(dense_query=str(other)))
    workspace.indices.seconds = 0.0
    opened_again = workspace.index(name)
    assert opened_again.lineage.profile == "mine"
    assert opened_again.lineage.models["dense_query"].hash == "0123456789abcdef"
    assert workspace.index(name) is opened_again


def test_halves_are_equal_in_any_script_and_another_spelling_stays_in_its_half():
    """Otherwise a model would learn from a query that then measures it."""
    for form, same in (
        *(("query {}", "Query: {}?"), ("{} naïve café", "nai\u0308ve  CAFE {}"), ("don't wait {}", "don\u2019t wait {}!")),
        *(("\u6587 {}", "\u6587 {}\u3002"), ("\u0928\u092e {}", "\u0928\u092e  {}")),
    ):
        halves = [half_of(form.format(number)) for number in range(1_000)]
        assert 400 < halves.count(TRAIN) < 600
        assert [half_of(same.format(number)) for number in range(1_000)] == halves
    assert len({half_of("?" * length) for length in range(1, 50)}) == 2  # a query without words has a half, too


def test_the_halves_of_a_book_are_disjoint_and_stay_as_they_are(opensearch_engine, name):
    book = JudgementBook(opensearch_engine, name)
    texts = [f"query about subject {number}" for number in range(60)]
    book.import_qrels("file", [Query(text, text) for text in texts], {text: {"json": 3} for text in texts})
    halves = {split: BookDataset(f"book:{name}", book, split) for split in (TRAIN, HELD_OUT)}
    ids = {split: {query.id for query in half.queries()} for split, half in halves.items()}
    assert (ids[TRAIN] | ids[HELD_OUT], ids[TRAIN] & ids[HELD_OUT]) == ({query.id for query in book.queries()}, set())
    assert min(map(len, ids.values())) > 15
    queries = [(query, split) for split, half in halves.items() for query in half.queries()]
    assert all(half_of(query.text) == split == half_of(f" {query.text.upper()} ") for query, split in queries)
    assert set(halves[TRAIN].qrels()) == ids[TRAIN]
    opened = corpora.open_dataset(f"book:{name}:{HELD_OUT}")
    assert (opened.split, opened.splits()) == (HELD_OUT, ["test", HELD_OUT, TRAIN])
    with pytest.raises(UsageError, match="has no split 'dev'"):
        corpora.open_dataset(f"book:{name}:dev")
