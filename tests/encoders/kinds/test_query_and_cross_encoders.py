"""Queries and documents with an encoder each; sparse encoders with a table of query weights in two layouts; cross-encoders."""

import json
import shutil
import time
from contextlib import suppress
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.base.modules import Router
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling

from termweave.catalog.lineage import Lineage, ModelLineage
from termweave.encoders import Ranker, TermWeighter, load
from termweave.encoders.kinds import read_folder, sparse
from termweave.encoders.kinds.dense import DenseModel
from termweave.encoders.manifest import write_manifest
from termweave.encoders.onnx.export import export
from termweave.encoders.recorded_models import encoder_of
from termweave.errors import ModelError
from tests.encoders.kinds.conftest import QUERIES, change, of_scores, of_vectors, of_weights, saved

TABLE = "query_0_SparseStaticEmbedding"


def test_without_a_limit_a_query_is_read_to_its_end(inference_free, tmp_path):
    path, reference = inference_free("roberta")
    folder = shutil.copytree(path, tmp_path / "model")
    change(folder / TABLE / "tokenizer_config.json", model_max_length=None)
    assert read_folder(folder).manifest.settings["query_length"] == 0
    # Each character is three bytes, and so three tokens.
    assert of_weights(folder, reference, ["한국어검색", "가나다라마바사아자차"]) < 1e-4


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


def test_the_sum_and_the_max_are_different_graphs(sparse_made, texts, tmp_path):
    path = shutil.copytree(sparse_made()[0], tmp_path / "model")
    file = path / "1_SpladePooling" / "config.json"
    first = TermWeighter.load(path).encode(texts[-1:])[0].weights.sum()
    change(file, pooling_strategy="sum")
    assert TermWeighter.load(path).encode(texts[-1:])[0].weights.sum() > 1.5 * first
    change(file, pooling_strategy="middle")
    with pytest.raises(ModelError, match="'middle'"):
        TermWeighter.load(path)


def test_a_damaged_table_is_one_sentence(opensearch_layout):
    folder, _ = opensearch_layout
    model = read_folder(folder)
    for content in ('{"a": "x"}', None):
        (folder / "idf.json").write_text(content) if content else (folder / "idf.json").unlink()
        with pytest.raises(ModelError, match="is not a table of query weights"):
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


def side(reference, texts, kind):
    vectors = reference.encode_query(texts) if kind == "query" else reference.encode_document(texts)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def routed(made, tmp_path_factory):
    """A function: a folder with a router, and the model that saved it."""

    @cache
    def make(documents=None, queries=None):
        documents = documents or tuple(made("bert", normalise=False)[1].children())
        queries = queries or tuple(made("roberta", "cls", normalise=False)[1].children())
        router = Router.for_query_document(query_modules=list(queries), document_modules=list(documents))
        model = SentenceTransformer(modules=[router, Normalize()], device="cpu", prompts={"query": "find: "})
        return saved(model, tmp_path_factory.mktemp("saved"))

    return make


def two_towers(documents, queries, path):
    """A folder with an encoder for documents and another one for queries."""
    shutil.copytree(documents, path)
    shutil.copytree(queries, path / "query")
    write_manifest(path / "query", read_folder(queries).manifest)
    manifest = read_folder(documents).manifest
    write_manifest(path, replace(manifest, settings={**manifest.settings, "query_folder": "query"}))
    return path


@pytest.mark.parametrize("layout", ["router", "folder"])
def test_both_encoders_are_run_and_exported(routed, made, texts, tmp_path, layout):
    if layout == "router":
        path, reference = routed()
        expected = {kind: side(reference, texts, kind) for kind in ("document", "query")}
    else:
        (documents, reference), (queries, of_queries) = made("bert"), made("roberta", "cls", prompts={"query": "q: "})
        path = two_towers(documents, queries, tmp_path / "towers")
        expected = {"document": reference.encode_document(texts), "query": of_queries.encode_query(texts)}
    export(path, out := tmp_path / "out")
    for kind, rows in expected.items():
        for folder, precision in ((path, None), (out, "fp32"), (out, "int8")):
            encodings = load(weights="none", dense=folder, precision=precision).encode(texts, kind=kind)
            cosines = (np.stack([encoding.vector for encoding in encodings]) * rows).sum(axis=1)
            assert cosines.min() > (0.9 if precision == "int8" else 1 - 1e-6)
        if layout == "router":
            assert np.abs(side(SentenceTransformer(str(out), device="cpu"), texts, kind) - rows).max() < 1e-6
    before, after = ([model.hash for model in load(weights="none", dense=folder).models.values()] for folder in (path, out))
    assert before == after
    assert before[0] != before[1] == DenseModel.query_folder(read_folder(path)).manifest.hash
    graph = next(out.glob("query*/model.int8.onnx"))
    graph.write_bytes(graph.read_bytes()[:-1])
    with pytest.raises(ModelError, match="was altered"):
        load(weights="none", dense=out)


def test_older_routers_and_a_shared_transformer(routed, made, texts, tmp_path):
    (transformer, pooling, *_) = made("bert")[1].children()
    path, reference = routed((transformer, pooling), (transformer, Pooling(32, "max")))
    old = shutil.copytree(path, tmp_path / "old")
    (old / "router_config.json").rename(old / "config.json")
    modules = json.loads((old / "modules.json").read_text())
    modules[0]["type"] = "sentence_transformers.models.Asym"
    (old / "modules.json").write_text(json.dumps(modules))
    assert of_vectors(path, reference, texts) < 1e-4
    assert of_vectors(old, reference, texts) < 1e-4


def test_an_index_finds_both_encoders_in_one_folder(routed):
    """The server gives the entries of a lineage in any order."""
    path, _ = routed()
    models = load(weights="none", dense=path).models
    recorded = {output: ModelLineage(models[output].name, models[output].hash) for output in ("dense_query", "dense")}
    lineage = Lineage("docs", "", "", {"name": "docs"}, "", {}, models=recorded)
    again = encoder_of(lineage, "docs", {"dense": str(path)}).models
    assert {output: model.hash for output, model in again.items()} == {output: model.hash for output, model in models.items()}
    elsewhere = {**recorded, "dense_query": ModelLineage("elsewhere", "0" * 16)}
    with pytest.raises(ModelError, match=r"this host has no model of that name.*dense_query='DIR'"):
        encoder_of(replace(lineage, models=elsewhere), "docs", {"dense": str(path)})


def test_the_hash_of_documents_does_not_depend_on_queries(routed, tmp_path):
    path, _ = routed()
    other = shutil.copytree(path, tmp_path / "model")
    (other / "query_1_Pooling" / "config.json").write_text((other / "document_1_Pooling" / "config.json").read_text())
    one, two = (load(weights="none", dense=folder).models for folder in (path, other))
    assert one["dense"].hash == two["dense"].hash
    assert one["dense_query"].hash != two["dense_query"].hash


def both(name, kind):
    """A router with one module for documents and queries."""
    return {"types": {name: f"sentence_transformers.models.{kind}"}, "structure": {"document": [name], "query": [name]}}


NOT_RUN = [
    ({"structure": {"title": ["document_0_Transformer"]}}, "has routes title, not 'document' and 'query'"),
    ({"structure": {"document": ["nowhere"], "query": ["nowhere"]}}, "does not describe the modules"),
    (both("../x", "Transformer"), "not inside"),
    (both("x", "CLIPModel"), "lists the modules CLIPModel"),
]


@pytest.mark.parametrize(("changes", "sentence"), NOT_RUN, ids=str)
def test_a_router_that_is_not_run_is_one_sentence(routed, tmp_path, changes, sentence):
    folder = shutil.copytree(routed()[0], tmp_path / "model")
    change(folder / "router_config.json", parameters={}, **changes)
    with pytest.raises(ModelError, match=sentence):
        load(weights="none", dense=folder)


def test_towers_of_two_dimensions_are_one_sentence(made, tmp_path):
    documents, narrow = made()[0], made(dense=[(8, torch.nn.Tanh())])[0]
    towers = two_towers(documents, narrow, tmp_path / "towers")
    for arguments in ({"dense": towers}, {"dense": documents, "dense_query": narrow}):
        with pytest.raises(ModelError, match="gives 8 numbers, the document encoder 'model' 32"):
            load("none", **arguments)


def test_two_models_side_by_side(made, texts):
    documents, (queries, of_queries) = made("bert")[0], made("roberta", "cls", prompts={"query": "q: "})
    encoder = load(weights="none", dense=documents, dense_query=queries)
    vectors = np.stack([each.vector for each in encoder.encode(texts, kind="query")])
    assert np.abs(vectors - of_queries.encode_query(texts)).max() < 1e-4
    for none in (documents, "none"):
        assert "dense_query" not in load(weights="none", dense=documents, dense_query=none).models


@pytest.fixture
def folder(ranked, tmp_path):
    """A copy to alter."""
    return shutil.copytree(ranked()[0], tmp_path / "model")


def test_the_layout_of_sentence_transformers_with_a_default_prompt(ranked, texts, tmp_path):
    path, reference = ranked()
    prompted = CrossEncoder(str(path), device="cpu", prompts={"query": "find this: "}, default_prompt_name="query")
    prompted.save_pretrained(str(tmp_path / "saved"))
    assert (tmp_path / "saved" / "modules.json").is_file()
    assert of_scores(tmp_path / "saved", prompted, texts) < 1e-4
    assert of_scores(tmp_path / "saved", reference, texts) > 1e-3


def test_token_types_matter_where_the_model_was_trained_with_them(ranked, texts, folder):
    path, _ = ranked()
    assert read_folder(path).manifest.settings["types"]
    change(folder / "tokenizer_config.json", model_input_names=["input_ids", "attention_mask"])
    with_types, without = (Ranker.load(each).score(QUERIES[0], texts) for each in (path, folder))
    assert np.abs(np.subtract(with_types, without)).max() > 1e-3
    assert of_scores(folder, CrossEncoder(str(folder), device="cpu"), texts) < 1e-4


def test_a_budget_scores_the_first_texts(ranked, texts):
    scorer = Ranker.load(ranked()[0], threads=1)
    everything = scorer.score("cat", texts).tolist()
    assert not len(scorer.score_within("cat", texts, 0.0))
    assert scorer.score_within("cat", texts, 60.0).tolist() == everything
    some = scorer.score_within("cat", texts * 2000, 0.2)
    assert 0 < len(some) < 2000 * len(texts)
    assert some.tolist() == (everything * 2000)[: len(some)]


def test_a_budget_does_not_start_a_long_text_that_it_has_no_time_for():
    class Timed:
        """A model that takes .1 ms for a character, two texts at a time."""

        graph = SimpleNamespace(on_gpu=False, threads=2)
        manifest = SimpleNamespace(max_length=512)

        def score(self, _query, documents, windows):
            assert windows == 4
            time.sleep(max(map(len, documents)) / 10_000)
            return np.ones(len(documents), dtype=np.float32)

    began = time.perf_counter()
    scored = Ranker.score_within(Timed(), "q", ["x" * 400] * 4 + ["x" * 50_000] * 2, 0.5, windows=4)
    assert time.perf_counter() - began < 4
    assert len(scored) == 4


@pytest.mark.parametrize(
    ("file", "changed"), [("config.json", {"architectures": 5}), ("tokenizer_config.json", {"tokenizer_class": ["x"]})]
)
def test_a_malformed_configuration_is_never_a_traceback(folder, file, changed):
    change(folder / file, **changed)
    with suppress(ModelError):
        Ranker.load(folder).score("cat", ["a cat"])


def three_labels(folder):
    change(folder / "config.json", id2label={"0": "entailment", "1": "neutral", "2": "contradiction"})


def nothing_between(folder):
    processor = json.loads((folder / "tokenizer.json").read_text())["post_processor"]
    pair = [{"Sequence": {"id": each, "type_id": 0}} for each in "AB"]
    change(folder / "tokenizer.json", post_processor={**processor, "pair": pair})


def no_classifier(folder):
    tensors = {name: tensor for name, tensor in load_file(folder / "model.safetensors").items() if "classifier" not in name}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


NO_RANKER = {
    three_labels: "has 3 labels; a ranker has",
    nothing_between: "puts nothing between",
    no_classifier: "lacks 2 tensors",
}


@pytest.mark.parametrize(("damage", "message"), NO_RANKER.items())
def test_what_is_no_ranker_is_one_sentence(folder, damage, message):
    damage(folder)
    with pytest.raises(ModelError, match=message):
        Ranker.load(folder).score("cat", ["a text"])


def test_a_graph_that_gives_nan_is_an_error(ranked, monkeypatch):
    scorer = Ranker.load(ranked()[0])
    monkeypatch.setattr(scorer, "run", lambda texts, _, read: read(texts) and iter([[np.array([np.nan], np.float32)]] * 2))
    with pytest.raises(ModelError, match=r"gives a score that is not a number"):
        scorer.score("cat", ["a", "b"])


@pytest.mark.parametrize("architecture", ["bert", "roberta", "deberta-v2"])
def test_a_long_document_is_scored_by_its_best_window(ranked, texts, architecture):
    model = Ranker.load(ranked(architecture)[0])
    document, query = texts[-1], "cat mat"
    tokens = model.vocabulary.encode(document, add_special_tokens=False).ids
    room = model.manifest.max_length - model.reader.tokenizer._added_to_pair
    room -= len(model.vocabulary.encode(query, add_special_tokens=False).ids)
    counts, inputs = model.reader.read(query, [document, "short"], 4)
    assert counts == [4, 1]
    step = room - room // 4
    contents = [tokens[place * step : place * step + room] for place in range(4)]  # neighbours share a quarter
    for pair, content in zip(inputs, contents, strict=False):
        joined = pair.ids.tolist()
        assert len(joined) == model.manifest.max_length
        assert any(joined[place : place + room] == content for place in range(len(joined)))
    # Each window alone, as one sequence: the best is the score.
    alone = [model._score(result[0]) for result in model.graph.start(inputs, ["logits"])()]
    assert model.score(query, [document, "short"], windows=4).tolist() == pytest.approx([max(alone[:4]), alone[4]], abs=1e-5)
    assert model.score(query, [document])[0] == pytest.approx(alone[0], abs=1e-5)  # one window: what CrossEncoder reads
    assert max(alone[:4]) - min(alone[:4]) > 1e-4  # else any window would pass for the best
    window = model.best_window(query, document, 4)
    assert window in document
    assert len(window) < len(document) / 2
    assert model.best_window(query, texts[0], 4) == texts[0]


def test_windows_of_an_odd_pair(ranked, texts):
    scorer = Ranker.load(ranked()[0])
    for query in (texts[-1], "", "x" * 3000):
        assert np.isfinite(scorer.score(query, [texts[-1], "", "x" * 100_000], windows=4)).all()
