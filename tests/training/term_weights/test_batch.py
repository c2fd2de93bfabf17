"""A side of a batch, vectorised in torch, against the encoder, text by text in numpy."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from termweave.encoders.models.joint_model import HeadShape, JointModel, load_backbone, masked_mean
from termweave.encoders.term_weighting import Form, place_tags
from termweave.training.data.teacher_scores import units
from termweave.training.term_weights.batch import BatchSide, vocabulary_of
from termweave.training.term_weights.hidden_states import states
from termweave.training.term_weights.model import prepare, weigh
from tests.encoders.exact_scores import dot
from tests.training.conftest import randomised, read_by

FORMS = [
    Form("bm25"),
    Form("idf"),
    Form("none", "log"),
    Form("none", "linear", "sum"),
    Form("none", "log", beyond="none"),
    Form("idf", "softplus", "max", "one"),
    Form("none", "log", "max", "idf"),
    Form(tf_power=0.5),
]


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize(
    ("shape", "pooling", "prompt"),
    [(HeadShape(1, 16), "mean", ""), (HeadShape(1, 0, 0, gate=1, shared=1), "cls", "about granada: ")],
    ids=["deep", "linear-gated-prompt"],
)
def test_a_batch_scores_as_the_encoder_weighs(form, shape, pooling, prompt, texts, base, tmp_path):
    """Torch, vectorised, against numpy, text by text; cached states against whole passes."""
    torch.manual_seed(0)
    model = randomised(JointModel(load_backbone(base), shape, pooling))
    documents, questions = texts(form, prompt)
    vocabulary = vocabulary_of(questions, np.arange(6))
    sides = [BatchSide(questions, np.arange(6), vocabulary, "query"), BatchSide(documents, np.arange(12), vocabulary, "document")]
    found = []
    with torch.no_grad():
        for side in sides:
            ids, mask, features = side.padded()
            lower, last = model.states(ids, mask, features)
            seen = side.live(torch.cat((lower, last), dim=-1), masked_mean(torch.cat((lower, last), dim=-1), mask))
            head = model.heads.head(side.kind)
            found.append(side.weights(head.outer(side.inner(head, seen)).squeeze(-1)))
    scores = (found[0] @ found[1].T).numpy()
    given, asked = weigh(model, documents, "document"), weigh(model, questions, "query")
    expected = np.array([[dot(query, document) for document in given] for query in asked])
    assert scores == pytest.approx(expected, abs=1e-3, rel=1e-4)
    kept = states(model, "toy", documents.pieces, home=tmp_path)
    width = model.backbone.config.hidden_size
    with torch.no_grad():
        made = model(*sides[1].padded())[2].numpy()
    cosines = {each: float((units(kept.pooled(each)[:, -width:]) * made).sum(axis=1).mean()) for each in ("mean", "cls")}
    assert cosines.pop(pooling) > max(0.9, *(cosine + 0.05 for cosine in cosines.values()))
    cached = weigh(model, replace(documents, states=kept), "document")
    pairs = [(w, other.as_dict().get(t, 0.0)) for one, other in zip(given, cached, strict=True) for t, w in one.as_dict().items()]
    assert np.corrcoef(np.array(pairs).T)[0, 1] > 0.95  # the cache comes from the int8 graph


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_text_that_was_cut_weighs_as_the_encoder_weighs_it(form, everything, toy, base):
    """Occurrences, whole terms and dropped words beyond the model's sight, on both sides; some texts fit."""
    documents, questions, _ = toy
    common = read_by(base, documents)
    asked = [f"the {a} {b} about {a} the xyzzy {b} {a} the" for a, b in zip(questions[:6], questions[6:12], strict=True)]
    generator = np.random.default_rng(0)
    for kind, given, length in (("document", [*documents[:8], *questions[:2]], 9), ("query", [*asked, "about"], 8)):
        prepared = prepare(given, *common, kind, length, form)
        assert {
            anchor.term_of_piece(each.words).max() + 1 < len(anchor.terms)
            for anchor, each in zip(prepared.anchors, prepared.pieces, strict=True)
        } == {True, False}
        places = np.arange(len(given))
        vocabulary = {term: column for column, term in enumerate(list(vocabulary_of(prepared, places))[::2])}
        logits = [generator.normal(size=len(each.ids)).astype(np.float32) for each in prepared.pieces]
        side = BatchSide(prepared, places, vocabulary, kind, everything=everything)
        found = side.weights(torch.tensor([logits[row][place] for row, place in zip(side.row, side.place, strict=True)]))
        expected = np.zeros(side.shape)
        for row, (anchor, pieces, z) in enumerate(zip(prepared.anchors, prepared.pieces, logits, strict=True)):
            for term, weight in anchor.weights(z, pieces.words, kind).as_dict().items():
                if term in vocabulary:
                    expected[row, vocabulary[term]] = weight
        assert found.numpy() == pytest.approx(expected, abs=1e-5, rel=1e-5)


def test_place_tags():
    assert place_tags(np.array([-1, 0, 0, 1, 2, 2, 2, -1])).tolist() == [0, 1, 3, 4, 1, 2, 3, 0]
