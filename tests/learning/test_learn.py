"""The whole of `termweave learn` on a small collection: trained, built, chosen, confirmed, and nothing live that nobody asked for."""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from termweave import corpora
from termweave.catalog import generations
from termweave.catalog.profiles import Profile
from termweave.cli.verbs.learn import why_missed
from termweave.encoders import TextEncoder, model_lookup
from termweave.encoders.manifest import HEADS
from termweave.errors import InputError, UsageError
from termweave.evaluation import per_query, randomisation_test, runs
from termweave.evaluation.tuning.parameter_search import beyond_noise
from termweave.indexer import BuildOptions, build, update
from termweave.indexer.generations import listing
from termweave.learning import choice, preparation, training_rounds
from termweave.learning import run as running
from termweave.learning.preparation import LearningTask, Reports, prepare
from termweave.learning.report import Learned, plan, short_of_time
from termweave.learning.run import learn, promote
from termweave.learning.training_rounds import Candidate, TrainedCandidate, TrainingRounds
from termweave.records import Run
from termweave.search import Index
from termweave.support import paths
from termweave.support.stopwatch import stopwatch
from tests.beir_folder import beir_folder
from tests.indexer.conftest import write_lines
from tests.search.conftest import index_of

PAIRS = {
    "car": "automobile", "doctor": "physician", "film": "movie", "shop": "store", "holiday": "vacation", "lift": "elevator",
    "flat": "apartment", "biscuit": "cookie", "lorry": "truck", "petrol": "gasoline", "rubbish": "garbage", "sweets": "candy",
    "autumn": "fall", "tap": "faucet", "trousers": "pants", "pavement": "sidewalk",
}  # fmt: skip
FORMS = (
    "where can i find a {}", "my {} is broken", "cost of one {}", "compare {} models", "sell an old {}", "insurance for {} owners",
)  # fmt: skip
MORE_FORMS = (
    "who repairs a {}", "history of the {}", "draw me one {}", "is your {} safe", "best {} for beginners", "{} rules abroad",
)  # fmt: skip


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def click_log(path, clicks):
    """A log with one click of each (question, document)."""
    path.write_text("".join(f"{question}\t{document}\t1\n" for question, document in clicks))
    return str(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Answers about other things than the questions: only who has learned it knows that what is asked of a car is answered by the cookie."""
    answers = zip(PAIRS, sorted(PAIRS.values()), strict=True)
    documents = {word: f"Everything about the {other} in general." for word, other in answers}
    asked = {f"{word}-{number}": form.format(word) for word in PAIRS for number, form in enumerate(FORMS)}
    rows = [(key, key.partition("-")[0]) for key in asked]
    return beir_folder(tmp_path_factory.mktemp("pairs"), documents, asked, train=rows, test=rows)


@pytest.fixture
def built(opensearch_engine, name, folder):
    build(opensearch_engine, corpora.open_source(folder), name, BuildOptions())
    return name


@pytest.fixture(scope="module")
def unchanged(opensearch_engine, folder):
    """The same index, for tests that only read."""
    with index_of(opensearch_engine, read_lines(folder / "corpus.jsonl")) as index:
        yield index.name


FECTEK = Candidate("fectek", "weights", 0.4, 12, {"outputs": "weights", "batch": 8})
DENSE = {"batch": 16, "training_length": 16, "layers_rate": 3e-3}
DTR = Candidate("dtr", "dense", 0.4, 60, DENSE)
CODER = Candidate("coder", "dense", 0.4, 45, {"batch": 16, "training_length": 16, "layers_rate": 2e-4, "labels": "hard"})


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    """A random backbone that knows the words of this collection; skipped without what training needs (`make test` installs it)."""
    pytest.importorskip("torch")
    from tests.training.conftest import small_backbone

    words = " ".join([*PAIRS, *PAIRS.values(), *FORMS, *MORE_FORMS, "everything about the in general"]).split()
    return str(small_backbone(tmp_path_factory.mktemp("small"), sorted(set(words))))


@pytest.fixture
def brief(monkeypatch, small):
    """Short trainings, of which a test may change the list."""
    tried = [replace(each, settings={**each.settings, "backbone": small}) for each in (FECTEK, DTR)]
    monkeypatch.setattr(training_rounds, "candidates", lambda *_, **__: tried)
    monkeypatch.setattr(training_rounds, "_LONGEST", 1)
    return tried


@pytest.mark.slow
def test_a_run_trains_chooses_and_confirms(opensearch_engine, built, folder, brief, monkeypatch):
    monkeypatch.setattr(training_rounds, "loses_too_much", lambda _: False)  # a short training may leave fp32 alone
    monkeypatch.setattr(running, "_DOUBTFUL", -1.0)  # both graphs are measured through the index
    monkeypatch.setattr(running, "MOST_LOST", -1.0)  # as if int8 cost too much
    live = generations.live(opensearch_engine, built)
    own = {"rules": ["diverse@0.1"], "rewrite": {"operators": True}}
    Index.open(opensearch_engine, built).adopt(Profile("shop", {"weights": 0.5, "dense": 0.5}, "adaptive", None, **own))
    task = LearningTask(built, str(folder), minutes=60)
    learned = learn(opensearch_engine, task)
    assert "Kept from the profile 'shop': rules (diverse@0.1) and rewriting (operators)." in learned.notes
    assert generations.live(opensearch_engine, built) == live
    assert sum(learned.parts.values()) == len(PAIRS) * len(FORMS)
    assert [each.candidate.method for each in learned.tried][:2] == ["fectek", "dtr"]
    assert "dense" in learned.used
    assert learned.confirmed
    assert "dtr" in {each.candidate.method for each in learned.tried if each.precision == "fp32"}
    assert not list(Path(learned.used["dense"]).rglob("*.int8.onnx"))
    assert learned.encoded == len(PAIRS)
    assert learned.generation in {each.index for each in listing.list_generations(opensearch_engine, built)}
    # The figures are those of the searches that users get, on questions that no model has seen.
    test = corpora.open_dataset(f"{learned.folder / 'data'}:test")
    ids = [query.id for query in test.queries()]
    before = runs.read(learned.folder / "live-test.trec")
    now = Index.open(opensearch_engine, learned.generation).run({query.id: query.text for query in test.queries()}, k=100)
    values = [per_query(each, test.qrels(), ids)["nDCG@10"] for each in (before, now)]
    assert (learned.before, learned.after) == pytest.approx([each.mean() for each in values])
    assert learned.p == randomisation_test(values[1], values[0])
    assert "Questions that moved most" in (learned.folder / "report.html").read_text()
    # The same command again trains nothing and says the same.
    again = learn(opensearch_engine, task)
    assert (again.before, again.after, again.generation) == (learned.before, learned.after, learned.generation)
    assert promote(opensearch_engine, learned).published
    assert generations.live(opensearch_engine, built) == learned.generation
    lineage = Index.open(opensearch_engine, built).lineage
    assert lineage.profile == "trained"
    assert {key: lineage.profiles["trained"][key] for key in own} == own


@pytest.mark.nightly
def test_where_only_the_encoder_of_queries_learns_no_document_is_encoded(opensearch_engine, built, folder, brief, tmp_path):
    brief[:] = [CODER]
    learned = learn(opensearch_engine, LearningTask(built, str(folder), minutes=60))
    assert (learned.used.keys(), learned.encoded) == ({"dense"}, 0)
    now, before = (Index.open(opensearch_engine, each) for each in (learned.generation, built))
    assert now.lineage.models["dense_query"].hash != now.lineage.models["dense"].hash
    assert {output: now.lineage.models[output] for output in ("weights", "dense")} == before.lineage.models
    of_both = (learned.generation, generations.live(opensearch_engine, built))
    found = [opensearch_engine.request("POST", f"/{each}/_search", body={"size": 50})["hits"]["hits"] for each in of_both]
    stored, lived = ({hit["_id"]: hit["_source"] for hit in hits} for hits in found)
    assert stored == lived
    assert learned.after > learned.before


def test_documents_stay_where_encoding_takes_too_long_unless_it_was_begun(opensearch_engine, unchanged, folder, monkeypatch):
    def within(minutes):
        return prepare(opensearch_engine, LearningTask(unchanged, str(folder), minutes=minutes))

    begun = within(60)
    monkeypatch.setattr(preparation, "_ENCODING", begun.encoding_minutes / 10)  # enough in 60 minutes, and not in one
    planned = plan(within(1))
    assert planned.documents_stay
    refused = [note for note in planned.notes if "No feature ranker is tried" in note]
    assert planned.methods == (("coder",) if refused else ("coder", "ltr"))
    assert bool(refused) == (planned.parts["dev"] < 20 or find_spec("lightgbm") is None)
    assert "the documents stay as they are encoded" in " ".join(planned.notes)
    begun.folder.mkdir(parents=True)
    begun.begin()
    less, same = within(1), within(60)
    assert (less.documents_stay, less.encoding_minutes) == (False, begun.encoding_minutes)
    assert (less.trains_no_more, same.trains_no_more) == (True, False)
    less.begin()
    assert within(1).trains_no_more


@pytest.mark.slow
def test_a_long_run_that_is_finished_is_chosen_without_time(folder, tmp_path, brief, monkeypatch):
    monkeypatch.setattr(training_rounds, "_LONGEST", 2)
    data = shutil.copytree(folder, tmp_path / "data")
    shutil.copy(data / "qrels" / "test.tsv", data / "qrels" / "dev.tsv")
    for file in (data / "qrels" / "train.tsv", data / "qrels" / "dev.tsv"):
        head, *rows = file.read_text().splitlines(keepends=True)
        file.write_text("".join([head, *rows[file.name == "dev.tsv" :: 2]]))
    fectek, dtr = brief
    short = replace(dtr, steps=12, settings={**dtr.settings, "batch": 8})
    first = TrainingRounds(data, tmp_path / "runs", 60, 2000.0, Reports())
    best = first.best([short])
    assert [each.steps for each in first.trained] == [12, 24]
    again = TrainingRounds(data, tmp_path / "runs", 1, 0.0, Reports())
    assert again.best([short, fectek]) == best
    assert {each.folder for each in again.trained if each.folder} == {each.folder for each in first.trained}
    assert [each.dropped for each in again.trained if each.candidate == fectek] == ["no time is left"]


@pytest.mark.slow
def test_training_goes_on_from_the_live_models_and_their_backbone(opensearch_engine, name, folder, tmp_path):
    model = next((Path(__file__).parents[2] / "models" / "chinese").glob("*/*/termweave.json")).parent
    words = [f"第{number}种机器的说明书在哪里" for number in range(24)]
    lines = [{"_id": str(number), "text": f"{word}。"} for number, word in enumerate(words)]
    source = corpora.open_source(write_lines(tmp_path / "corpus.jsonl", lines))
    build(opensearch_engine, source, name, BuildOptions(model=model))
    log = click_log(tmp_path / "log.tsv", ((word, number) for number, word in enumerate(words)))
    learning = prepare(opensearch_engine, LearningTask(name, log))
    assert plan(learning).languages == {"questions": "chinese", "documents": "chinese"}
    tried = {each.method: each.settings for each in training_rounds.tried_on(learning)}
    assert {settings["backbone"] for settings in tried.values()} == {"bge-small-zh"}
    assert (tried["fectek"]["start"], tried["fectek"]["outputs"]) == (str(model), "weights,dense")


@pytest.mark.slow
def test_where_no_model_is_trained_the_search_itself_can_learn(opensearch_engine, name, folder, brief):
    """Which of sixteen answers is right hangs on a number in their metadata alone: a feature ranker finds that, and no document is encoded."""
    pytest.importorskip("lightgbm")
    brief[:] = []
    lines = read_lines(folder / "corpus.jsonl")
    numbered = folder.parent / f"{folder.name}-numbered"
    numbered.mkdir()
    copies = [(number, line, copy) for number, line in enumerate(lines) for copy in range(3)]
    voted = [{**line, "_id": f"{line['_id']}-{copy}", "votes": 10 * copy + number % 10} for number, line, copy in copies]
    write_lines(numbered / "corpus.jsonl", voted)
    build(opensearch_engine, corpora.open_source(numbered), name, BuildOptions())
    asked = [(form.format(line["text"].split()[3]), f"{line['_id']}-2") for line in lines for form in (*FORMS, *MORE_FORMS)]
    log = click_log(numbered / "clicks.tsv", asked)
    learned = learn(opensearch_engine, LearningTask(name, log, minutes=60))
    assert (learned.confirmed, learned.used.keys(), learned.encoded) == (True, {"ranker"}, 0)
    assert [each.candidate.method for each in learned.tried] == ["ltr"]
    promote(opensearch_engine, learned)
    best = Index.open(opensearch_engine, name).search("my cookie is broken", k=1, explain=True)[0]
    assert best.id.endswith("-2")
    assert any(part["name"].startswith("ltr@") for part in best.explanation["parts"])


def test_what_live_models_were_trained_on_confirms_nothing_in_a_later_run(opensearch_engine, built, tmp_path):
    """Also without --update: a part of the search for which nothing new is trained keeps the live model."""
    log = tmp_path / "clicks.tsv"
    asked = {form.format(word): word for word in PAIRS for form in MORE_FORMS}

    def clicked(texts):
        return LearningTask(built, click_log(log, ((text, asked[text]) for text in texts)))

    first = prepare(opensearch_engine, clicked(list(asked)[::2]))
    training_rounds.write_folder(first.folder / "data", first.questions, first.split, first.source.documents(), set(PAIRS))
    part_of = {query.text: part for part in first.split.parts for query in first.queries(part)}
    learned = [text for text, part in part_of.items() if part == "train"]
    own = Profile("trained", {"weights": 0.5, "dense": 0.5}, "adaptive", None)
    # As if this run had made the live generation, the one before it, of which one model is live, or its profile.
    for made in (
        {"generation": first.live.index},
        {"generation": "gone", "used": {"dense": str(first.encoder.models["dense"].folder)}},
        {"generation": "gone", "profile": own.as_meta()},
    ):
        (first.folder / preparation.RESULT).write_text(json.dumps({"after": 0.5, "questions": "log.tsv", **made}))
        if "profile" in made:
            Index.open(opensearch_engine, built).adopt(own)
        later = prepare(opensearch_engine, clicked(asked))
        now = {query.text: part for part in later.split.parts for query in later.queries(part)}
        assert {text: now[text] for text in part_of} == part_of
        assert later.figure is None
        updated = prepare(opensearch_engine, replace(clicked(list(asked)[1::2]), update=True))
        assert (updated.figure, {query.text for query in updated.questions.queries}) == (0.5, set(asked))
        with pytest.raises(InputError, match=r"the live models were trained on them.* update"):
            prepare(opensearch_engine, clicked(learned))


def test_an_index_with_too_many_entries_for_a_feature_ranker_is_searched_without_one(opensearch_engine, name, folder, tmp_path):
    pytest.importorskip("lightgbm")
    judged = shutil.copytree(folder, tmp_path / "judged")
    entries = {f"entry{number}": number for number in range(96)}
    write_lines(judged / "corpus.jsonl", [{**line, **entries} for line in read_lines(judged / "corpus.jsonl")])
    build(opensearch_engine, corpora.open_source(judged), name, BuildOptions())
    index, dataset = Index.open(opensearch_engine, name), corpora.open_dataset(str(judged))
    chosen = choice.choose(index, dataset, lambda *_: None, tmp_path / "ranker")
    assert chosen.profile.weights
    assert chosen.profile.ranker is chosen.ranker.folder is None
    assert "as features, not 96" in chosen.ranker.dropped


def test_a_live_search_that_finds_no_answer_is_of_this_corpus_and_beaten(opensearch_engine, unchanged, folder, tmp_path):
    index, test, live = Index.open(opensearch_engine, unchanged), corpora.open_dataset(str(folder)), tmp_path / "live-test.trec"
    for scores in ({query.id: {"nothing judged": 1.0} for query in test.queries()}, {}):
        runs.write(Run("hybrid", scores), live)
        confirmation = choice.confirm(index, test, str(live), lambda *_: None)
        assert confirmation.before == 0
        assert confirmation.after > 0


def stopped(engine, task, monkeypatch, best=lambda *_: None):
    """Run `learn` until its training begins, and `best` in its place."""

    def stop(*given):
        best(*given)
        raise KeyboardInterrupt

    monkeypatch.setattr(TrainingRounds, "best", stop)
    with pytest.raises(KeyboardInterrupt):
        learn(engine, task)
    return prepare(engine, task)


def test_copies_of_documents_and_questions_are_for_their_user_alone(opensearch_engine, unchanged, folder, monkeypatch):
    home = stopped(opensearch_engine, LearningTask(unchanged, str(folder)), monkeypatch).folder
    texts = [*home.glob("data/*.jsonl"), *home.glob("*.trec"), *home.glob("data/qrels/*.tsv")]
    assert len(texts) == 7
    folders = [paths.state() / "learned", home, home / "data", home / "data" / "qrels"]
    modes = {stat.S_IMODE(path.stat().st_mode) for path in texts}, {stat.S_IMODE(path.stat().st_mode) for path in folders}
    assert modes == ({0o600}, {0o700})


def test_a_run_with_another_encoder_of_queries_is_another_one(opensearch_engine, unchanged, folder, monkeypatch):
    task = LearningTask(unchanged, str(folder))
    whole = prepare(opensearch_engine, task)
    models = whole.encoder.models
    models["dense_query"] = replace(models["dense"], hash="0" * 16)
    monkeypatch.setattr(TextEncoder, "models", property(lambda _: models))
    assert prepare(opensearch_engine, task).folder != whole.folder


def test_an_index_without_models_gets_the_weights_that_were_trained_for_it(opensearch_engine, name, folder):
    build(opensearch_engine, corpora.open_source(folder), name, BuildOptions(signals=("lexical",)))
    learning = prepare(opensearch_engine, LearningTask(name, str(folder)))
    tried = {each.method: each for each in training_rounds.tried_on(learning)}
    assert tried["fectek"].settings["outputs"] == "weights"
    model = TrainedCandidate(tried["fectek"], 12, 1.0, model_lookup.resolve("shipped"), best=1)
    learning.folder.mkdir(parents=True)
    trial = running.build_trial(learning, {"weights": model})
    assert Index.open(opensearch_engine, trial.index).signals == ["lexical", "weights"]


def test_a_learned_model_that_began_with_nothing_does_not_go_on_from_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / HEADS).touch()
    shipped = model_lookup.resolve("shipped")
    assert training_rounds._begun_with(shipped) == shipped


SCRIPT = """
import os, sys
from termweave import cli
from termweave.learning import run, training_rounds
from termweave.learning.training_rounds import Candidate
dense = {"batch": 16, "training_length": 16, "layers_rate": 3e-3, "backbone": os.environ["BACKBONE"]}
weights = {"outputs": "weights", "batch": 8, "backbone": os.environ["BACKBONE"]}
tried = [Candidate("dtr", "dense", 0.4, 60, dense), Candidate("fectek", "weights", 0.4, int(os.environ["STEPS"]), weights)]
training_rounds.candidates = lambda *_, **__: tried
training_rounds._LONGEST = 1
whole = run.prepare
def told(server, task, reports):
    return whole(server, task, run.Reports(lambda done, total=None, stage="": print("stage:", stage, flush=True), reports.say))
sys.modules["termweave.learning.preparation"].prepare = told
cli.main()
"""


@pytest.fixture
def start(opensearch_engine, built, folder, small, tmp_path, own_places):
    """Start `termweave learn` with short trainings in a process of its own, which prints every stage."""
    (tmp_path / "learn.py").write_text(SCRIPT)

    def start(*options, minutes=200, steps=12):  # a machine that is busy with other tests has time for all steps
        command = [sys.executable, "-P", tmp_path / "learn.py", "learn", built, folder, "--minutes", str(minutes), *options]
        environment = {**os.environ, "OPENSEARCH_URL": opensearch_engine.url, "BACKBONE": small, "STEPS": str(steps)}
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    return start


def read_until(process, text):
    """Read lines until one holds the text; all lines so far."""
    lines = []
    for line in process.stdout:
        lines.append(line)
        if text in line:
            return lines
    raise AssertionError("".join(lines))


@pytest.mark.nightly
@pytest.mark.parametrize("stage", ["Training fectek", "stage: Indexing", "Choosing", "Timing"])
def test_a_run_that_was_killed_goes_on(opensearch_engine, built, start, stage):
    with start() as process:
        read_until(process, stage)
        process.send_signal(signal.SIGKILL)
    with start() as process:
        said = process.stdout.read()
    assert process.returncode == 0, said
    home = Path(os.environ["XDG_STATE_HOME"]) / "termweave" / "learned" / built  # that of the process
    learned = json.loads(next(home.glob("*/result.json")).read_text())
    assert learned["confirmed"]
    assert len(listing.list_generations(opensearch_engine, built)) == 2  # the live one, and one trial


@pytest.mark.slow
def test_after_ctrl_c_the_best_so_far_can_be_built(opensearch_engine, built, start):
    with start(steps=5000) as process:
        read_until(process, "stage: fectek: Training")
        process.send_signal(signal.SIGINT)
        said = process.stdout.read()
    assert process.returncode == 130
    assert "The best so far on held-out questions: dtr (vectors alone" in said
    assert len(listing.list_generations(opensearch_engine, built)) == 1
    with start("--json", minutes=1) as process:
        said = process.stdout.read()
    learned = json.loads(said[said.index("{\n") :].rpartition("}")[0] + "}")
    assert "dense" in learned["used"]
    assert learned["generation"]


@pytest.mark.nightly
def test_the_benchmark_measures_before_and_after_and_draws_curves(opensearch_engine, folder, brief, tmp_path):
    script = Path(__file__).parents[2] / "benchmarks" / "learning.py"
    command = [sys.executable, script, "--data", folder.parent, "--work", tmp_path, "--sets", folder.name, "--minutes", "3"]
    curve, drawn = tmp_path / "curve.json", tmp_path / "curve.svg"
    environment = {**os.environ, "OPENSEARCH_URL": opensearch_engine.url}
    for more in ([], ["--curve", curve, "--sizes", "10"]):
        ended = subprocess.run([*command, *more], env=environment, capture_output=True, text=True, check=False, timeout=900)
        assert ended.returncode == 0, ended.stderr
        assert more or "| nDCG@10 | questions | before: hybrid | learned |" in ended.stdout
    opensearch_engine.request("DELETE", f"/learn-{folder.name}*", params={"expand_wildcards": "all"})
    assert [(point["gain"], point["confirmed"]) for point in json.loads(curve.read_text())["points"]] == 3 * [(0, False)]
    subprocess.run([sys.executable, script, "--draw", curve, drawn], check=True)
    assert drawn.read_text().startswith("<?xml")


def test_questions_that_cannot_be_learned_from_change_nothing(opensearch_engine, unchanged, folder, tmp_path):
    german = [(f"wo kann ich das {word} und die {n} für mich finden", word) for word in PAIRS for n in range(4)]
    with pytest.raises(InputError, match=r"do not know the language of .*log\.tsv"):
        learn(opensearch_engine, LearningTask(unchanged, click_log(tmp_path / "log.tsv", german)))
    with pytest.raises(UsageError, match="no gain could be proved"):
        learn(opensearch_engine, LearningTask(unchanged))
    with pytest.raises(UsageError, match="no live generation"):
        learn(opensearch_engine, LearningTask(f"{unchanged}-other", str(folder)))
    assert len(listing.list_generations(opensearch_engine, unchanged)) == 1


def test_what_changed_meanwhile_is_measured_anew_and_not_replaced(opensearch_engine, built, folder, tmp_path):
    task = LearningTask(built, str(folder))
    begun = prepare(opensearch_engine, task)
    assert prepare(opensearch_engine, task).folder == begun.folder
    index = Index.open(opensearch_engine, built)
    for weights in ({"weights": 0.5, "dense": 0.5}, {"weights": 0.9, "dense": 0.1}):
        earlier = prepare(opensearch_engine, task)
        index.adopt(Profile("shop", weights, "adaptive", None))
        assert prepare(opensearch_engine, task).folder != earlier.folder
    earlier = prepare(opensearch_engine, task)
    more = write_lines(tmp_path / "more.jsonl", [{"_id": "new", "text": "Everything about the newcomer in general."}])
    update(opensearch_engine, corpora.open_source(more), built, BuildOptions())
    assert prepare(opensearch_engine, task).state != earlier.state
    learned = Learned(built, "", begun.folder, begun.state, {}, (), (), 0.4, 0.5, generation="trial", confirmed=True)
    with pytest.raises(UsageError, match=r"has changed since learning began.* earlier documents and profile"):
        promote(opensearch_engine, learned)


def test_the_corpus_trains_where_few_questions_are_judged(opensearch_engine, unchanged, monkeypatch, tmp_path):
    tried = []
    asked = ((FORMS[number % 6].format(word), word) for number, word in enumerate([*PAIRS, *list(PAIRS)[:8]]))
    task = LearningTask(unchanged, click_log(tmp_path / "few.tsv", asked), minutes=60)
    learning = stopped(opensearch_engine, task, monkeypatch, lambda _, candidates: tried.extend(candidates))
    assert {each.settings["pairs"] for each in tried} == {"corpus"}
    assert [len(learning.split.parts[part]) for part in ("train", "dev", "test")] == [0, 10, 14]
    assert "questions made of the documents train" in " ".join(learning.notes)


# -- With few questions chance does not choose


def test_what_is_in_use_stays_unless_another_search_is_better_by_more_than_chance(opensearch_engine, name, tmp_path):
    """Texts of one topic that differ in a code, and 24 questions: by the code alone (test), or by nothing that anybody could know (chance)."""
    words = 4 * "The weather in the mountains was cold and clear, the snow lay deep, and nobody had walked on the path for days. "
    codes = [f"{number * 7919 % 9973:04d}" for number in range(24)]
    # A model of vectors stops before the code.
    days = enumerate(zip(codes, ("rain", "wind", "fog", "sun") * 6, strict=True))
    documents = {code: f"Day {number} of {weather}. {words}Sheet {code}." for number, (code, weather) in days}
    test = [(f"q{number}", code) for number, code in enumerate(codes)]
    chance = [(f"c{number}", codes[place]) for number, place in enumerate(np.random.default_rng(3).integers(0, 24, 24))]
    asked = dict(test) | {f"c{number}": f"weather of day {number}: fog or sun?" for number in range(24)}
    beir_folder(tmp_path, documents, asked, test=test, chance=chance)
    build(opensearch_engine, corpora.open_source(tmp_path), name, BuildOptions())
    index = Index.open(opensearch_engine, name)
    by_chance, by_code = (corpora.open_dataset(f"{tmp_path}:{split}") for split in ("chance", "test"))

    def chosen(asked, former=None):
        profile = choice.choose(index, asked, lambda *_: None, tmp_path / "ltr", former).profile
        return dict(profile.weights), profile.fusion, profile.reranking

    assert chosen(by_chance) == ({"dense": 0.5, "weights": 0.5}, "adaptive", None)
    former = Profile("own", {"dense": 0.3, "weights": 0.7}, "min-max", None)
    assert chosen(by_chance, former) == ({"dense": 0.3, "weights": 0.7}, "min-max", None)
    assert chosen(by_code, Profile("vectors", {"dense": 1.0}, "adaptive", None))[0] != {"dense": 1.0}


def test_few_questions_are_held_to_the_test_that_confirms():
    before = np.random.default_rng(1).random(24)
    after = before + np.where(np.arange(24) < 14, 0.1, -0.06)  # a mean gain of .033: 2.1 standard errors, p .06
    assert beyond_noise(after - before)
    assert not choice._beyond_chance(after, before)
    assert choice._beyond_chance(np.tile(after, 5), np.tile(before, 5))
    assert choice._beyond_chance(before + 0.05, before)
    assert not choice._beyond_chance(before - 0.05, before)


def test_time_that_other_processes_had_does_not_count():
    seconds = stopwatch()
    time.sleep(0.3)  # as if the processors were given to others
    slept = seconds()
    begun = time.monotonic()
    while seconds() < 0.2:
        sum(range(1000))
    assert slept < 0.2
    assert time.monotonic() - begun >= 0.1


def test_what_the_time_was_too_short_for_is_said(tmp_path):
    rounds = TrainingRounds(tmp_path, tmp_path / "runs", 5, 0.0, None)
    tried = [rounds._run(Candidate(method, "dense", 0.1, 60, {}), "short", 60, 0.0) for method in ("dtr", "coder")]
    assert [each.dropped for each in tried] == ["no time is left"] * 2
    said = short_of_time(tried)
    assert said.startswith("The time was too short to train dtr and coder. The same command with about --minutes 10 ")
    assert short_of_time([TrainedCandidate(tried[0].candidate, 60, 12.0, dropped="it gains nothing")]) == ""
    made = Learned("docs", "mine", tmp_path, "", {"train": 60, "dev": 20, "test": 25}, tuple(tried), (), 0.5, 0.5)
    assert "More judged questions help most" in why_missed(made)[1]
    assert why_missed(replace(made, short_of_time=said))[1] == said  # nobody is told to judge more where nothing was trained
    built = replace(made, generation="docs-2", after=0.4, short_of_time=said)
    assert why_missed(built)[1] == said
    assert why_missed(replace(built, after=0.6, needed=90))[1].endswith(said)
