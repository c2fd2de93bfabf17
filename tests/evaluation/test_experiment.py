"""A whole evaluation on a real server: one pass, honest baselines, files that agree with the table."""

import io
import json
import re
import sys
from dataclasses import replace
from itertools import product

import numpy as np
import orjson
import pytest
from rich.console import Console

import termweave as tw
from termweave import corpora
from termweave.catalog.profiles import Profile
from termweave.cli import run
from termweave.errors import InputError, UsageError
from termweave.evaluation import evaluate, gates, html_page, index_comparison, runs, systems
from termweave.evaluation import table as report
from termweave.evaluation.experiment import Experiment, Row, _beaten_by_one_signal, runs_of
from termweave.evaluation.measures import LEADING, MEASURES
from termweave.indexer import BuildOptions, build
from termweave.indexer.options import Window
from termweave.records import Query
from termweave.rerank.rerankers import Reranker, Reranking, RerankResult
from termweave.search import Index
from tests.evaluation.conftest import write_set

SUBJECTS = ("timer", "json", "thread", "file", "socket", "date", "random", "queue")
PARTS = [(subject, number) for subject in SUBJECTS for number in range(5)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Forty documents, eight judged queries, one of them with nothing relevant."""
    documents = {f"{of}-{part}": f"The {of} module, part {part}: {of} functions of chapter {part}" for of, part in PARTS}
    queries = {f"q-{subject}": f"chapter {number % 5} of {subject}" for number, subject in enumerate(SUBJECTS)}
    qrels = {f"q-{subject}": {f"{subject}-{number % 5}": int(subject != "queue")} for number, subject in enumerate(SUBJECTS)}
    qrels["q-timer"]["gone"] = 1
    return write_set(tmp_path_factory.mktemp("set"), documents, queries | {"q-unjudged": "nobody judged this"}, qrels)


@pytest.fixture(scope="module")
def index(shared_index):
    return shared_index


@pytest.fixture(scope="module")
def found(index, folder):
    return evaluate(index, corpora.open_dataset(folder))


def test_queries_are_encoded_once_and_the_engine_is_asked_once_a_signal(index, folder, monkeypatch):
    asked, encoded = [], []
    request, encode = index.engine.request, index.encode

    def counted(method, path, **options):
        if path.endswith("_msearch"):
            asked.extend(line for line in options["body"] if "allow_partial_search_results" not in line)
        return request(method, path, **options)

    monkeypatch.setattr(index.engine, "request", counted)
    monkeypatch.setattr(index, "encode", lambda queries, *generation: encoded.extend(queries) or encode(queries, *generation))
    table = systems.grid(["lexical", "weights", "dense", "hybrid", "lexical:1,dense:2"], ["none", "rnn"], index)
    found = evaluate(index, corpora.open_dataset(folder), table)
    assert len(found.rows) == 10
    assert sorted(encoded) == sorted(found.texts.values())
    assert len(asked) == 3 * len(found.queries)


def test_runs_keep_the_order_of_equal_hits_for_those_who_sort_by_score(index, found):
    texts = found.texts
    tied = index.run(texts, mode="lexical", k=100)
    for query, text in texts.items():
        hits = [hit.id for hit in index.search(text, mode="lexical", k=100)]
        for scores in (tied.scores[query], found.runs["BM25"].scores[query]):
            by_score = sorted(scores, key=lambda document, scores=scores: (scores[document], document), reverse=True)
            assert list(scores) == hits == by_score


class PassageCounts(Reranker):
    """Ranks by the words of the passage that stands for a document, in its text, its vector, or a field of its own."""

    candidates, needs = 60, frozenset()

    def __init__(self, kind):
        self.kind, self.name, self.needs = kind, f"counts-{kind}", frozenset({kind})

    def rerank(self, request):
        if self.kind == "vectors":
            return RerankResult(request.vectors[:, 0].tolist())
        held = request.texts or [" ".join(each[self.kind]) for each in request.metadata]
        return RerankResult([float(sum(map(ord, each))) for each in held])


def test_passages_are_reranked_as_in_a_search_whatever_else_is_measured(opensearch_engine, name, tmp_path):
    drawn = np.random.default_rng(5)
    texts = [" ".join(drawn.choice(SUBJECTS, 400)) for _ in range(12)]
    path = tmp_path / "long.jsonl"
    path.write_bytes(b"\n".join(orjson.dumps({"_id": f"d{i}", "text": text}) for i, text in enumerate(texts)))
    build(opensearch_engine, corpora.open_source(path), name, BuildOptions(passages=Window(30, 20)))
    index = tw.connect(opensearch_engine.url).index(name)
    queries = [Query("a", "socket timer json"), Query("b", "random date"), Query("c", "queue thread file")]
    for mode, kind in product(("dense", "weights,lexical"), ("texts", "vectors", "words.text")):
        reranking = Reranking((PassageCounts(kind),))
        both = [systems.System("one", mode, reranking), systems.System("other", "lexical,weights,dense")]
        measured, _ = runs_of(index, queries, both, lambda *_: None, 100)
        searched = index.run({each.id: each.text for each in queries}, mode=mode, rerank=reranking, k=12)
        orders = [{query: list(each) for query, each in run.scores.items()} for run in (measured["one"], searched)]
        assert orders[0] == orders[1], (mode, kind)


def test_the_table_is_the_mean_of_the_queries_and_says_what_counts_nothing(found, folder):
    assert [row.system for row in found.rows] == ["BM25", "weights", "dense", "hybrid", "hybrid+rNN"]
    for row in found.rows:
        assert row.values == pytest.approx({name: float(found.values[row.system][name].mean()) for name in MEASURES})
        assert row.wins + row.ties + row.losses == len(found.queries) == 8
        assert bool(row.p) == (row.system != "BM25")
    assert found.rows[0].values["recall@100"] == pytest.approx((6 + 0.5) / 8)
    assert any("1 of 9 judged documents is not in the index" in note for note in found.notes)
    assert "1 query of the set has no judgement in 'test' and is left out." in found.notes
    assert any("1 of 8 queries has no relevant document" in note for note in found.notes)


def test_a_saved_run_as_baseline_gives_the_values_it_was_saved_with(index, found, folder, tmp_path):
    saved = tmp_path / "dense.trec"
    runs.write(found.runs["dense"], saved)
    again = evaluate(index, corpora.open_dataset(folder), systems.grid(["weights"], [], index), baseline=str(saved))
    assert again.baseline == "dense"
    assert [(row.system, row.mode) for row in again.rows] == [("dense", "run"), ("weights", "weights")]
    for name in MEASURES:
        np.testing.assert_allclose(again.values["dense"][name], found.values["dense"][name])


def test_a_system_that_finds_nothing_is_a_row_of_zeros_and_another_set_is_refused(index, folder, tmp_path):
    other = write_set(tmp_path / "set", {"json-1": "x"}, {"q": "?!"}, {"q": {"json-1": 1}})
    (row,) = evaluate(index, corpora.open_dataset(other), systems.grid(["lexical"], [], index)).rows
    assert (set(row.values.values()), row.judged) == ({0.0}, 0.0)
    (other / "qrels" / "test.tsv").write_text("q\tsomewhere-else\t1\n")
    with pytest.raises(InputError, match="Not one judged document"):
        evaluate(index, corpora.open_dataset(other))
    (other / "qrels" / "test.tsv").write_text("json-1\tq\t1\njson-2\tq\t1\n")  # the columns are the wrong way round
    with pytest.raises(InputError, match=r"no judged queries .* 2 judgements .* left out: on 2 queries that .* lacks") as refused:
        evaluate(index, corpora.open_dataset(other))
    assert refused.value.hint.endswith("under the ids that they have there.")  # no other split is named


def test_gates_are_held_against_the_table_before_a_query_is_encoded(index, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(index, "encode", lambda *_: pytest.fail("a query was encoded"))
    dataset = corpora.open_dataset(folder)
    (tmp_path / "other.trec").write_text("q-other Q0 timer-0 1 1.0 x\n")
    of_others = f"nDCG@10 within .01 of {tmp_path / 'other.trec'}"
    for text, why in (("foo:nDCG@10>=.1", "no system 'foo'"), (of_others, "8 of 8 queries")):
        with pytest.raises(UsageError, match=why):
            evaluate(index, dataset, required=[gates.parse(text)])


def test_queries_that_lose_terms_are_counted(index, tmp_path):
    long = " ".join(f"word{number}" for number in range(index.engine.capabilities.max_clause_count + 1))
    queries = {"q-0": "json", "q-1": f"json {long}", "q-2": f"timer {long}"}
    folder = write_set(tmp_path / "set", {"json-1": "x"}, queries, {query: {"json-1": 1} for query in queries})
    notes = evaluate(index, corpora.open_dataset(folder), systems.grid(["lexical", "dense"], [], index)).notes
    (note,) = (each for each in notes if "lost terms" in each)
    assert note.startswith("2 queries lost terms in BM25:")


def test_markdown_has_the_p_values_of_the_terminal(found):
    text = report.markdown(found)
    for row in found.rows:
        (line,) = re.findall(rf"^\| {re.escape(row.system)} \|.*", text, re.MULTILINE)
        told = re.findall(r"\(([^)]*)\)", line)
        assert told == [f"{row.p[name]:.3f}".removeprefix("0") for name in MEASURES if name in row.p]
    assert "In brackets: p against BM25" in text


def shown(found, width):
    console = Console(width=width, file=io.StringIO())
    console.print(report.table(found))
    return console.file.getvalue()


def test_a_narrow_terminal_folds_names_cuts_no_number_and_a_table_of_one_row_compares_nothing(found):
    rows = [replace(row, system=f"{row.system} with a name that is far too long" if row.p else row.system) for row in found.rows]
    table = shown(replace(found, rows=tuple(rows)), 72)
    assert "…" not in table
    assert all(each in table for each in ("BM25", *(f"{row.values[MEASURES[0]]:.4f}" for row in rows)))
    alone = replace(found, rows=found.rows[:1])
    for text in (shown(alone, 100), report.markdown(alone), "\n".join(report.legend(alone))):
        assert "judged" in text
        assert not re.search(r"▲|\+/=/-|\bp\b", text)


def test_every_value_is_in_the_file_and_no_formula(found, tmp_path):
    texts = {**found.texts, found.queries[0]: "=HYPERLINK(0)\t+1"}
    report.write_per_query(replace(found, texts=texts), tmp_path / "values.tsv")
    header, *lines = (line.split("\t") for line in (tmp_path / "values.tsv").read_text().splitlines())
    assert header == ["query", "system", *MEASURES, "judged@10", "text"]
    assert len(lines) == 8 * 5
    mean = np.mean([float(line[2]) for line in lines if line[1] == "hybrid"])
    assert mean == pytest.approx(next(row.values["nDCG@10"] for row in found.rows if row.system == "hybrid"), abs=1e-5)
    assert {line[-1] for line in lines if line[0] == found.queries[0]} == {"'=HYPERLINK(0) +1"}


def test_the_report_is_one_page_that_loads_nothing(index, found, folder):
    pytest.importorskip("matplotlib")
    timed = replace(found, latency=systems.latency(index, systems.grid(["hybrid"], ["none", "rnn"], index), ["json"]))
    text = html_page.html(timed, corpora.open_dataset(folder), about={"index": "<b>&"})
    assert text.count("<svg") == text.count("</svg>") == 3
    assert "&lt;b&gt;&amp;" in text
    assert not re.search(r"<script|<link|\bsrc=|@import", text)
    assert all(f"<td>{row.system}</td>" in text for row in found.rows)
    assert "better, same, worse: queries with" in text
    pointed = {*re.findall(r'href="([^"]*)"', text), *re.findall(r"url\(([^)]*)\)", text)}
    ids = [f"#{each}" for each in re.findall(r'\bid="([^"]*)"', text)]
    assert len(ids) == len(set(ids))  # the plots' own parts, each there once though three drawings share the page
    assert set() < pointed <= set(ids)


def test_without_matplotlib_the_report_is_refused_before_the_work(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert run(["evaluate", "docs", "demo", "--html", "x.html", "--url", "http://127.0.0.1:9"]) == 2
    assert "[report]'" in capsys.readouterr().err


def test_one_generation_is_measured_though_the_alias_moves(opensearch_engine, folder, tmp_path, monkeypatch, capsys, name):
    lexical = BuildOptions(weights="none", dense="none")
    build(opensearch_engine, corpora.open_source(folder), name, lexical)
    path = tmp_path / "after.jsonl"
    path.write_bytes(orjson.dumps({"_id": "after", "text": "chapter of nothing"}))
    candidates, calls = Index.candidates, []

    def moved(index, *arguments, **options):
        calls.append(index.generation)
        if len(calls) == 1:
            build(opensearch_engine, corpora.open_source(path), name, lexical)
        return candidates(index, *arguments, **options)

    monkeypatch.setattr(Index, "candidates", moved)
    assert run(["evaluate", name, str(folder), "--json", "--url", opensearch_engine.url]) == 0
    assert len(set(calls)) == 1
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert max(row["value"] for row in rows if row["measure"] == "nDCG@10") > 0.5  # the new generation holds nothing relevant


def test_what_a_figure_does_not_prove_is_said(index, folder, tmp_path, forget_profiles):
    forget_profiles(index)
    queries = (folder / "queries.jsonl").read_bytes().splitlines()
    for each in folder.iterdir():
        (tmp_path / each.name).symlink_to(each)
    (tmp_path / "queries.jsonl").unlink()
    wordless = orjson.dumps({"_id": "q-timer", "text": " "})
    (tmp_path / "queries.jsonl").write_bytes(b"\n".join([queries[-1], queries[-1], wordless, *queries[1:-1]]))
    dataset = corpora.open_dataset(tmp_path)
    learned = {"dataset": f"clicks.tsv and {dataset.name}:test", "learned": True}
    for name, fitted in (("mine", {"dataset": f"{dataset.name}:test"}), ("trained", learned)):
        index.adopt(Profile(name, {"weights": 0.5, "dense": 0.5}, "rrf", None, fitted))
    notes = evaluate(index, dataset, systems.grid(["mine", "dense"], ["none"], index)).notes
    assert "1 query without text, counted as 0: 'q-timer'." in notes
    assert "1 query of the set has no judgement in 'test' and is left out." in notes  # it is in the file twice
    assert any(note.startswith("The profile 'mine' was fitted on half of these queries") for note in notes)
    assert any(note.startswith(f"The index learned from these queries ({dataset.name}:test)") for note in notes)


def test_a_hybrid_that_loses_to_one_of_its_signals_is_said(index, forget_profiles):
    """The values are made up: 40 queries of which dense alone answers all, hybrid a half."""
    forget_profiles(index)
    rows = systems.default_systems(index)
    half = np.tile([0.0, 1.0], 20)
    values = {row.name: {LEADING: half} for row in rows}
    assert _beaten_by_one_signal(rows, values, index) == []
    values["dense"] = {LEADING: np.ones(40)}
    (remark,) = _beaten_by_one_signal(rows, values, index)
    assert "hybrid is below dense alone: nDCG@10 0.5000 against 1.0000 (p = 0.0002). Search with --mode dense" in remark
    index.adopt(Profile("mine", {"dense": 1.0}, "adaptive", None))  # a profile of one signal does not hide the signal
    assert _beaten_by_one_signal(systems.default_systems(index), {**values, "mine": {LEADING: half}}, index) == [remark]
    values["dense"] = {LEADING: np.append(half[:-2], [1.0, 1.0])}  # one query more may be chance
    assert _beaten_by_one_signal(rows, values, index) == []


def test_two_indices_are_compared_and_a_sentence_says_which_to_take(index, folder, capsys):
    other = f"{index.name}-blank"
    blank = [{"id": f"{subject}-{number}", "text": "nothing"} for subject, number in PARTS]
    tw.index(blank, other, connection=tw.connect(index.engine.url), signals=("lexical",))

    def evaluated(*words, status=0):
        assert run(["evaluate", *words, "--json", "--url", index.engine.url]) == status
        said = capsys.readouterr()
        return json.loads(said.out) if status == 0 else said.err

    ours = evaluated(index.name, str(folder), "--against", other)
    assert {(row["system"], row["mode"]) for row in ours["rows"]} == {(other, "run"), ("hybrid", "hybrid")}
    assert ours["notes"][-1].startswith(f"Take {index.name}: the difference is more than chance (nDCG@10 ")
    assert f"0.0000 of {other}, p = 0.0" in ours["notes"][-1]
    for measured, note in zip((index.name, other), ours["notes"][:2], strict=True):
        assert re.fullmatch(rf"A search of {measured} takes [\d.]+ ms \(median\), and the index [\d.]+ .B on disk\.", note)
    assert evaluated(other, str(folder), "--against", index.name)["notes"][-1].startswith(f"Take {index.name}: ")
    enriched = f"{index.name}-enriched"  # it has no generations, and a size nevertheless
    index.engine.request("PUT", f"/{enriched}", body={"settings": {"index.knn": True}})
    index.engine.request("PUT", f"/{enriched}/_doc/timer-0", params={"refresh": True}, body={"body": "nothing"})
    assert run(["enrich", enriched, "--text-field", "body", "--url", index.engine.url, "--quiet"]) == 0
    capsys.readouterr()
    notes = evaluated(index.name, str(folder), "--against", enriched)["notes"]
    assert re.match(rf"A search of {enriched} takes .*, and the index ", notes[1])
    assert f"{enriched}: 8 of 9 judged documents are not in the index and cannot be found." in notes
    refused = evaluated(index.name, str(folder), "--against", other, "--baseline", "dense", status=2)
    assert "both name what to compare with" in refused


def test_an_index_whose_hits_nobody_judged_is_not_called_worse_without_a_caveat():
    """A book holds what one of the two indices found."""
    films = Row("films", "run", "none", {LEADING: 0.2}, judged=0.25)
    begin = {0.001: "Take films: ", 0.5: "movies and films may differ by chance"}
    for share, p in ((0.0, 0.001), (0.2, 0.001), (0.2, 0.5)):
        rows = (films, Row("hybrid", "hybrid", "none", {LEADING: 0.1}, {LEADING: p}, judged=share))
        found = Experiment("set:test", ("q",), "films", rows, {})
        said = index_comparison.verdict(found, "movies", "hybrid")
        assert said.startswith(begin[p])
        assert ("Of the ten best hits of movies 0% are judged, of films 25%" in said) == (share == 0.0)
        assert "leave --mode and --rerank out" in index_comparison.verdict(found, "movies", "dense")
