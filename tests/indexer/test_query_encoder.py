"""Two towers on the real server: a build with both, and an update that changes the encoder of queries alone."""

import json

import pytest

import termweave as tw
from termweave.catalog.lineage import read_lineage
from termweave.cli import run
from termweave.encoders import load
from termweave.errors import ModelError

pytest.importorskip("torch", reason="making models needs the extra [train]")
pytestmark = pytest.mark.engine

DOCUMENTS = {"cat": "The cat sat on the mat.", "dog": "A dog barked.", "city": "Zürich is a city in Switzerland."}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Four random models: two of one dimension for documents and queries, a third one, and one of another dimension."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules

    from tests.encoders.kinds.conftest import save_random

    home = tmp_path_factory.mktemp("towers")
    backbone = str(save_random("bert", home / "backbone"))
    for seed, (name, width) in enumerate({"documents": 32, "queries": 32, "others": 32, "narrow": 16}.items()):
        torch.manual_seed(seed)
        parts = [modules.Transformer(backbone), modules.Pooling(32), modules.Dense(32, width), modules.Normalize()]
        SentenceTransformer(modules=parts, device="cpu").save(str(home / name))
    return home


@pytest.fixture
def source(tmp_path):
    file = tmp_path / "docs.jsonl"
    file.write_text("".join(json.dumps({"_id": key, "text": text}) + "\n" for key, text in DOCUMENTS.items()))
    return file


def expected(folders, queries):
    """Document -> dot product of its vector with the vector of a query from another model."""
    (query,) = load(weights="none", dense=folders / queries).encode(["the cat"], kind="query")
    rows = load(weights="none", dense=folders / "documents").encode(list(DOCUMENTS.values()), kind="document")
    return dict(zip(DOCUMENTS, (float(row.vector @ query.vector) for row in rows), strict=True))


def scores(url, name):
    hits = tw.connect(url).index(name).search("the cat", mode="dense", k=3)
    return {hit.id: hit.score for hit in hits}


def test_a_query_encoder_is_changed_without_encoding_documents(folders, source, name, opensearch_engine, capsys):
    url = opensearch_engine.url
    base = ["index", str(source), name, "--weights", "none", "--url", url]
    assert run([*base, "--dense", str(folders / "documents"), "--dense-query", str(folders / "queries"), "--quiet"]) == 0
    assert scores(url, name) == pytest.approx(expected(folders, "queries"), abs=1e-5)
    before = tw.connect(url).index(name)
    models = before.lineage.models
    assert models["dense"].hash != models["dense_query"].hash

    capsys.readouterr()
    assert run([*base, "--update", "--dense-query", str(folders / "others"), "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["sent"] == 0
    assert "Queries are encoded by 'others' from now on" in captured.err
    assert scores(url, name) == pytest.approx(expected(folders, "others"), abs=1e-5)
    after = read_lineage(opensearch_engine, before.generation)
    assert after.models["dense"] == models["dense"]
    assert after.models["dense_query"].hash == load(weights="none", dense=folders / "others").models["dense"].hash
    assert after.fingerprint == ""
    assert run(["verify", name, "--deep", "--quiet", "--url", url]) == 0

    assert run([*base, "--update", "--new", "--dense-query", "none", "--quiet"]) == 0  # in a copy
    assert scores(url, name) == pytest.approx(expected(folders, "documents"), abs=1e-5)
    assert "dense_query" not in tw.connect(url).index(name).lineage.models
    assert run(["rollback", name, "--quiet", "--url", url]) == 0
    assert scores(url, name) == pytest.approx(expected(folders, "others"), abs=1e-5)


def test_what_does_not_fit_is_one_sentence(folders, source, name, opensearch_engine, capsys):
    url = opensearch_engine.url
    base = ["index", str(source), name, "--weights", "none", "--url", url, "--quiet"]
    assert run([*base, "--dense", "none", "--dense-query", str(folders / "queries")]) == 2
    assert "no model gives vectors of documents" in capsys.readouterr().err
    assert run([*base, "--dense", str(folders / "documents"), "--dense-query", str(folders / "narrow")]) != 0
    assert "gives 16 numbers, the document encoder 'documents' 32" in capsys.readouterr().err
    assert run([*base, "--dense", str(folders / "documents")]) == 0
    for options, sentence in (
        (["--dense-query", str(folders / "narrow")], "gives 16 numbers, the document encoder 'documents' 32"),
        (["--dense", str(folders / "others"), "--dense-query", str(folders / "queries")], "was built with 'documents'"),
    ):
        assert run([*base, "--update", *options]) != 0
        assert sentence in capsys.readouterr().err
    with pytest.raises(ModelError, match="was built with the dense model"):
        tw.connect(url).index(name, dense=folders / "others")
