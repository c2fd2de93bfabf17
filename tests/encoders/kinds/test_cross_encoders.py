"""Cross-encoders of many architectures give the logits that sentence-transformers gives."""

import json
import shutil
import time
from contextlib import suppress
from types import SimpleNamespace

import jsonschema
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file, save_file

from termweave.cli.verbs.models import export as command
from termweave.encoders import Ranker, load
from termweave.encoders.kinds import read_folder
from termweave.encoders.onnx import export as exporting
from termweave.encoders.onnx.checked_graphs import TOLERANCE
from termweave.errors import ModelError

ARCHITECTURES = ("bert", "roberta", "xlm-roberta", "mpnet", "distilbert", "modernbert", "electra", "deberta-v2")
QUERIES = ("the cat sat where", "", "Zürich", " ".join(["a long query of many words"] * 12))


def logits(reference, query, texts):
    """What CrossEncoder gives before its activation; of two labels the difference."""
    scores = reference.predict([(query, text) for text in texts], activation_fn=torch.nn.Identity())
    return scores if scores.ndim == 1 else scores[:, 1] - scores[:, 0]


def difference(path, reference, texts):
    scorer = Ranker.load(path)
    return max(float(np.abs(scorer.score(query, texts) - logits(reference, query, texts)).max()) for query in QUERIES)


def change(file, **values):
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


@pytest.fixture
def folder(ranked, tmp_path):
    """A copy to alter."""
    return shutil.copytree(ranked()[0], tmp_path / "model")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_architectures(ranked, texts, architecture):
    path, reference = ranked(architecture)
    assert difference(path, reference, texts) < 1e-4
    scores = Ranker.load(path).score(QUERIES[0], texts)
    assert np.ptp(scores) > 1e-2  # the texts are told apart


@pytest.mark.parametrize("architecture", ["bert", "roberta", "modernbert", "deberta-v2"])
def test_two_labels_become_the_difference_of_their_logits(ranked, texts, architecture):
    path, reference = ranked(architecture, labels=2)
    assert difference(path, reference, texts) < 1e-4


def test_the_layout_of_sentence_transformers_with_a_default_prompt(ranked, texts, tmp_path):
    from sentence_transformers import CrossEncoder

    path, reference = ranked()
    prompted = CrossEncoder(str(path), device="cpu", prompts={"query": "find this: "}, default_prompt_name="query")
    prompted.save_pretrained(str(tmp_path / "saved"))
    assert (tmp_path / "saved" / "modules.json").is_file()
    assert difference(tmp_path / "saved", prompted, texts) < 1e-4
    assert difference(tmp_path / "saved", reference, texts) > 1e-3


def test_token_types_matter_where_the_model_was_trained_with_them(ranked, texts, folder):
    from sentence_transformers import CrossEncoder

    path, _ = ranked()
    assert read_folder(path).manifest.settings["types"]
    change(folder / "tokenizer_config.json", model_input_names=["input_ids", "attention_mask"])
    with_types, without = (Ranker.load(each).score(QUERIES[0], texts) for each in (path, folder))
    assert np.abs(np.subtract(with_types, without)).max() > 1e-3
    assert difference(folder, CrossEncoder(str(folder), device="cpu"), texts) < 1e-4


@pytest.mark.parametrize("architecture", ["bert", "roberta", "xlm-roberta"])
def test_a_text_of_a_megabyte_is_cut(ranked, architecture):
    path, reference = ranked(architecture)
    words = "words of the text " * 60_000
    scorer = Ranker.load(path)
    began = time.perf_counter()
    scores = scorer.score("of the text", [words, "x" * 1_000_000])
    assert time.perf_counter() - began < 60
    assert scores[0] == pytest.approx(logits(reference, "of the text", [words[:4000]])[0], abs=1e-4)
    assert np.isfinite(scores[1])


def test_a_score_depends_on_its_pair_alone(ranked, texts):
    scorer = Ranker.load(ranked()[0])
    assert [scorer.score("cat", [text])[0] for text in texts] == scorer.score("cat", texts).tolist()


def test_a_budget_scores_the_first_texts(ranked, texts):
    scorer = Ranker.load(ranked()[0], threads=1)
    everything = scorer.score("cat", texts).tolist()
    assert not len(scorer.score_within("cat", texts, 0.0))
    assert not len(scorer.score_within("cat", texts, 1e-9))
    assert scorer.score_within("cat", texts, 60.0).tolist() == everything
    many = texts * 2000
    began = time.perf_counter()
    some = scorer.score_within("cat", many, 0.2)
    assert time.perf_counter() - began < 5
    assert 0 < len(some) < len(many)
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


@pytest.mark.parametrize("architecture", ["bert", "modernbert"])
def test_export(ranked, texts, tmp_path, architecture):
    from sentence_transformers import CrossEncoder

    path, reference = ranked(architecture)
    done = CliRunner().invoke(command, [str(path), "--out", str(tmp_path / "out"), "--json"], catch_exceptions=False)
    assert done.exit_code == 0
    answer = json.loads(done.stdout)
    assert answer["parity"]["fp32_difference"] <= TOLERANCE
    assert 0.5 < answer["parity"]["int8_rank_correlation"] <= 1.0
    assert 0.0 < answer["parity"]["int8_score_difference"] < 1.0
    folder = read_folder(tmp_path / "out")
    assert (folder.manifest.kind, folder.manifest.outputs) == ("ranker", ("scores",))
    assert folder.manifest.hash == read_folder(path).manifest.hash
    expected = logits(reference, "the cat", texts)
    fp32, int8 = (np.array(Ranker.load(tmp_path / "out", precision=each).score("the cat", texts)) for each in ("fp32", "int8"))
    assert np.abs(fp32 - expected).max() < 1e-4
    assert 1e-6 < np.abs(int8 - expected).max() < np.ptp(expected)
    again = CrossEncoder(str(tmp_path / "out"), device="cpu")
    assert np.abs(logits(again, "the cat", texts) - expected).max() < 1e-6


def test_the_json_of_an_export_is_as_described(ranked, tmp_path, schemas):
    done = CliRunner().invoke(command, [str(ranked()[0]), "--out", str(tmp_path / "out"), "--json"], catch_exceptions=False)
    jsonschema.validate(json.loads(done.stdout), json.loads((schemas / "export.1.json").read_text()))


def test_without_torch_the_exported_graph_is_run(ranked, texts, monkeypatch):
    from termweave.encoders.onnx import checked_graphs

    path, _ = ranked()
    scores = Ranker.load(path).score("cat", texts)
    monkeypatch.setattr(checked_graphs, "find_spec", lambda _: None)  # the cache has the graph
    assert Ranker.load(path).score("cat", texts).tolist() == scores.tolist()


def test_three_labels_are_refused(folder):
    change(folder / "config.json", id2label={"0": "entailment", "1": "neutral", "2": "contradiction"})
    with pytest.raises(ModelError, match=r"has 3 labels; a ranker has one score, or two labels"):
        Ranker.load(folder)


@pytest.mark.parametrize(
    ("file", "changed"),
    [
        ("config.json", {"num_labels": [1], "id2label": None}),
        ("config.json", {"num_labels": "1", "id2label": None}),
        ("config.json", {"architectures": 5}),
        ("config_sentence_transformers.json", {"prompts": ["a"], "model_type": "CrossEncoder"}),
        ("config_sentence_transformers.json", {"model_type": ["CrossEncoder"]}),
        ("tokenizer_config.json", {"tokenizer_class": ["x"]}),
    ],
    ids=str,
)
def test_a_malformed_configuration_is_never_a_traceback(folder, file, changed):
    known = json.loads((folder / file).read_text()) if (folder / file).is_file() else {}
    (folder / file).write_text(json.dumps({**known, **changed}))
    with suppress(ModelError):
        Ranker.load(folder).score("cat", ["a cat"])


def test_a_tokeniser_without_a_pair_template_is_refused(folder):
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    for processor in (None, {**tokenizer["post_processor"], "pair": [{"Sequence": {"id": each, "type_id": 0}} for each in "AB"]}):
        (folder / "tokenizer.json").write_text(json.dumps({**tokenizer, "post_processor": processor}))
        with pytest.raises(ModelError, match=r"has no template for pairs"):
            Ranker.load(folder)


def test_logits_that_are_no_numbers_are_an_error(folder):
    tensors = load_file(folder / "model.safetensors")
    tensors["classifier.bias"] = torch.full_like(tensors["classifier.bias"], float("nan"))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match="values that are not numbers"):
        Ranker.load(folder).score("cat", ["a text"])


def test_a_graph_that_gives_nan_is_an_error(ranked, monkeypatch):
    scorer = Ranker.load(ranked()[0])
    model = scorer
    real = model.graph.start

    def start(*arguments, **options):
        finish = real(*arguments, **options)
        return lambda: [[result[0] * np.float32("nan")] for result in finish()]

    monkeypatch.setattr(model.graph, "start", start)
    with pytest.raises(ModelError, match=r"gives a score that is not a number"):
        scorer.score("cat", ["a", "b"])


def test_weights_without_the_classifier_are_refused(folder):
    tensors = {name: tensor for name, tensor in load_file(folder / "model.safetensors").items() if "classifier" not in name}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"lacks 2 tensors"):
        Ranker.load(folder).score("cat", ["a text"])


def test_a_model_of_another_sort_is_no_ranker(made):
    with pytest.raises(ModelError, match=r"is an encoder and scores no pairs"):
        Ranker.load(made()[0])
    with pytest.raises(ModelError, match=r"scores no pairs"):
        Ranker.load("shipped")


def test_a_ranker_gives_no_vectors(ranked):
    with pytest.raises(ModelError, match=r"is a cross-encoder: .* not vectors"):
        load(weights="none", dense=ranked()[0])


@pytest.mark.parametrize("settings", [{"labels": 3}, {"transformer": "/etc"}, {"prompt": 7}, {"unknown": 1}], ids=str)
def test_malformed_descriptions_are_one_sentence(ranked, tmp_path, settings):
    from dataclasses import replace

    from termweave.encoders.manifest import write_manifest

    path, _ = ranked()
    own = shutil.copytree(path, tmp_path / "own")
    manifest = read_folder(path).manifest
    write_manifest(own, replace(manifest, settings={**manifest.settings, **settings}))
    with pytest.raises(ModelError, match=r"The description of the model .* is malformed"):
        Ranker.load(own)


def test_a_folder_with_a_graph_of_another_exporter_needs_no_weights_and_no_torch(ranked, texts, folder, monkeypatch):
    from termweave.encoders.onnx import checked_graphs

    path, _ = ranked()
    scores = Ranker.load(path).score("cat", texts)
    graph = checked_graphs.with_graph(Ranker(read_folder(path))).graphs["fp32"]
    (folder / "onnx").mkdir()
    shutil.copyfile(graph, folder / "onnx" / "model.onnx")
    (folder / "model.safetensors").unlink()
    monkeypatch.setattr(checked_graphs, "find_spec", lambda _: None)
    assert Ranker.load(folder).score("cat", texts).tolist() == scores.tolist()


@pytest.mark.parametrize("architecture", ["bert", "roberta", "deberta-v2"])
def test_a_long_document_is_scored_by_its_best_window(ranked, texts, architecture):
    path, _ = ranked(architecture)
    scorer = Ranker.load(path)
    model = scorer
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
    assert scorer.score(query, [document, "short"], windows=4).tolist() == pytest.approx([max(alone[:4]), alone[4]], abs=1e-5)
    assert scorer.score(query, [document])[0] == pytest.approx(alone[0], abs=1e-5)  # one window: what CrossEncoder reads
    assert max(alone[:4]) - min(alone[:4]) > 1e-4  # else any window would pass for the best


def test_windows_of_a_short_or_odd_pair(ranked, texts):
    scorer = Ranker.load(ranked()[0])
    assert scorer.score("cat", texts[:4], windows=4).tolist() == scorer.score("cat", texts[:4]).tolist()
    long = texts[-1]
    for query in (long, "", "x" * 3000):
        assert np.isfinite(scorer.score(query, [long, "", "x" * 100_000], windows=4)).all()


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json", "config.json"])
def test_a_folder_that_is_swapped_between_check_and_opening_is_refused(ranked, folder, tmp_path, monkeypatch, file):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    scorer = Ranker.load(folder)  # digests are compared here, the graph is opened at the first score
    shutil.copyfile(ranked("bert", labels=1)[0] / file, tmp_path / file)
    (tmp_path / file).replace(folder / file)
    with pytest.raises(ModelError, match=rf"changed while it was opened: .*{file} is not the file that was checked"):
        scorer.score("cat", ["a text"])
    assert not list((tmp_path / "cache").rglob("*.onnx"))  # no graph of one model under the digest of another


def test_an_exported_folder_that_is_swapped_is_refused(ranked, tmp_path):
    exporting.export(ranked()[0], tmp_path / "out")
    scorer = Ranker.load(tmp_path / "out")
    graph = next(iter(read_folder(tmp_path / "out").manifest.files))
    shutil.copyfile(tmp_path / "out" / graph, tmp_path / "other")
    (tmp_path / "other").replace(tmp_path / "out" / graph)
    with pytest.raises(ModelError, match=r"changed while it was opened"):
        scorer.score("cat", ["a text"])


def test_the_window_that_gives_the_score(ranked, texts):
    scorer = Ranker.load(ranked()[0])
    window = scorer.best_window("cat mat", texts[-1], 4)
    assert window in texts[-1]
    assert len(window) < len(texts[-1]) / 2
    assert scorer.best_window("cat mat", texts[0], 4) == texts[0]
