"""Searching with documents that are known to be relevant, on a real server."""

import numpy as np
import pytest

from termweave.errors import UsageError
from termweave.indexer.options import Window
from termweave.rerank import Rules, evidence
from termweave.search.features import like


def test_reranking_takes_the_evidence_of_the_liked_ones(index):
    hits = index.search(like=["json-2", "json-3"], rerank="rnn", k=39, explain=True)
    liked = like.encoding_of(index.open_generation, ["json-2", "json-3"])
    (found,) = index.candidates([liked], ["weights", "dense"], where="NOT id=json-2 AND NOT id=json-3", needs=("vectors",))
    ids = [hit.id for hit in hits if hit.id in found.vectors]
    vectors = np.stack([found.vectors[each] for each in ids] + list(liked.liked.vectors))
    expected = evidence(liked.vector, vectors, [len(ids), len(ids) + 1], weight=0.0, rules=Rules(clamp=True))
    said = {hit.id: next(part for part in hit.explain()["parts"] if part["name"] == "rnn")["jaccard"] for hit in hits}
    np.testing.assert_allclose([said[each] for each in ids], expected[: len(ids)], atol=1e-5)


def test_the_query_is_the_mean_of_what_is_stored(index):
    one = like.encoding_of(index.open_generation, ["json-2"])
    two = like.encoding_of(index.open_generation, ["json-2", "file-2"])
    assert one.text == "The json module, part 2: json functions"
    mean = two.liked.vectors.mean(axis=0)
    np.testing.assert_allclose(mean / np.linalg.norm(mean), two.vector, atol=1e-6)
    alone, together = one.weights.as_dict(), two.weights.as_dict()
    assert together["json"] == pytest.approx(alone["json"] / 2)
    assert len(together) <= like.TERMS


def test_a_long_document_does_not_hide_another(built, monkeypatch):
    long = " ".join(f"Sentence {number} tells of the json module." for number in range(40))
    texts = {"a": long, "b": "A socket.", "c": "Another socket."}
    index = built([{"id": key, "text": text} for key, text in texts.items()], passages=Window(30, 20))
    monkeypatch.setattr(like, "_MOST", 3)
    assert index.search(like=["a", "b"], k=1)[0].id == "c"
    liked = like.encoding_of(index.open_generation, ["a", "b"])
    assert liked.text.startswith("A socket. Sentence 0")  # the first passages of each, as many as are read
    assert len(liked.liked.vectors) == 3
    with pytest.raises(UsageError, match="4 documents are too many"):
        index.search(like=["a", "b", "c", "d"])
    assert index.explain("json", "a").signals
    with pytest.raises(UsageError, match="no document 'a#2'"):  # the key of a passage
        index.explain("json", "a#2")


def test_the_text_of_liked_documents_is_not_taken_for_typed_words(built):
    texts = {"a": 'Call "git rebase" with -i here', "b": "Call git merge", "c": "A rebase", "empty": ""}
    index = built([{"id": key, "text": text} for key, text in texts.items()], signals=("lexical",))
    answer = index.answer(like=["a"], totals=True)
    assert [hit.id for hit in answer.hits] == ["b", "c"]
    assert (answer.remarks, answer.totals.matching) == ((), None)
    assert index.answer(like=["empty"]).remarks == ()
    assert not index.search(like=["empty"])
    with pytest.raises(UsageError, match="no document 'nothing'"):
        index.search(like=["a", "nothing"])


def test_the_learned_field_is_searched_with_the_words_of_documents(built):
    subjects = ("timer", "json", "thread", "file")
    documents = [{"id": f"{each}-{number}", "text": f"The {each} module 3|5 100%"} for each in subjects for number in range(3)]
    index = built(documents, signals=("learned", "weights"), dense="none")
    for mode in ("learned", "weights"):
        assert {hit.id for hit in index.search(like=["json-1"], mode=mode, k=2)} == {"json-0", "json-2"}
