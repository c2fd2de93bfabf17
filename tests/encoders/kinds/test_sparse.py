"""Sparse encoders of other makers: expansion, tables of query weights in two layouts, and an index that scores by dot products."""

import json
import shutil

import pytest
from safetensors.torch import load_file

from termweave.encoders import TermWeighter, load
from termweave.encoders.kinds import read_folder, sparse
from termweave.errors import ModelError
from termweave.statistics import CorpusStatistics
from tests.encoders.kinds.references import of_weights

TABLE = "query_0_SparseStaticEmbedding"


def test_without_a_limit_a_query_is_read_to_its_end(inference_free, tmp_path):
    path, reference = inference_free("roberta")
    folder = shutil.copytree(path, tmp_path / "model")
    file = folder / TABLE / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"model_max_length": None}))
    assert read_folder(folder).manifest.settings["query_length"] == 0
    # Each character is three bytes, and so three tokens.
    assert of_weights(folder, reference, ["한국어검색", "가나다라마바사아자차"]) < 1e-4


def test_a_query_runs_no_graph_and_is_not_expanded(inference_free, texts, monkeypatch):
    path, _ = inference_free()
    monkeypatch.setattr(sparse.SparseModel, "graph", None)
    (weights,) = TermWeighter.load(path).encode(texts[:1], kind="query")
    assert set(weights.terms) <= set(load(weights=path, dense="none").analyse(texts[:1])[0])
    assert weights.terms
    with pytest.raises(AttributeError):
        TermWeighter.load(path).encode(texts[:1], kind="document")


@pytest.fixture
def opensearch_layout(inference_free, tmp_path):
    """The same model as OpenSearch lays its models out: the encoder in the folder itself, and idf.json."""
    path, reference = inference_free(activation="relu")
    folder = shutil.copytree(path / "document_0_Transformer", tmp_path / "doc-v2")
    (folder / "sentence_bert_config.json").unlink()
    weights = load_file(path / TABLE / "model.safetensors")["weight"].tolist()
    vocabulary = reference.tokenizer.get_vocab()
    (folder / "idf.json").write_text(json.dumps({token: weights[number] for token, number in vocabulary.items()}))
    return folder, reference


def test_the_layout_of_opensearch(opensearch_layout, texts):
    folder, reference = opensearch_layout
    assert of_weights(folder, reference, texts) < 1e-4
    before = read_folder(folder).manifest.hash
    (folder / "idf.json").write_text('{"a": 2.0}')
    assert read_folder(folder).manifest.hash != before


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
    for name in (TABLE, "document_1_SpladePooling"):
        shutil.copytree(whole / name, folder / name)
    (folder / TABLE / "model.safetensors").unlink()
    (folder / TABLE / "config.json").write_text('{"frozen": true, "path": "idf.json"}')
    assert of_weights(folder, reference, texts) < 1e-4


def test_a_text_gets_terms_that_it_does_not_hold_whatever_the_corpus(sparse_made, texts):
    encoder = load(weights=sparse_made()[0], dense="none")
    one, other = (
        encoder.encode(texts[:1], kind="document", statistics=statistics)[0].weights.as_dict()
        for statistics in (None, CorpusStatistics(encoder.analysis, 1, 1.0, {}))
    )
    assert one == other
    assert set(one) - set(encoder.analyse(texts[:1])[0])


def test_the_sum_and_the_max_are_different_graphs(sparse_made, texts, tmp_path):
    path = shutil.copytree(sparse_made()[0], tmp_path / "model")
    file = path / "1_SpladePooling" / "config.json"
    first = TermWeighter.load(path).encode(texts[-1:])[0].weights.sum()
    file.write_text(json.dumps(json.loads(file.read_text()) | {"pooling_strategy": "sum"}))
    assert TermWeighter.load(path).encode(texts[-1:])[0].weights.sum() > 1.5 * first
    file.write_text(json.dumps(json.loads(file.read_text()) | {"pooling_strategy": "middle"}))
    with pytest.raises(ModelError, match="'middle'"):
        TermWeighter.load(path)


@pytest.mark.parametrize(
    ("content", "sentence"), [(None, "is not a table of query weights: .* No such file"), ('{"a": "x"}', "is not a table")]
)
def test_a_damaged_table_is_one_sentence(opensearch_layout, content, sentence):
    folder, _ = opensearch_layout
    model = read_folder(folder)
    (folder / "idf.json").unlink()
    if content is not None:
        (folder / "idf.json").write_text(content)
    with pytest.raises(ModelError, match=sentence):
        sparse.SparseModel(model)


def test_a_table_that_is_missing_or_of_another_vocabulary_is_one_sentence(inference_free, tmp_path):
    folder = shutil.copytree(inference_free()[0], tmp_path / "model")
    (folder / TABLE / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"no table of query weights: query_0.*is missing"):
        TermWeighter.load(folder)
    shutil.rmtree(folder / TABLE)
    shutil.copytree(inference_free("roberta")[0] / TABLE, folder / TABLE)
    with pytest.raises(ModelError, match="has another vocabulary"):
        TermWeighter.load(folder)
