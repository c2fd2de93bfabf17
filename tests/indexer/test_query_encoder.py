"""Two towers on the real server: a build with both, and an update that changes the encoder of queries alone."""

import json

import pytest

import termweave as tw
from termweave.encoders import load
from termweave.errors import ModelError

from .conftest import write_lines

pytest.importorskip("torch", reason="making models needs the extra [train]")

TEXTS = {"cat": "The cat sat on the mat.", "dog": "A dog barked.", "city": "Zürich is a city in Switzerland."}


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
def command(shell, name, tmp_path):
    """A function that runs `termweave index` over the texts, and returns what it said."""

    def call(*arguments, status=0):
        path = write_lines(tmp_path / "docs.jsonl", [{"_id": key, "text": text} for key, text in TEXTS.items()])
        return shell("index", path, name, "--weights", "none", *arguments, status=status)

    return call


def expected(folders, queries):
    """Document -> dot product of its vector with the vector of a query from another model."""
    (query,) = load(weights="none", dense=folders / queries).encode(["the cat"], kind="query")
    rows = load(weights="none", dense=folders / "documents").encode(list(TEXTS.values()), kind="document")
    scores = {key: float(row.vector @ query.vector) for key, row in zip(TEXTS, rows, strict=True)}
    return pytest.approx(scores, abs=1e-5)


def test_a_query_encoder_is_changed_without_encoding_documents(folders, command, desk):
    def searched():
        index = desk.open()
        return index.lineage, {hit.id: hit.score for hit in index.search("the cat", mode="dense", k=3)}

    command("--dense", folders / "documents", "--dense-query", folders / "queries")
    before, scores = searched()
    assert scores == expected(folders, "queries")
    assert before.models["dense"].hash != before.models["dense_query"].hash
    told = command("--update", "--dense-query", folders / "others", "--json")
    assert json.loads(told.out)["sent"] == 0
    assert "Queries are encoded by 'others' from now on" in told.err
    after, scores = searched()
    assert scores == expected(folders, "others")
    assert after.models["dense"] == before.models["dense"]
    assert after.models["dense_query"].hash == load(weights="none", dense=folders / "others").models["dense"].hash
    assert after.fingerprint == ""
    desk.run("verify", "--deep")
    command("--update", "--new", "--dense-query", "none")  # in a copy
    after, scores = searched()
    assert scores == expected(folders, "documents")
    assert "dense_query" not in after.models
    desk.run("rollback")
    assert searched()[1] == expected(folders, "others")


def test_what_does_not_fit_is_one_sentence(folders, command, desk):
    documents, narrow = ("--dense", folders / "documents"), ("--dense-query", folders / "narrow")
    widths = "gives 16 numbers, the document encoder 'documents' 32"
    assert "no model gives vectors of documents" in command("--dense", "none", *narrow, status=2).err
    assert widths in command(*documents, *narrow, status=1).err
    command(*documents)
    assert widths in command("--update", *narrow, status=1).err
    others = ("--dense", folders / "others", "--dense-query", folders / "queries")
    assert "was built with documents (" in command("--update", *others, status=2).err
    with pytest.raises(ModelError, match="was built with the dense model"):
        tw.connect(desk.engine.url).index(desk.name, dense=folders / "others")
