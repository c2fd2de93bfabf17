"""The best passages of a hit: their scores, offsets and neighbours."""

import pytest

from termweave.errors import UsageError
from termweave.search.features.passages import parse
from termweave.ui import searching
from tests.search.conftest import index_of

FILLER = "The committee met again on that day and spoke for a long time about nothing of interest to anybody."
TEXTS = {
    "letters": f"{FILLER} {FILLER} A red kettle boils water for the tea of the guests in the kitchen. {FILLER} {FILLER} {FILLER} "
    f"Green tea wants water of eighty degrees, and the kettle may rest for a minute. {FILLER} {FILLER} {FILLER} {FILLER}",
    "short": "A kettle for tea.",
    "other": " ".join([FILLER] * 6 + ["Whoever drinks tea needs a kettle."] + [FILLER] * 3),
}


@pytest.fixture(scope="module")
def index(opensearch_engine):
    """Two long documents in passages of 30 words, and a short one."""
    with index_of(opensearch_engine, [{"id": key, "text": text} for key, text in TEXTS.items()], passages=30) as opened:
        yield opened


@pytest.mark.parametrize("mode", ["weights", "hybrid"])
def test_the_best_passages_have_scores_and_offsets(index, mode):
    hits = {hit.id: hit for hit in index.search("tea kettle", mode=mode, passages=2, k=3)}
    assert hits["short"].passages == ()
    first, second = hits["letters"].passages
    assert all(any(part in each.text for each in (first, second)) for part in ("red kettle", "Green tea"))
    for hit in (hits["letters"], hits["other"]):
        assert all(each.text == TEXTS[hit.id][each.start : each.end] for each in hit.passages)
        # The best one is the one that the search found, with its score.
        best = hit.passages[0]
        if mode != "hybrid":
            assert (best.number, best.score) == (hit.passage.number, pytest.approx(hit.score, rel=1e-4))
    assert first.score >= second.score > 0
    assert first.end <= second.start or second.end <= first.start
    for rerank in ("rnn", "rnn@dense"):  # one scales the scores of the signals, the other replaces them
        reranked = index.search("tea kettle", mode=mode, rerank=rerank, passages=2, k=3)
        assert {hit.id: hit.passages for hit in reranked} == {key: hit.passages for key, hit in hits.items()}


def test_a_document_is_shown_without_what_its_passages_share(index):
    assert index.lineage.passages["count"] > len(TEXTS)
    assert {key: searching.content_of(index, key)[1] for key in TEXTS} == TEXTS


def test_neighbours_are_joined_at_their_offsets(index):
    def of_other(**given):
        return next(hit for hit in index.search("tea kettle", k=3, **given) if hit.id == "other").passages

    (alone,), (wide,), (whole,) = of_other(passages=1), of_other(passages="1+1"), of_other(passages="1+20")
    assert (wide.number, wide.score) == (alone.number, pytest.approx(alone.score))
    assert wide.start < alone.start < alone.end <= wide.end
    assert wide.text == TEXTS["other"][wide.start : wide.end]
    assert whole.text == TEXTS["other"]
    assert len(of_other(passages="20+20")) == 1  # the neighbours of the best one are the whole text
    numbers = [each.number for each in of_other(passages="20+1")]
    assert all(abs(one - other) > 1 for one in numbers for other in numbers if one != other)


@pytest.mark.parametrize("value", ["0", "21", "3+", "three", "3+21"])
def test_what_is_not_a_number_of_passages_is_said(value):
    with pytest.raises(UsageError, match="how many passages"):
        parse(value)
