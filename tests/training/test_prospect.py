"""What a run has before it: the pool that it is judged by, and what it says of the corpus."""

import json

import pytest

from termweave.encoders.folder import resolve
from termweave.training import methods
from termweave.training.prospect import prospect


@pytest.fixture
def made(tmp_path, base):
    """A prospect over a corpus file of one's own; returns it and what was said."""

    def make(text, count=120, **given):
        corpus = tmp_path / "corpus.jsonl"
        lines = [
            {"_id": str(n), "title": text.format(n), "text": f"{text.format(n)} {text.format(n * 7 % 50)} {'filler ' * (n % 9)}"}
            for n in range(count)
        ]
        corpus.write_text("\n".join(json.dumps(line, ensure_ascii=False) for line in lines), encoding="utf-8")
        said = []
        settings = methods.get("fectek").settings({"backbone": str(base), "dev": 10, "documents": 20, **given})
        return prospect(str(corpus), settings, tmp_path, said.append), said

    return make


def test_the_pool_is_hard_for_the_yardstick_whatever_the_anchor(made):
    plain, _ = made("the mortar of granada number {}")
    other, _ = made("the mortar of granada number {}", k1=0.1, b=0.0)
    assert other.bm25 != plain.bm25
    assert other.places == plain.places


@pytest.mark.parametrize(
    ("text", "warned"), [("the mortar of the house in granada is as old as number {}", False), ("研究生命起源的问题 {}", True)]
)
def test_a_backbone_that_does_not_know_the_language_is_said(made, text, warned):
    _, said = made(text, backbone=str(resolve("shipped")))
    assert any(line.startswith("Warning: the backbone does not know the language") for line in said) == warned
