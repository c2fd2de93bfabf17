"""A kind of model that run, loop and data layer do not know is trained by the contract of its method."""
# ruff: noqa: ARG002 - the contract names the arguments

import json
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Annotated, ClassVar, Literal

import numpy as np
import pytest
import torch

from termweave.declared_settings import settings_of
from termweave.training import mixture
from termweave.training.data.sampler import AnsweredQuestions
from termweave.training.dev_measure import DevelopmentSet, ranking_measure
from termweave.training.methods import base as methods
from termweave.training.methods.base import Method
from termweave.training.methods.parameters import PRESET, NegativesParameters, TrainingParameters
from tests.training.conftest import SMALL


@dataclass(frozen=True)
class BagParameters(NegativesParameters, TrainingParameters):
    """The parameters of bags."""

    heading: ClassVar[str] = "Of bags"
    preset: Annotated[Literal["default"], PRESET] = "default"


@dataclass(frozen=True)
class BagDevelopment(DevelopmentSet):
    texts: tuple = ()

    def bm25(self):
        return np.zeros(len(self.pairs))

    @torch.no_grad()
    def figures(self, model, *, unrounded=False):
        documents, questions = (vectors(model.words, texts) for texts in self.texts)
        scores = (questions @ documents.T).numpy()
        best = np.argsort(-scores, axis=1, kind="stable")[:, :10]
        rankings = [(places, row[places]) for places, row in zip(best, scores, strict=True)]
        return [ranking_measure(rankings, self.gains(), "MRR@10")]


class Bags(Method):
    """A kind of model of its own: a text is the sum of its words' vectors; the backbone gives nothing but its length."""

    name, kind, parameters = "bags", "bags", BagParameters

    def build(self, settings, backbone):
        torch.manual_seed(0)
        model = torch.nn.Module()
        model.backbone = torch.nn.Module()
        model.backbone.config = SimpleNamespace(max_position_embeddings=64)
        model.words = torch.nn.EmbeddingBag(200, 16, mode="sum")
        return model

    def trained(self, model, settings):
        return {"words": model.words}

    def inputs(self, part, model, say):
        setup = part.setup
        documents = part.once("documents", lambda: ids(part, setup.texts))
        return SimpleNamespace(share=1.0, pairs=setup.train, documents=documents, questions=ids(part, setup.train.questions))

    def held_out(self, part, model, say):
        documents = part.once("documents", lambda: pytest.fail("computed again"))
        return BagDevelopment(part.setup, "MRR@10", (documents, ids(part, part.setup.dev.questions)))

    def draw(self, inputs, settings, generator, questions):
        return AnsweredQuestions.draw(questions(), inputs.pairs.relevant, [], 0, generator)

    def loss(self, fit, batch):
        asked = vectors(fit.words, [batch.inputs.questions[place] for place in batch.drawn.questions])
        given = vectors(fit.words, [batch.inputs.documents[place] for place in batch.drawn.documents])
        return {"contrast": torch.nn.functional.cross_entropy(asked @ given.T, torch.arange(len(asked)))}


def ids(part, texts):
    return [torch.tensor(pieces.ids) for pieces in part.setup.tokenizer.encode(texts, 64)]


def vectors(words, texts):
    starts = np.concatenate(([0], np.cumsum([len(text) for text in texts])[:-1]))
    return words(torch.cat(texts), torch.tensor(starts))


def test_a_new_kind_of_model_is_trained(folder, base, tmp_path):
    method = Bags()
    assert not {"terms", "hidden"} & settings_of(method.parameters).keys()  # none of term weights' parameters
    given = [setting for setting in SMALL if setting.partition("=")[0] != "hidden"]
    settings = method.settings(
        methods.read_assignments((*given, f"backbone={base}", "steps=120", "every=20", "patience=9", "top_layers=0"))
    )
    data = mixture.parts(str(folder), settings, tmp_path, lambda _: None)
    said = []
    trained = mixture.learn(method, settings, data, tmp_path / "run", say=said.append)
    assert max(trained.history.values) > trained.history.values[0]
    assert trained.history.losses[-1] < trained.history.losses[1] / 1.2
    assert any("dev MRR@10" in line or "dev nDCG@10" in line for line in said)
    assert json.loads((next((tmp_path / "run").glob("checkpoint-*")) / "history.json").read_text())["steps"][0] == 0
