"""Inference-free sparse encoders: the layout of sentence-transformers, and that of OpenSearch's own models."""

import json
import shutil

import numpy as np
import pytest
from safetensors.torch import load_file

from termweave.encoders import TermWeighter, load
from termweave.encoders.kinds import read_folder, sparse
from termweave.encoders.onnx.export import export
from termweave.errors import ModelError


def rows(reference, vectors):
    """Term -> weight above 0 of each row; special tokens are no terms."""
    vocabulary = {number: token for token, number in reference.tokenizer.get_vocab().items()}
    special = set(reference.tokenizer.all_special_ids)
    return [
        {vocabulary[place]: float(row[place]) for place in np.flatnonzero(row > 0) if place not in special}
        for row in vectors.to_dense().numpy()
    ]


def agree(given, expected):
    for weights, reference in zip(given, expected, strict=True):
        own = weights.as_dict()
        assert own.keys() == {term for term, weight in reference.items() if weight > 1e-6} | (own.keys() & reference.keys())
        assert own == pytest.approx({term: reference[term] for term in own}, abs=1e-4)


@pytest.mark.parametrize("architecture", ["bert", "roberta"])
def test_queries_and_documents_are_those_of_sentence_transformers(inference_free, texts, architecture):
    path, reference = inference_free(architecture)
    encoder = TermWeighter.load(path)
    agree(encoder.encode(texts, kind="query"), rows(reference, reference.encode_query(texts)))
    agree(encoder.encode(texts, kind="document"), rows(reference, reference.encode_document(texts)))
    asked = encoder.encode([texts[0]], kind="query")[0].as_dict()
    assert set(asked) <= set(load(weights=path, dense="none").analyse([texts[0]])[0])  # a query is not expanded


def test_without_a_limit_a_query_is_read_to_its_end(inference_free, tmp_path):
    path, reference = inference_free("roberta")
    folder = shutil.copytree(path, tmp_path / "model")
    file = folder / "query_0_SparseStaticEmbedding" / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"model_max_length": None}))
    assert read_folder(folder).manifest.settings["query_length"] == 0
    texts = ["한국어검색", "가나다라마바사아자차"]  # each character is three bytes, and so three tokens
    agree(TermWeighter.load(folder).encode(texts, kind="query"), rows(reference, reference.encode_query(texts)))


def test_a_query_runs_no_graph(inference_free, texts, monkeypatch):
    path, _ = inference_free()
    monkeypatch.setattr(sparse.SparseModel, "graph", None)
    assert TermWeighter.load(path).encode(texts[:1], kind="query")[0].terms
    with pytest.raises(AttributeError):
        TermWeighter.load(path).encode(texts[:1], kind="document")


@pytest.fixture
def opensearch_layout(inference_free, tmp_path):
    """The same model as OpenSearch lays its models out: the encoder in the folder itself, and idf.json."""
    path, reference = inference_free(activation="relu")
    folder = shutil.copytree(path / "document_0_Transformer", tmp_path / "doc-v2")
    (folder / "sentence_bert_config.json").unlink()
    weights = load_file(path / "query_0_SparseStaticEmbedding" / "model.safetensors")["weight"].tolist()
    vocabulary = reference.tokenizer.get_vocab()
    (folder / "idf.json").write_text(json.dumps({token: weights[number] for token, number in vocabulary.items()}))
    return folder, reference


def test_the_layout_of_opensearch(opensearch_layout, texts):
    folder, reference = opensearch_layout
    encoder = TermWeighter.load(folder)
    agree(encoder.encode(texts, kind="query"), rows(reference, reference.encode_query(texts)))
    agree(encoder.encode(texts, kind="document"), rows(reference, reference.encode_document(texts)))


def test_a_router_may_keep_its_encoder_in_the_folder_itself(opensearch_layout, inference_free, texts):
    """OpenSearch's models list the document encoder under the name "", and the table by the path of idf.json."""
    folder, reference = opensearch_layout
    whole, _ = inference_free(activation="relu")
    for name in ("modules.json", "config_sentence_transformers.json"):
        shutil.copy(whole / name, folder / name)
    router = json.loads((whole / "router_config.json").read_text())
    router["types"][""] = router["types"].pop("document_0_Transformer")
    router["structure"]["document"][0] = ""
    (folder / "router_config.json").write_text(json.dumps(router))
    for name in ("query_0_SparseStaticEmbedding", "document_1_SpladePooling"):
        shutil.copytree(whole / name, folder / name)
    (folder / "query_0_SparseStaticEmbedding" / "model.safetensors").unlink()
    (folder / "query_0_SparseStaticEmbedding" / "config.json").write_text('{"frozen": true, "path": "idf.json"}')
    agree(TermWeighter.load(folder).encode(texts, kind="query"), rows(reference, reference.encode_query(texts)))


def test_the_hash_covers_the_table(opensearch_layout):
    folder, _ = opensearch_layout
    before = read_folder(folder).manifest.hash
    (folder / "idf.json").write_text('{"a": 2.0}')
    assert read_folder(folder).manifest.hash != before


def test_export_keeps_the_table(inference_free, texts, tmp_path):
    from sentence_transformers import SparseEncoder

    path, reference = inference_free()
    export(path, tmp_path / "out")
    assert (tmp_path / "out" / "model.int8.onnx").is_file()
    encoder = TermWeighter.load(tmp_path / "out")
    agree(encoder.encode(texts, kind="query"), rows(reference, reference.encode_query(texts)))
    again = SparseEncoder(str(tmp_path / "out"), device="cpu")
    agree(encoder.encode(texts, kind="query"), rows(again, again.encode_query(texts)))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "is not a table of query weights: .* No such file"),
        (b"[1]", "is not a table"),
        (b'{"a": "x"}', "is not a table"),
        (b"{", "is not a table"),
    ],
)
def test_a_damaged_table_is_one_sentence(opensearch_layout, content, sentence):
    folder, _ = opensearch_layout
    opened = read_folder(folder)
    if content is None:
        (folder / "idf.json").unlink()
    else:
        (folder / "idf.json").write_bytes(content)
    with pytest.raises(ModelError, match=sentence):
        sparse.SparseModel(opened)


def test_a_router_without_its_table_is_one_sentence(inference_free, tmp_path):
    path, _ = inference_free()
    folder = shutil.copytree(path, tmp_path / "model")
    (folder / "query_0_SparseStaticEmbedding" / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"no table of query weights: query_0.*is missing"):
        TermWeighter.load(folder)


def test_a_table_of_another_vocabulary_is_one_sentence(inference_free, tmp_path):
    path, _ = inference_free()
    other, _ = inference_free("roberta")
    folder = shutil.copytree(path, tmp_path / "model")
    shutil.rmtree(folder / "query_0_SparseStaticEmbedding")
    shutil.copytree(other / "query_0_SparseStaticEmbedding", folder / "query_0_SparseStaticEmbedding")
    with pytest.raises(ModelError, match="have different vocabularies"):
        TermWeighter.load(folder)
