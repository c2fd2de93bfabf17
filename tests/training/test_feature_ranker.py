"""`train ltr`: trained on what an index finds, served as a reranker, explained, tuned, and refused where it does not fit."""

import csv
import dataclasses
import json
import os
import random
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import termweave as tw
from termweave import corpora
from termweave.cli import run
from termweave.corpora.index.ubi_indices import UbiLog
from termweave.errors import ModelError, UsageError
from termweave.evaluation.tuning import tune as tuning
from termweave.indexer import BuildOptions, build
from termweave.records import Encoding
from termweave.rerank import decision_trees
from termweave.rerank.feature_ranker import open_feature_ranker
from termweave.search.results import feature_log
from termweave.search.results.feature_log import CandidateFeatures
from termweave.search.retrieval.candidates import Candidates
from termweave.training import feature_ranker, judged_candidates
from termweave.training.methods.ltr import Ltr
from tests.beir_folder import beir_folder
from tests.same_ranking import same_ranking
from tests.search.conftest import index_of
from tests.training.conftest import set_options

pytest.importorskip("lightgbm")

TOPICS = [f"{first}{last}" for first in ("tim", "jas", "soc", "par", "cac") for last in ("er", "on", "ket", "ide", "um", "ola")]

QUERIES = {topic: f"{topic} module" for topic in TOPICS}


@pytest.fixture(scope="module")
def texts():
    """Ten texts on each of thirty topics that differ in votes alone, and judgements: the two with most votes are relevant."""
    documents, rows, draw = {}, [], random.Random(0)
    for topic in TOPICS:
        votes = draw.sample(range(1000), 10)
        for number, count in enumerate(votes):
            text = f"The {topic} module, part {number}."
            documents[f"{topic}-{number}"] = {"text": text, "votes": count, "kind": draw.choice(["old", "new"])}
            rows.append((topic, f"{topic}-{number}", int(count in sorted(votes)[-2:])))
    return documents, rows


@pytest.fixture(scope="module")
def folder(texts, tmp_path_factory):
    documents, rows = texts
    return beir_folder(tmp_path_factory.mktemp("votes"), documents, QUERIES, train=rows, test=rows)


@pytest.fixture
def otherwise_judged(texts, tmp_path):
    """A function: the same texts and questions, and more, with other judgements to train on."""
    return lambda rows, **more: beir_folder(tmp_path, texts[0], QUERIES | more, train=rows)


@pytest.fixture
def gathered(index):
    """A function: the candidates of a data set, and the settings of their training."""

    def gather(dataset, mode=None, **given):
        settings = Ltr().settings({"candidates_from": f"index:{index.name}", **given})
        chosen = index.mode(mode) if mode else index.choose(None, "none")[0]
        found = judged_candidates.gather(index, corpora.open_dataset(dataset), chosen, settings, lambda *_: None)
        return found, settings

    return gather


def train(folder, index, out, *sets, more=()):
    """`train ltr`: its exit status."""
    words = set_options(f"candidates_from=index:{index}", *sets)
    return run(["train", "ltr", str(folder), "--out", str(out), *words, *more])


@pytest.fixture(scope="module")
def index(opensearch_engine, texts):
    """The index of these texts, which no test changes, on the server that commands use."""
    lines = [{"_id": key, **fields} for key, fields in texts[0].items()]
    with pytest.MonkeyPatch.context() as patch, index_of(opensearch_engine, lines) as index:
        patch.setenv("OPENSEARCH_URL", opensearch_engine.url)
        yield index


@pytest.fixture(scope="module")
def model(folder, index, tmp_path_factory):
    """The folder of a trained model, by the command line."""
    out = tmp_path_factory.mktemp("models") / "by-votes"
    assert train(folder, index.name, out, "steps=60", more=["--quiet"]) == 0
    return out


def test_metadata_decide_and_the_explanation_sums(index, texts, model):
    figures = json.loads((model / "termweave.json").read_text())["metrics"]["train"]
    assert figures["start"] < 0.6
    assert figures["dev"] > 0.9
    assert "These questions chose the best of 6 numbers of trees" in (model / "README.md").read_text()
    hits = index.search("socket module", rerank=f"ltr@{model}", k=10, explain=True)
    votes = [texts[0][hit.id]["votes"] for hit in hits if hit.id.startswith("socket")]
    assert set(votes[:2]) <= set(sorted(votes, reverse=True)[:3])  # trees split between the votes that they have seen
    for hit in hits:
        (part,) = (part for part in hit.explanation["parts"] if part["name"].startswith("ltr@"))
        assert part["base"] + sum(each["share"] for each in part["features"]) == pytest.approx(part["share"], abs=1e-9)
        assert sum(each["share"] for each in hit.explanation["parts"]) == pytest.approx(hit.score, abs=1e-9)
    assert index.explain("socket module", hits[3].id, rerank=f"ltr@{model}").score == pytest.approx(hits[3].score)


def test_tuning_adopts_it_and_every_search_uses_it(index, folder, model, capsys):
    assert run(["tune", index.name, f"{folder}:test", "--rerank", f"ltr@{model}", "--json"]) == 0
    tuned = json.loads(capsys.readouterr().out)
    assert tuned["adopted"]
    stored, trained = tuned["profile"]["ranker"], open_feature_ranker(str(model), "").info
    assert (stored["kind"], stored["model"], stored["hash"], stored["candidates"]) == ("ltr", "by-votes", trained.hash, 100)
    assert run(["tune", index.name, f"{folder}:train", "--rerank", f"ltr@{model}"]) == 1
    known = f"was trained on these judgements ({folder.name}:train): its gain here proves nothing."
    assert known in " ".join(capsys.readouterr().err.split())
    opened = tw.connect(index.engine.url).index(index.name)
    in_use = tuning.tune(opened, corpora.open_dataset(f"{folder}:train"))
    assert any(note.endswith(known) for note in in_use.notes)
    for split, said in (("train", True), ("test", False)):
        evaluate = ["evaluate", index.name, f"{folder}:{split}", "--mode", "lexical", "--rerank", f"ltr@{model}", "--json"]
        assert run(evaluate) == 0
        assert (f"ltr@{model} {known}" in json.loads(capsys.readouterr().out)["notes"]) == said
    reranked = index.search("parum module", rerank=f"ltr@{model}")
    assert [hit.id for hit in opened.search("parum module")] == [hit.id for hit in reranked]
    assert run(["profiles", index.name, "--drop", "tuned", "--quiet"]) == 0


def test_texts_of_an_entry_are_features_in_the_same_order_in_each_process():
    texts = [f"genre {letter}" for letter in "qwertyuiopasdfghjklzxcvbnm"]
    metadata = {"a": {"genre": texts}, "b": {"genre": ["genre x"]}}
    found = [Candidates(Encoding("q"), {}, {}, metadata=metadata)]
    chosen = judged_candidates._values(found, {"genre": "keyword", "votes": "long"})
    assert chosen == {"genre": ["genre x", *sorted(set(texts) - {"genre x"})[:19]]}


def test_a_question_that_finds_nothing_has_no_candidates(otherwise_judged, gathered, texts, tmp_path):
    other = otherwise_judged([*texts[1], ("nothing", f"{TOPICS[0]}-1")], nothing="zzyzx")
    judged, settings = gathered(f"{other}:train", mode="lexical")
    at = judged.questions.index("nothing")
    assert (len(judged.documents[at]), len(judged.rows[at])) == (0, 0)
    assert len(feature_ranker.cross_validate(judged, settings).values) == len(TOPICS) + 1
    judged.write(tmp_path / "features.csv")
    assert "nothing" not in (tmp_path / "features.csv").read_text()


def log_of(folder, clicked, queries=tuple(f"{topic} module" for topic in TOPICS), time="2025-03-03T00:00:00Z"):
    """A log in which each query showed the ten documents of its topic in an order by chance, and those of `clicked` were clicked."""
    draw, searches, events = random.Random(5), [], []
    for number, query in enumerate(queries):
        shown = [f"{query.split()[0].lower()}-{at}" for at in range(10)]
        draw.shuffle(shown)
        name = f"s{number}"
        searches.append({"query_id": name, "user_query": query, "query_response_hit_ids": shown, "timestamp": time})
        click = {"query_id": name, "action_name": "click", "timestamp": time}
        chosen = [document for document in shown if document in clicked]
        events += [{**click, "event_attributes": {"object": {"object_id": document}}} for document in chosen]
    folder.mkdir()
    for name, records in (("ubi_queries", searches), ("ubi_events", events)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return f"ubi:{folder}"


def test_clicks_of_other_queries_teach_and_serve(index, folder, texts, tmp_path, capsys):
    """Other queries clicked on what is relevant: the ranker learns it without votes, and the table in its folder serves searches."""
    best_by_votes = {document for _, document, grade in texts[1] if grade}
    clicks = log_of(tmp_path / "log", best_by_votes, [f"{topic} manual {at}" for topic in TOPICS for at in range(4)])
    out = tmp_path / "by-clicks"
    assert train(folder, index.name, out, "metadata=none", "steps=60", f"clicks={clicks}", more=["--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["start"] < 0.6
    assert report["dev"] > 0.9
    hits = index.search("socket module", rerank=f"ltr@{out}", k=2, explain=True)
    assert {hit.id for hit in hits} <= best_by_votes
    (part,) = (part for part in hits[0].explanation["parts"] if part["name"].startswith("ltr@"))
    assert next(each for each in part["features"] if each["feature"] == "clicks")["value"] > 2
    elsewhere = log_of(tmp_path / "elsewhere", {"else-1"}, ["else x"])
    assert train(folder, index.name, tmp_path / "none", "metadata=none", f"clicks={elsewhere}") == 1
    assert "showed none of the documents" in capsys.readouterr().err
    # A log may judge a ranker only if it begins after the one that the ranker knows.
    early = log_of(tmp_path / "early", best_by_votes)
    late = log_of(tmp_path / "late", best_by_votes, time="2025-03-04T00:00:00Z")
    for verb in ("evaluate", "tune"):
        assert run([verb, index.name, early, "--rerank", f"ltr@{out}", "--quiet"]) == 1
        assert "does not begin after" in capsys.readouterr().err
    assert run(["evaluate", index.name, late, "--rerank", f"ltr@{out}", "--quiet"]) == 0
    capsys.readouterr()
    (out / "rates.json").write_text("{}")
    open_feature_ranker.cache_clear()
    with pytest.raises(ModelError, match="was altered"):
        index.search("timer", rerank=f"ltr@{out}")


def test_clicks_of_a_question_do_not_reach_its_own_features(otherwise_judged, gathered, tmp_path):
    """Judgements by chance, and a log whose clicks are these judgements: the clicks gain nothing."""
    draw = random.Random(3)
    every = [(topic, f"{topic}-{number}") for topic in TOPICS for number in range(10)]
    relevant = {document for _, document in every if draw.random() < 0.3}
    other = otherwise_judged([(topic, document, int(document in relevant)) for topic, document in every])
    queries = [f"{topic.upper()}  module" for topic in TOPICS] * 3
    clicks = log_of(tmp_path / "log", relevant, queries)
    judged, settings = gathered(f"{other}:train", steps=40, clicks=clicks)
    gain = feature_ranker.cross_validate(judged, settings).values - judged.figures()
    assert gain.mean() < 3 * gain.std() / len(gain) ** 0.5
    # The fold that a model is measured on counts in no feature of the questions that train it either.
    folds = judged.folds(0)
    fold_of = dict(zip(judged.questions, folds, strict=True))
    silent = log_of(tmp_path / "silent", {each for each in relevant if fold_of[each.split("-")[0]] != 0}, queries)
    without = dataclasses.replace(judged, behaviour=UbiLog(silent).behaviour)
    for seen, unseen in zip(judged.with_rates(folds, 0).rows, without.with_rates(folds, 0).rows, strict=True):
        np.testing.assert_array_equal(seen, unseen)
    column = judged.features.index("clicks")
    others = without.with_rates(folds).rows
    assert any((one[:, column] != other[:, column]).any() for one, other in zip(judged.rows, others, strict=True))
    # Without its own fold a relevant document has the rate of one that nobody was shown. Trees must not learn that this is best.
    alone = dataclasses.replace(judged, features=("clicks",), rows=tuple(rows[:, [column]] for rows in judged.rows))
    trees = decision_trees.read(feature_ranker.fit(alone, settings, 20))
    scores = trees.scores(np.array([[0.2], [0.9], [1.0], [1.1], [5.0]]))
    assert (np.diff(scores) >= 0).all()
    assert scores[0] < scores[-1]


def test_letor_and_trees_of_others(index, folder, model, tmp_path, capsys):
    out, theirs = tmp_path / "parts", tmp_path / "theirs"
    assert train(folder, index.name, out, "steps=20", "outputs=trees,letor", more=["--quiet"]) == 0
    xgboost, datasets = pytest.importorskip("xgboost"), pytest.importorskip("sklearn.datasets")
    features = sum(line.startswith("#") for line in (out / "letor.txt").read_text().splitlines())
    rows, grades, groups = datasets.load_svmlight_file(str(out / "letor.txt"), n_features=features, query_id=True)
    parameters, data = {"objective": "rank:ndcg", "max_depth": 4, "nthread": 1}, xgboost.DMatrix(rows, grades, qid=groups)
    xgboost.train(parameters, data, num_boost_round=20).save_model(tmp_path / "theirs.json")
    same = f"start={tmp_path / 'theirs.json'}"
    capsys.readouterr()
    assert train(folder, index.name, theirs, same, more=["--json"]) == 0
    assert json.loads(capsys.readouterr().out)["dev"] > 0.9  # measured on what it was trained on
    hits = index.search("cacola module", rerank=f"ltr@{theirs}", k=2)
    assert all(hit.id.startswith("cacola") for hit in hits)
    assert train(folder, index.name, tmp_path / "other", same, "metadata=none") == 1
    assert "and this search has" in capsys.readouterr().err


def test_training_rewrites_as_a_search_with_the_profile_in_use(index, folder, tmp_path):
    pins, out = tmp_path / "pins.csv", tmp_path / "out"
    pins.write_text("query,document,action\nsocket module,socket-3,hide\n")
    saved = ["profiles", index.name, "--save", "pinned", "--mode", "hybrid", "--rewrite", f"pins@{pins}"]
    assert run([*saved, "--use", "pinned", "--quiet"]) == 0
    try:
        assert train(folder, index.name, out, "steps=5", "outputs=trees,csv") == 0
    finally:
        assert run(["profiles", index.name, "--drop", "pinned", "--quiet"]) == 0
    candidates = {document for question, document in table_of(out / "features.csv") if question == "socket"}
    assert {f"socket-{number}" for number in range(10)} - candidates == {"socket-3"}


def table_of(path):
    with path.open(newline="") as file:
        return {(row.pop("query"), row.pop("document")): row for row in csv.DictReader(file)}


def test_a_search_logs_the_features_that_training_reads(index, folder, model, tmp_path, capsys):
    out, log = tmp_path / "out", tmp_path / "log.csv"
    assert train(folder, index.name, out, "steps=5", "outputs=trees,csv") == 0
    trained = table_of(out / "features.csv")
    asked = ["search", index.name, "--queries", f"{folder}:train", "--run", str(tmp_path / "run.trec")]
    assert run([*asked, "--rerank", f"ltr@{model}", "--log-features", str(log)]) == 0
    assert f"The features of the candidates are in {log}." in capsys.readouterr().err
    logged = table_of(log)
    assert list(logged) == list(trained)
    assert {row.pop("label") for row in logged.values()} == {"0"}
    assert {row.pop("label") for row in trained.values()} == {"0", "1"}
    for key, row in trained.items():
        assert row.keys() == logged[key].keys()
        read, written = ([float(value or "nan") for value in each.values()] for each in (row, logged[key]))
        assert read == pytest.approx(written, rel=1e-4, abs=1e-6, nan_ok=True)
    ranked = (tmp_path / "run.trec").read_text()
    assert run([*asked, "--rerank", f"ltr@{model}"]) == 0
    assert (tmp_path / "run.trec").read_text() == ranked

    # The explanation of a hit and the log agree; the score is that of the trees on these features.
    hits = index.search("socket\nmodule", rerank=f"ltr@{model}", k=3, explain=True, log_features=str(log))
    rows, trees = table_of(log), open_feature_ranker(str(model), "").trees
    assert {query for query, _ in rows} == {"socket module"}
    for hit in hits:
        written = [float(rows["socket module", hit.id][name] or "nan") for name in trees.features]
        assert trees.scores(np.array([written]))[0] == pytest.approx(hit.score)
        (part,) = (part for part in hit.explanation["parts"] if part["name"].startswith("ltr@"))
        for each in part["features"]:
            assert float(rows["socket module", hit.id][each["feature"]]) == pytest.approx(each["value"], rel=1e-6)


def test_a_log_changes_no_score_and_is_read_by_others(index, tmp_path):
    datasets = pytest.importorskip("sklearn.datasets")
    log, table, given = tmp_path / "log.txt", tmp_path / "log.csv", {"rerank": "rnn>boost@votes:0.2"}
    same_ranking(*(index.search("socket module", **given, k=300, **logged) for logged in ({"log_features": str(log)}, {})))
    queries = {"q1": "socket module", "q2": "", "q3": "timer part"}
    run_of = index.run(queries, **given, log_features=str(table))
    for query, scores in index.run(queries, **given).scores.items():
        same_ranking(run_of.scores[query], scores)
    rows, labels, groups = datasets.load_svmlight_file(str(log), query_id=True)
    logged = table_of(table)
    names = list(next(iter(logged.values())))[1:]
    assert {"lexical.score", "weights.rank", "dense.value", "cosine", "jaccard", "metadata.votes"} <= set(names)
    assert ({query for query, _ in logged}, set(labels), set(groups)) == ({"q1", "q3"}, {0.0}, {1})
    first = [row for (query, _), row in logged.items() if query == "q1"]
    column = names.index("metadata.votes")
    assert rows[:, column].toarray()[:, 0].tolist() == [float(row["metadata.votes"]) for row in first]
    assert [int(row["rank"]) for row in first] == list(range(1, len(first) + 1))
    assert index.search("", like=["socket-1"], log_features=str(table))
    assert {query for query, _ in table_of(table)} == {"socket-1"}


def test_a_log_that_cannot_be_written_is_said(index, folder, tmp_path, capsys):
    nowhere = str(tmp_path / "no" / "log.csv")
    for words, log, said in (
        (["socket"], "log.json", "does not name a format of features"),
        (["--queries", f"{folder}:train", "--run", str(tmp_path / "out.trec")], nowhere, "it does not exist"),
        (["--queries", "q", "--run", "./f.txt"], "f.txt", "--log-features needs a file of its own"),
        (["socket", "--show-query"], "log.csv", "--log-features, and what orders"),
        (["socket", "--server-fusion"], "log.csv", "--log-features needs the scores of each signal"),
    ):
        assert run(["search", index.name, *words, "--log-features", log]) == 2
        assert said in capsys.readouterr().err
    (tmp_path / "folder.csv").mkdir()
    for given, said in ((3, "must be a text, not 3"), (nowhere, "No such file"), (tmp_path / "folder.csv", "is a folder")):
        with pytest.raises(UsageError, match=said):
            index.search("socket", log_features=given)
    (tmp_path / "folder.csv").rmdir()
    (tmp_path / "kept.csv").write_text("before")
    with suppress(RuntimeError), feature_log.created(tmp_path / "kept.csv", ["score"]) as log:
        log.add("q", CandidateFeatures(["d"], np.array([[1.0]])))
        raise RuntimeError
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("kept.csv", "before")]


def test_mistakes_are_said_in_a_sentence(index, folder, otherwise_judged, model, tmp_path, capsys, opensearch_engine):
    few = otherwise_judged([("timer", "timer-1")])
    for data, sets, more, words in (
        (folder, ["candidates_from="], (), "no index is named"),
        (folder, ["candidates_from=index:not-there"], (), "index"),
        (folder, [], ["--plan"], "has no plan"),
        (folder, ["metadata=price"], (), "no typed metadata entry 'price'"),
        (folder, ["clicks=clicks.tsv"], (), "does not say which documents were shown"),
        (folder, [f"clicks=ubi:{folder}"], (), "no ubi_queries"),
        (folder, [f"start={folder / 'corpus.jsonl'}"], (), "cannot be used"),
        (few, [], (), "needs at least 20"),
    ):
        assert train(data, index.name, tmp_path / "out", *sets, more=more) in {1, 2}
        assert words in capsys.readouterr().err
        assert not (tmp_path / "out").exists()
    for given, error, words in (
        ({"rerank": "ltr"}, UsageError, "no profile in use names one"),
        ({"rerank": f"ltr@{tmp_path / 'nothing'}"}, UsageError, "no model folder"),
        ({"rerank": f"ltr@{model}", "server_fusion": True}, UsageError, "there is one list"),
        ({"rerank": "ltr@shipped"}, ModelError, "not a feature ranker"),
    ):
        with pytest.raises(error, match=words):
            index.search("timer", **given)
    with pytest.raises(ModelError, match="no model of that name"):
        open_feature_ranker("by-votes", "0" * 16)
    other = f"{index.name}-other"
    plain = tmp_path / "plain.jsonl"
    plain.write_text("".join(f'{{"_id": "{number}", "text": "timer module {number}"}}\n' for number in range(5)))
    build(opensearch_engine, corpora.open_source(plain), other, BuildOptions())
    with pytest.raises(UsageError, match=r"reads the metadata entry '(kind|votes)'"):
        tw.connect(opensearch_engine.url).index(other).search("timer", rerank=f"ltr@{model}")


@pytest.mark.nightly
def test_the_benchmark_compares_with_and_without_metadata(opensearch_engine, folder):
    script = Path(__file__).parents[2] / "benchmarks" / "feature_ranker.py"
    command = [sys.executable, script, folder, "--seeds", "1", "--parts"]
    environment = {**os.environ, "OPENSEARCH_URL": opensearch_engine.url}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    opensearch_engine.request("DELETE", f"/ltr-{folder.name}*", params={"expand_wildcards": "all"})
    assert ended.returncode == 0, ended.stderr
    assert "| without metadata.votes |" in ended.stdout
