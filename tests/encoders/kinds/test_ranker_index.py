"""From a folder with a cross-encoder to reranked hits on the real server, through the command line."""

import json
import uuid

import jsonschema
import pytest
import torch

import termweave as tw
from termweave.cli import run
from termweave.errors import UsageError
from termweave.search.ranking.ranker import CrossEncoderReranker

pytestmark = pytest.mark.engine

DOCUMENTS = {
    "cat": "The cat sat on the mat and purred.",
    "dog": "A dog barked at the cat of the postman.",
    "leaf": "Photosynthesis happens in the chloroplasts of plant cells.",
    "cell": "The mitochondrion is the powerhouse of the cell.",
    "city": "Zürich is a city in Switzerland, and so is Genève.",
    "empty": "",
}
QUERY = "the cat of the city"


@pytest.fixture(scope="module")
def server(opensearch_engine, tmp_path_factory):
    """The address of the server, an index of six documents, and the data set that it was made of."""
    root = tmp_path_factory.mktemp("beir")
    (root / "corpus.jsonl").write_text("".join(json.dumps({"_id": key, "text": text}) + "\n" for key, text in DOCUMENTS.items()))
    (root / "queries.jsonl").write_text(json.dumps({"_id": "q1", "text": QUERY}) + "\n")
    (root / "qrels").mkdir()
    (root / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\tcat\t1\n")
    name = f"tw-ranker-{uuid.uuid4().hex[:12]}"
    assert run(["index", str(root), name, "--url", opensearch_engine.url, "--quiet"]) == 0
    yield opensearch_engine.url, name, root
    run(["delete", name, "--yes", "--quiet", "--url", opensearch_engine.url])


@pytest.fixture
def answer(server, capsys):
    """A function: the JSON of a command, and what it wrote on standard error."""

    def call(verb, *arguments, status=0):
        url, name, _ = server
        assert run([verb, name, *arguments, "--url", url, "--json"]) == status
        out, err = capsys.readouterr()
        return json.loads(out) if out else None, err

    return call


def test_hits_are_in_the_order_of_the_mixture_and_explained(answer, ranked, schemas):
    path, reference = ranked()
    first = answer("search", QUERY, "-k", "6")[0]["hits"]
    result, _ = answer("search", QUERY, "-k", "6", "--rerank", str(path), "--explain")
    jsonschema.validate(result, json.loads((schemas / "search.1.json").read_text()))
    scores = {hit["id"]: hit["score"] for hit in first}
    assert len(scores) > 3
    ids = [key for key in scores if DOCUMENTS[key]]
    logits = dict(
        zip(ids, reference.predict([(QUERY, DOCUMENTS[key]) for key in ids], activation_fn=torch.nn.Identity()), strict=True)
    )
    low, high, bottom, top = min(logits.values()), max(logits.values()), min(scores.values()), max(scores.values())
    values = {key: bottom + (top - bottom) * (logits.get(key, low) - low) / (high - low) for key in scores}
    expected = {key: 0.5 * scores[key] + 0.5 * values[key] for key in scores}
    assert [hit["id"] for hit in result["hits"]] == sorted(expected, key=lambda key: -expected[key])
    for hit in result["hits"]:
        assert hit["score"] == pytest.approx(expected[hit["id"]], abs=1e-4)
        parts = hit["explanation"]["parts"]
        assert sum(part["share"] for part in parts) == pytest.approx(hit["score"])
        (part,) = [part for part in parts if part["name"] == f"ranker@{path}"]
        if hit["id"] in logits:
            assert part["logit"] == pytest.approx(logits[hit["id"]], abs=1e-4)
            assert part["weight"] == 0.5
        else:
            assert part["scored"] is False
    assert "cut_short" not in result


def test_explain(answer, ranked, schemas, server):
    path, _ = ranked()
    result, _ = answer("explain", QUERY, "cat", "--rerank", f"ranker@{path}")
    jsonschema.validate(result, json.loads((schemas / "explain.1.json").read_text()))
    url, name, _ = server
    hit = next(
        hit for hit in tw.connect(url).index(name).search(QUERY, rerank=CrossEncoderReranker(str(path))) if hit.id == "cat"
    )
    assert result["hit"]["score"] == pytest.approx(hit.score)


def test_a_budget_of_0_is_the_first_stage_and_says_so(answer, ranked, schemas):
    path, _ = ranked()
    first, _ = answer("search", QUERY)
    result, warnings = answer("search", QUERY, "--rerank", str(path), "--rerank-budget", "0ms")
    jsonschema.validate(result, json.loads((schemas / "search.1.json").read_text()))
    assert [hit["id"] for hit in result["hits"]] == [hit["id"] for hit in first["hits"]]
    count = len(first["hits"])
    assert result["cut_short"] == [{"name": f"ranker@{path}", "scored": 0, "candidates": count}]
    assert f"scored 0 of {count} documents in its time budget" in warnings
    result, warnings = answer("search", QUERY, "--rerank", str(path), "--rerank-budget", "60s")
    assert "cut_short" not in result
    assert not warnings


def test_chains(answer, ranked):
    path, _ = ranked()
    for chain in (f"rnn>ranker@{path}", f"ranker@{path}>rnn"):
        result, _ = answer("search", QUERY, "--rerank", chain, "--explain", "--rerank-budget", "30s")
        for hit in result["hits"]:
            names = [part["name"] for part in hit["explanation"]["parts"]]
            assert [name for name in names if name in {"rnn", f"ranker@{path}"}] == chain.split(">")
            assert sum(part["share"] for part in hit["explanation"]["parts"]) == pytest.approx(hit["score"])


def test_evaluate_lists_it_as_a_system(answer, ranked, server, tmp_path):
    path, _ = ranked()
    root = server[2]
    arguments = ("--mode", "hybrid", "--rerank", "none", "--rerank", f"ranker@{path}", "--save-run", str(tmp_path / "runs"))
    result, _ = answer("evaluate", str(root), *arguments, "--latency", "1")
    rows = {row["system"]: row["reranker"] for row in result["rows"]}
    assert rows[f"hybrid+ranker@{path.name}"] == f"ranker@{path}"
    assert (tmp_path / "runs" / f"hybrid+ranker@{path.name}.trec").is_file()


def test_many_queries(server, ranked, tmp_path, capsys):
    path, _ = ranked()
    url, name, root = server
    arguments = ["search", name, "--queries", str(root), "--run", str(tmp_path / "run.trec"), "--url", url]
    assert run([*arguments, "--rerank", str(path), "--rerank-budget", "0ms"]) == 0
    assert "The time budget ended early 1 times: 0% of those documents were scored" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rerank", "ranker"], "termweave ships no ranker"),
        (["--rerank", "rnn", "--rerank-budget", "80ms"], "'rnn' has no time budget"),
        (["--rerank-budget", "80ms"], "A time budget needs a reranker"),
        (["--rerank", "rnn", "--rerank-budget", "soon"], "'soon' is no time; write 80ms or 0.5s"),
        (["--rerank", "ranker@shipped"], "gives no scores of pairs"),
    ],
)
def test_what_cannot_be_is_one_sentence(server, capsys, arguments, message):
    url, name, _ = server
    assert run(["search", name, QUERY, *arguments, "--url", url]) != 0
    assert message in " ".join(capsys.readouterr().err.split())


def test_from_python_a_budget_is_a_number(server):
    url, name, _ = server
    index = tw.connect(url).index(name)
    for budget in (-1, "80ms", float("nan")):
        with pytest.raises(UsageError, match="rerank_budget is a number of milliseconds"):
            index.search(QUERY, rerank="rnn", rerank_budget=budget)
