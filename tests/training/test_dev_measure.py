"""Development figures are made with impacts as an index stores them."""

import numpy as np

from termweave.contracts.signal import Fitting
from termweave.encoders.term_weighting import Form
from termweave.records import Capabilities, Encoding, TermWeights
from termweave.signals.weights import Weights
from termweave.training.dev_measure import rankings, stored
from termweave.training.term_weights.model import weigh
from tests.training.conftest import randomised


def test_impacts_are_stored_as_an_index_stores_them(texts, model):
    """No term is lost, and the scale is that of the signal."""
    documents, _ = texts(Form())
    before = [*weigh(randomised(model), documents, "document"), TermWeights((), np.zeros(0, dtype=np.float32))]
    signal = Weights.fit(Fitting(Capabilities(""), [Encoding("", each) for each in before]))
    for one, other in zip(before, stored(before), strict=True):
        assert other.terms == one.terms
        assert other.weights.tolist() == signal.quantise(one.weights).tolist()
    assert stored([]) == []


def test_a_model_that_has_diverged_ranks_nothing():
    """Its next loss ends the run, with advice."""
    documents = np.ones((30, 4), np.float32)
    assert [len(places) for places, _ in rankings(np.full((2, 4), np.nan, np.float32), documents, 10)] == [0, 0]
    documents[5:] = np.nan
    assert [places.tolist() for places, _ in rankings(np.ones((1, 4), np.float32), documents, 10)] == [[0, 1, 2, 3, 4]]
