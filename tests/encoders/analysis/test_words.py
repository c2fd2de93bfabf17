"""Long texts, and word-pieces behind a prompt; `test_registry` proves what holds of the words of every analysis."""

import time

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from termweave.encoders.analysis.word_pieces import PieceTokenizer
from termweave.encoders.analysis.words import LONGEST_TERM, Analysis
from termweave.encoders.model_lookup import resolve
from termweave.errors import ModelError

ANALYSIS = Analysis(PieceTokenizer(resolve("shipped") / "tokenizer.json").tokenizer)


def test_long_terms_are_dropped_and_counted():
    analysis = Analysis(PieceTokenizer(resolve("shipped") / "tokenizer.json").tokenizer)
    fits, long = "1" * LONGEST_TERM, "1" * (LONGEST_TERM + 1)
    assert analysis.terms([f"{fits} {long} {'9' * 100_000} word"]) == [[fits, "word"]]
    assert analysis.too_long == 2


@pytest.mark.parametrize("text", ["word " * 200_000, "a.b" * 330_000, "é👍" * 200_000, "x" * 1_000_000, "你" * 300_000])
def test_a_megabyte_is_no_trouble(text):
    def seconds(part):
        begun = time.process_time()
        ANALYSIS.words([part])
        return time.process_time() - begun

    tenth = min(seconds(text[: len(text) // 10]) for _ in range(2))
    whole = seconds(text)
    assert whole < 40 * max(tenth, 0.02)  # quadratic would be 100


TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "query", ":", "the", "cat", "##s", "sat"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    made = Tokenizer(models.WordPiece({token: place for place, token in enumerate(TOKENS)}, unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    file = tmp_path_factory.mktemp("pieces") / "tokenizer.json"
    made.save(str(file))
    return PieceTokenizer(file)


def tokens(pieces):
    return [TOKENS[number] for number in pieces.ids]


def test_a_prompt_is_read_before_the_text_and_belongs_to_no_word(tokenizer):
    alone, behind = (tokenizer.encode(["the cats sat"], 20, prompt=prompt)[0] for prompt in ("", "query: "))
    assert tokens(behind) == ["[CLS]", "query", ":", *tokens(alone)[1:]]
    assert behind.words.tolist() == [-1, -1, -1, 0, 1, 1, 2, -1]
    assert behind.starts.tolist() == [-1, -1, -1, 0, 4, 7, 9, -1]


def test_the_special_tokens_are_those_of_the_tokeniser(tokenizer, tmp_path):
    """MPNet's vocabulary holds [CLS] and [SEP] among its words."""
    other = Tokenizer.from_str(tokenizer.tokenizer.to_str())
    other.post_processor = processors.TemplateProcessing("the $A ##s", special_tokens=[("the", 6), ("##s", 8)])
    other.save(str(tmp_path / "tokenizer.json"))
    (pieces,) = PieceTokenizer(tmp_path / "tokenizer.json").encode(["cat sat"], 20)
    assert tokens(pieces) == ["the", "cat", "sat", "##s"]


def test_the_prompt_takes_room_of_the_text(tokenizer):
    (words,) = Analysis(tokenizer.tokenizer).words(["the cats sat"])
    for ends in (None, [words.clean_ends]):
        (cut,) = tokenizer.encode(["the cats sat"], 6, ends=ends, prompt="query: ")
        assert tokens(cut) == ["[CLS]", "query", ":", "the", "cat", "[SEP]"]
    with pytest.raises(ModelError, match="reads 4 tokens; its prompt 'query: ' has 2"):
        tokenizer.encode(["the cats sat"], 4, prompt="query: ")


def test_a_whole_text_is_counted_also_where_a_character_is_several_pieces(encoder):
    tokenizer = encoder._weights.tokenizer
    for text in ("the cats sat", "한국어 문서 검색", "한국어 문서를 검색합니다"):
        assert encoder.lengths([text]) == [len(tokenizer.encode([text], 512)[0].ids)]
