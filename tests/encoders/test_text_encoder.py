"""The shipped model through the public interface."""

import random

import numpy as np
import pytest

import termweave
from termweave.encoders import DenseEncoder, TermWeighter, load
from termweave.encoders.kinds import read_folder
from termweave.encoders.term_weighting import BM25, Form, anchored
from termweave.errors import ModelError, UsageError
from termweave.statistics import CorpusStatistics

LONG = " ".join(f"filler{number % 50} sentence" for number in range(400)) + " zebra at the very end"
TEXTS = [
    "The cat sat on the mat.",
    "A dog barked at the cat; the cat ran.",
    "os.path joins path components.",
    "",
    "Zürich, Genève",
    LONG,
    "word",
    "👍",
    "a\ud800b\x00",
    "x" * 100_000,
    "the of and",
    *(
        f"{word} " * (1 + 7 * number % 40) for number, word in enumerate(["cat", "dog", "cell", "path", ""] * 12)
    ),  # several blocks
]


def bits(encodings):
    return [(each.weights.terms, each.weights.weights.tobytes(), each.vector.tobytes()) for each in encodings]


def test_records(encoder, statistics):
    encodings = encoder.encode(TEXTS, kind="document", statistics=statistics)
    assert [encoding.text for encoding in encodings] == TEXTS
    for encoding, terms in zip(encodings, encoder.analyse(TEXTS), strict=True):
        assert encoding.weights.terms == tuple(dict.fromkeys(terms))  # none lost, none twice
        assert encoding.weights.weights.dtype == encoding.vector.dtype == np.float32
        assert (encoding.weights.weights > 0).all()
        assert np.isfinite(encoding.weights.weights).all()
        assert encoding.vector.shape == (encoder.dimension,)
        assert np.linalg.norm(encoding.vector) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("kind", ["document", "query"])
def test_an_encoding_depends_on_nothing_but_the_text(encoder, statistics, kind):
    """Whatever the neighbours, the order, the number of threads and of texts prepared at a time: the same bits."""
    together = bits(encoder.encode(TEXTS, kind=kind, statistics=statistics))
    alone = [bits(encoder.encode([text], kind=kind, statistics=statistics))[0] for text in TEXTS]
    assert together == alone
    order = list(range(len(TEXTS)))
    random.Random(0).shuffle(order)
    one_thread = load(threads=1)
    shuffled = bits(one_thread.encode([TEXTS[place] for place in order], kind=kind, statistics=statistics))
    assert [together[place] for place in order] == shuffled


def test_words_beyond_the_models_sight_keep_their_anchor(encoder, statistics, analysis):
    weights = encoder.encode([LONG], kind="document", statistics=statistics)[0].weights.as_dict()
    form = Form.from_anchor(read_folder(encoder.models["weights"].folder).manifest.anchor)
    anchor = anchored(analysis.words([LONG])[0], statistics, BM25(), "document", form)
    expected = dict(zip(anchor.terms, anchor.fixed_weights(), strict=True))
    assert weights["zebra"] == pytest.approx(expected["zebra"], rel=1e-6)
    assert weights["filler0"] != pytest.approx(expected["filler0"], rel=1e-6)


def test_empty_texts_and_a_megabyte(encoder, statistics):
    assert encoder.encode([], kind="document", statistics=statistics) == []
    for encoding in encoder.encode(["", "  \n", "the"], kind="query", statistics=statistics):
        assert len(encoding.weights) == 0
        assert np.linalg.norm(encoding.vector) == pytest.approx(1, abs=1e-6)
    (encoding,) = encoder.encode(["needle " + "hay stack " * 100_000], kind="document", statistics=statistics)
    assert set(encoding.weights.terms) == {"needl", "hai", "stack"}


def test_vectors_and_weights_mean_something(encoder):
    texts = ["how to parse json", "reading JSON from a string", "cats purr"]
    a, b, c = (each.vector for each in encoder.encode(texts, kind="query"))
    assert a @ b > a @ c + 0.2
    words = {word.term: word.weight for word in encoder.shade("Photosynthesis, he says, happens in chloroplasts.")}
    assert words["chloroplast"] > words["sai"]
    assert words["photosynthesi"] > words["happen"]


def test_shade_covers_words_in_reading_order(encoder, statistics):
    text = "The cafe\u0301, “ﬁne” cafés!"
    shaded = encoder.shade(text, statistics=statistics)
    assert [(text[word.start : word.end], word.term) for word in shaded] == [
        ("The", ""),
        ("cafe\u0301", "cafe"),
        ("ﬁne", "fine"),
        ("cafés", "cafe"),
    ]
    assert shaded[0].weight == 0
    assert shaded[1].weight == shaded[3].weight > 0


def test_outputs_can_be_switched_off(encoder, statistics):
    weights, dense = load(dense="none"), load(weights="")
    assert list(weights.models) == ["weights"]
    assert list(dense.models) == ["dense"]
    assert weights.encode(["a cat"], kind="document", statistics=statistics)[0].vector is None
    assert dense.encode(["a cat"], kind="document")[0].weights is None
    assert dense.analysis is None
    for call in (dense.analyse, lambda texts: dense.shade(texts[0])):
        with pytest.raises(UsageError, match="no weights model"):
            call(["a"])
    nothing = load("none", "none").encode(["a cat"], kind="document")[0]
    assert (nothing.text, nothing.weights, nothing.vector) == ("a cat", None, None)


def test_facades(encoder, statistics):
    text = ["the cat sat on the mat"]
    joint = encoder.encode(text, kind="document", statistics=statistics)[0]
    weights = termweave.TermWeighter.load().encode(text, statistics=statistics)[0]
    assert weights.as_dict() == joint.weights.as_dict()
    vectors = termweave.DenseEncoder.load("shipped").encode(text)
    assert vectors.tobytes() == joint.vector.tobytes()
    assert DenseEncoder.load().encode([]).shape == (0, encoder.dimension)
    assert TermWeighter.load().encode([]) == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [("a text", "one text"), (5, "int"), (["a", None], "NoneType")],
)
@pytest.mark.parametrize("facade", [TermWeighter, DenseEncoder])
def test_what_is_no_list_of_texts_is_a_sentence(encoder, facade, wrong, message):
    with pytest.raises(UsageError, match=f"encode takes (a list of )?texts, not {message}"):
        facade(encoder).encode(wrong)


def test_statistics_of_another_analysis_are_refused(encoder):
    with pytest.raises(ModelError, match="other-analysis"):
        encoder.encode(["a"], kind="query", statistics=CorpusStatistics("other-analysis", 1, 1.0, {}))


def test_the_vector_is_the_same_whatever_else_is_asked_for(encoder, statistics):
    """Only what is asked for is computed."""
    text = "The cat sat on the mat of the mitochondrion."
    (both,) = encoder.encode([text], kind="document", statistics=statistics)
    (vector,) = encoder.only({"dense"}).encode([text], kind="document")
    (weights,) = encoder.only({"weights"}).encode([text], kind="document", statistics=statistics)
    assert vector.vector.tobytes() == both.vector.tobytes()
    assert weights.weights.weights.tobytes() == both.weights.weights.tobytes()


class Counting:
    """The real tokeniser, and how many characters it was given."""

    def __init__(self, tokenizer):
        self._tokenizer = tokenizer
        self.characters = 0

    def __getattr__(self, name):
        return getattr(self._tokenizer, name)

    def encode_batch(self, texts, **options):
        self.characters += sum(map(len, texts))
        return self._tokenizer.encode_batch(texts, **options)


MANY = 50_000


@pytest.mark.parametrize(
    ("text", "most"),
    [
        (LONG * 100, 5_000),
        ("a " * MANY, 5_000),
        ("extraordinarily-long/words_are.all,that;is here " * 1000, 5_000),
        (" " * MANY + LONG, 3 * MANY),
        ("\u0301 \u200d " * MANY + "words at the end", 3 * 4 * MANY),
        ("研究生命起源，" * 1000 + "\n" + "end " * MANY, 15_000),
        ("x" * MANY, MANY),
    ],
)
def test_a_model_of_vectors_alone_reads_no_more_of_a_text_than_it_sees(encoder, statistics, text, most):
    alone = load(weights="none")
    tokenizer = alone._dense.tokenizer
    tokenizer.tokenizer = counting = Counting(tokenizer.tokenizer)
    (found,) = alone.encode([text], kind="document")
    assert counting.characters <= most
    whole = tokenizer.encode([text], 8 * len(text))[0]
    seen = tokenizer.encode([text], encoder.models["dense"].max_length)[0]
    assert seen.ids[:-1].tolist() == whole.ids[:-1][: len(seen.ids) - 1].tolist()
    assert len(seen.ids) == min(len(whole.ids), encoder.models["dense"].max_length)
    joint = encoder.encode([text], kind="document", statistics=statistics)[0]
    assert found.vector.tobytes() == joint.vector.tobytes()
