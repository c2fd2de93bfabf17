"""Cross-encoders of other makers give the scores that sentence-transformers gives."""

import numpy as np
import pytest
import torch

from termweave.encoders import DenseEncoder, Ranker
from termweave.encoders.onnx import export as exporting
from termweave.errors import ModelError

TYPED = {"model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}


@pytest.mark.parametrize(
    ("architecture", "options"), [("bert", {}), ("bert", TYPED), ("roberta", {}), ("distilbert", {})], ids=str
)
def test_scores_are_those_of_sentence_transformers(made_with_head, texts, architecture, options):
    path, reference = made_with_head("CrossEncoder", architecture, **options)
    for query in ("a question about cats", texts[-1], ""):
        pairs = [(query, text) for text in texts]
        expected = reference.predict(pairs, activation_fn=torch.nn.Identity())
        assert np.abs(Ranker.load(path).score(query, texts) - expected).max() < 1e-4
    assert Ranker.load(path).score("a", []).shape == (0,)


def test_a_cross_encoder_gives_no_vectors_and_an_encoder_no_scores(made, made_with_head):
    path, _ = made_with_head("CrossEncoder")
    with pytest.raises(ModelError, match="is a cross-encoder: it gives scores of pairs, not vectors"):
        DenseEncoder.load(path)
    path, _ = made()
    with pytest.raises(ModelError, match="scores no pairs"):
        Ranker.load(path)


def test_export(made_with_head, texts, tmp_path):
    path, _ = made_with_head("CrossEncoder")
    parity = exporting.export(path, tmp_path / "out")
    assert parity.fp32_difference < 1e-4
    int8, plain = Ranker.load(tmp_path / "out").score(texts[0], texts), Ranker.load(path).score(texts[0], texts)
    assert int8.shape == plain.shape
    assert 0 < np.abs(int8 - plain).max() < 0.5 * np.ptp(plain) + 0.5
