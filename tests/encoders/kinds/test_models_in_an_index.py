"""From a folder of sentence-transformers to hits on the real server: scores are dot products, and a cross-encoder reranks."""

import json
import uuid
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

import termweave as tw
from termweave.catalog.lineage import read_lineage
from termweave.catalog.profiles import Profile
from termweave.cli import run
from termweave.encoders import Ranker
from termweave.encoders import recorded_models as models
from termweave.encoders.kinds import read_folder
from termweave.errors import ModelError, UsageError
from termweave.rerank.ranker import CrossEncoderReranker, open_ranker
from tests.beir_folder import beir_folder
from tests.encoders.kinds.conftest import terms

SCHEMAS = Path(__file__).parents[3] / "docs" / "schemas"

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
    root = beir_folder(tmp_path_factory.mktemp("beir"), DOCUMENTS, {"q1": QUERY}, test=[("q1", "cat")])
    name = f"tw-ranker-{uuid.uuid4().hex[:12]}"
    assert run(["index", str(root), name, "--url", opensearch_engine.url, "--quiet"]) == 0
    yield opensearch_engine.url, name, root
    run(["delete", name, "--yes", "--quiet", "--url", opensearch_engine.url])


@pytest.fixture
def answer(server, capsys):
    """A function: the JSON of a command, which is as its schema says, and what it wrote on standard error."""

    def call(verb, *arguments, status=0):
        url, name, _ = server
        assert run([verb, name, *arguments, "--url", url, "--json"]) == status
        out, err = capsys.readouterr()
        found = json.loads(out) if out else None
        if found:
            jsonschema.validate(found, json.loads((SCHEMAS / f"{verb}.1.json").read_text()))
        return found, err

    return call


def test_hits_are_in_the_order_of_the_mixture_and_explained(answer, ranked):
    path, _ = ranked()
    first = answer("search", QUERY, "-k", "6")[0]["hits"]
    result, _ = answer("search", QUERY, "-k", "6", "--rerank", str(path), "--explain")
    scores = {hit["id"]: hit["score"] for hit in first}
    assert len(scores) > 3
    ids = [key for key in scores if DOCUMENTS[key]]
    logits = dict(zip(ids, Ranker.load(path).score(QUERY, [DOCUMENTS[key] for key in ids], windows=4).tolist(), strict=True))
    low, high, bottom, top = min(logits.values()), max(logits.values()), min(scores.values()), max(scores.values())
    values = {key: bottom + (top - bottom) * (logits.get(key, low) - low) / (high - low) for key in scores}
    expected = {key: 0.5 * scores[key] + 0.5 * values[key] for key in scores}
    assert {hit["id"]: hit["score"] for hit in result["hits"]} == pytest.approx(expected, abs=1e-4)
    for hit in result["hits"]:
        (part,) = [part for part in hit["explanation"]["parts"] if part["name"] == f"ranker@{path}"]
        assert part.get("logit") == (pytest.approx(logits[hit["id"]], abs=1e-4) if hit["id"] in logits else None)
    assert "cut_short" not in result


def test_a_budget_of_0_is_the_first_stage_and_says_so(answer, server, ranked, tmp_path, capsys):
    path, _ = ranked()
    url, name, root = server
    first, _ = answer("search", QUERY)
    result, warnings = answer("search", QUERY, "--rerank", str(path), "--rerank-budget", "0ms")
    assert [hit["id"] for hit in result["hits"]] == [hit["id"] for hit in first["hits"]]
    count = len(first["hits"])
    assert result["cut_short"] == [{"name": f"ranker@{path}", "scored": 0, "candidates": count}]
    assert f"scored 0 of {count} documents in its time budget" in warnings
    result, warnings = answer("search", QUERY, "--rerank", str(path), "--rerank-budget", "60s")
    assert ("cut_short" in result, warnings) == (False, "")
    many = ["search", name, "--queries", str(root), "--run", str(tmp_path / "run.trec"), "--url", url]
    assert run([*many, "--rerank", str(path), "--rerank-budget", "0ms"]) == 0
    assert "The time budget ended early 1 time: 0% of the documents were scored" in " ".join(capsys.readouterr().err.split())
    answer("search", QUERY, "--rerank-budget", "80ms", status=2)


def test_the_words_that_the_logit_depends_on(answer, ranked, server, tmp_path, capsys):
    path, _ = ranked()
    options = ("--rerank", str(path), "--explain-words")
    result, _ = answer("search", QUERY, "-k", "6", *options, "--html", str(tmp_path / "why.html"))
    hits = {hit["id"]: hit["explanation"]["parts"][-1] for hit in result["hits"]}
    effects = {each["word"]: each["effect"] for each in hits["cat"]["effects"]}
    whole, less = Ranker.load(path).score(QUERY, [DOCUMENTS["cat"], DOCUMENTS["cat"].replace("purred", "")]).tolist()
    assert effects["purred"] == pytest.approx(whole - less, abs=1e-4)
    assert "is lower" in (tmp_path / "why.html").read_text()
    explained, _ = answer("explain", QUERY, "cat", *options)
    assert explained["hit"]["explanation"]["parts"][-1]["effects"] == hits["cat"]["effects"]
    assert run(["explain", server[1], QUERY, "cat", *options, "--url", server[0]]) == 0
    assert "; depends on " in capsys.readouterr().out


def test_pages_beyond_the_candidates_score_no_text_twice(server, ranked, monkeypatch):
    path, _ = ranked()
    index = tw.connect(server[0]).index(server[1])
    texts, real, options = [], Ranker.score, {"rerank": str(path), "candidates": 2}
    score = lambda self, query, documents, **more: texts.extend(documents) or real(self, query, documents, **more)  # noqa: E731
    monkeypatch.setattr(Ranker, "score", score)
    whole = [hit.id for hit in index.search(QUERY, k=6, **options)]
    assert len(texts) == len(set(texts)) > 0
    assert [hit.id for start in (0, 2, 4) for hit in index.search(QUERY, k=2, start=start, **options)] == whole
    with pytest.raises(UsageError, match="With a time budget there is one page"):
        index.search(QUERY, rerank=str(path), rerank_budget=50, start=2)


def test_a_document_that_is_deleted_while_the_ranker_reads_is_no_hit(server, ranked, monkeypatch):
    path, _ = ranked()
    index = tw.connect(server[0]).index(server[1])
    whole = [hit.id for hit in index.search(QUERY, rerank=str(path), k=6)]
    real, request, generation, removed = Ranker.score, index.engine.request, index.generation, []

    def score(self, query, documents, **options):
        monkeypatch.setattr(Ranker, "score", real)  # deleted once, between the request of the candidates and that of the hits
        found = request("GET", f"/{generation}/_search", body={"query": {"term": {"id": whole[0]}}})["hits"]["hits"][0]
        removed.append(found)
        request("DELETE", f"/{generation}/_doc/{found['_id']}", params={"refresh": "true"})
        return real(self, query, documents, **options)

    monkeypatch.setattr(Ranker, "score", score)
    try:
        left = [hit.id for hit in index.search(QUERY, rerank=str(path), k=6)]
        assert sorted(left) == sorted(whole[1:])
        assert left == [hit.id for hit in index.search(QUERY, rerank=str(path), k=6)]  # the order of a search without it
    finally:
        for each in removed:
            request("PUT", f"/{generation}/_doc/{each['_id']}", params={"refresh": "true"}, body=each["_source"])


def test_the_ranker_of_the_profile(server, ranked, answer, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path, _ = ranked()
    url, name, root = server
    index = tw.connect(url).index(name)
    info = Ranker.load(path).info
    parameters = {"model": info.name, "hash": info.hash, "candidates": 4, "weight": 0.7, "budget": None}
    mine = Profile("mine", {"weights": 0.5, "dense": 0.5}, "adaptive", None, {}, parameters)
    index.adopt(mine)
    try:
        with pytest.raises(ModelError, match=r"The profile reranks with .*, and this host has no model of that name"):
            index.search(QUERY)
        models.remember([info])
        expected = index.search(QUERY, mode="weights:0.5,dense:0.5", rerank=CrossEncoderReranker(str(path), 4, 0.7))
        for options in ({}, {"rerank": "ranker"}, {"rerank": f"ranker@{info.name}"}):
            assert [(hit.id, hit.score) for hit in index.search(QUERY, **options)] == [(hit.id, hit.score) for hit in expected]
        assert [hit["id"] for hit in answer("search", QUERY, "--rerank", "ranker")[0]["hits"]] == [hit.id for hit in expected]
        limited = answer("search", QUERY, "--rerank-budget", "0ms")[0]
        assert limited["cut_short"][0]["scored"] == 0
        assert run(["profiles", name, "--url", url]) == 0
        assert "ranker@" in capsys.readouterr().out
        index.adopt(replace(mine, name="quick", ranker={**parameters, "budget": 0.0}))
        cut = "The time budget of quick ended early 1 time: 0% of the documents were scored;"
        notes = answer("evaluate", str(root), "--against", name)[0]["notes"]
        assert [note.partition(cut)[0] for note in notes if cut in note] == ["", f"{name}: "]
        index.adopt(mine)
        monkeypatch.setattr(models, "_remembered", lambda _: None)
        monkeypatch.setattr(models, "resolve_local", lambda _: ranked("roberta")[0])
        open_ranker.cache_clear()
        with pytest.raises(ModelError, match=r"this host has the hash \w{16}, and the profile was made with \w{16}\."):
            index.search(QUERY)
    finally:
        run(["profiles", name, "--use", "hybrid", "--url", url, "--quiet"])


TEXTS = {"cat": "the cat sat. 3.5% on the mat", "dog": "a dog barked", "cell": "mitochondria are in the cell"}
QUESTION = "the cat. 5%"


@pytest.fixture
def indexed(opensearch_engine, name, tmp_path):
    """A function: an index of the documents that the command line makes with a model for one output."""
    corpus = beir_folder(tmp_path / "docs", TEXTS, {}) / "corpus.jsonl"

    def call(path, output):
        models = {"--weights": "none", "--dense": "none", f"--{output}": str(path)}
        options = [word for pair in models.items() for word in pair]
        assert run(["index", str(corpus), name, *options, "--url", opensearch_engine.url, "--quiet"]) == 0
        assert run(["verify", name, "--deep", "--quiet", "--url", opensearch_engine.url]) == 0
        index = tw.connect(opensearch_engine.url).index(name)
        models = read_lineage(opensearch_engine, index.generation).models
        assert {output: model.hash for output, model in models.items()} == {output: read_folder(path).manifest.hash}
        assert index.search("the cat", mode="hybrid", k=1)
        return index

    return call


def test_vectors(made, indexed):
    """The server computes with float32 vectors; 1e-5 is what its own score format keeps."""
    path, reference = made("xlm-roberta", "cls", prompts={"query": "query: ", "document": "passage: "})
    index = indexed(path, "dense")
    cosines = reference.encode_document(list(TEXTS.values())) @ reference.encode_query(QUESTION)
    expected = dict(zip(TEXTS, cosines.tolist(), strict=True))
    scores = {hit.id: hit.score for hit in index.search(QUESTION, mode="dense", k=3)}
    assert list(scores) == sorted(expected, key=lambda key: -expected[key])
    assert scores == pytest.approx(expected, abs=1e-5)
    assert index.search(QUESTION, rerank="rnn", k=3)


@pytest.mark.parametrize("sort", ["bert", "roberta", "table"])
def test_term_weights(sparse_made, inference_free, indexed, sort):
    """Entries of RoBERTa's vocabulary hold dots, percent signs and a letter for the blank (Ġ); each comes back as it was sent."""
    path, reference = inference_free() if sort == "table" else sparse_made(sort)
    index = indexed(path, "weights")
    (query,) = terms(reference, reference.encode_query([QUESTION]))
    rows = dict(zip(TEXTS, terms(reference, reference.encode_document(list(TEXTS.values()))), strict=True))
    assert sort != "roberta" or {".", "%", "Ġ."} & query.keys()
    expected = {key: sum(query.get(term, 0) * row[term] for term in row) for key, row in rows.items()}
    assert len({round(value, 3) for value in expected.values()}) > 1  # else any order would do
    hits = index.search(QUESTION, mode="weights", k=3, explain=True)
    unit = hits[0].score / expected[hits[0].id]  # the server's scores are in units of the stored impacts, of 8 bits
    in_units = {key: unit * score for key, score in expected.items()}
    assert {hit.id: hit.score for hit in hits} == pytest.approx(in_units, rel=0.02)
    (part,) = hits[0].explanation["parts"]
    assert {share["term"] for share in part["terms"]} == query.keys() & rows[hits[0].id].keys()
