"""Cross-encoders: prompts, token types, windows of long documents, budgets, and what is refused."""

import json
import shutil
import time
from contextlib import suppress
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from termweave.encoders import Ranker
from termweave.encoders.kinds import read_folder
from termweave.errors import ModelError
from tests.encoders.kinds.conftest import QUERIES, of_scores


@pytest.fixture
def folder(ranked, tmp_path):
    """A copy to alter."""
    return shutil.copytree(ranked()[0], tmp_path / "model")


def change(file, **values):
    file.write_text(json.dumps({**(json.loads(file.read_text()) if file.is_file() else {}), **values}))


def test_the_layout_of_sentence_transformers_with_a_default_prompt(ranked, texts, tmp_path):
    from sentence_transformers import CrossEncoder

    path, reference = ranked()
    prompted = CrossEncoder(str(path), device="cpu", prompts={"query": "find this: "}, default_prompt_name="query")
    prompted.save_pretrained(str(tmp_path / "saved"))
    assert (tmp_path / "saved" / "modules.json").is_file()
    assert of_scores(tmp_path / "saved", prompted, texts) < 1e-4
    assert of_scores(tmp_path / "saved", reference, texts) > 1e-3


def test_token_types_matter_where_the_model_was_trained_with_them(ranked, texts, folder):
    from sentence_transformers import CrossEncoder

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


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (three_labels, "has 3 labels; a ranker has one or two"),
        (nothing_between, "puts nothing between query and document"),
        (no_classifier, "lacks 2 tensors"),
    ],
)
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
