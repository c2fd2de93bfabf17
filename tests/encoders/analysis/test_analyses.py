"""The analyses: one that never changes, Chinese words, word-pieces, seven languages; long texts, prompts; which languages a model knows."""

import random
import shutil
import time
from dataclasses import replace
from hashlib import blake2b
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import BertWordPieceTokenizer, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from termweave.encoders import load
from termweave.encoders.analysis.analyses import OF_LANGUAGE, VocabularyTerms, analysis_of
from termweave.encoders.analysis.model_familiarity import familiarity
from termweave.encoders.analysis.word_pieces import PieceTokenizer
from termweave.encoders.analysis.words import LONGEST_TERM, STOP_WORDS, Analysis, cleaned
from termweave.encoders.kinds import kind_of, read_folder
from termweave.encoders.manifest import write_manifest
from termweave.encoders.model_lookup import language_model, resolve, resolve_local
from termweave.encoders.term_weighting import BM25, Form, anchored
from termweave.errors import ModelError
from tests.corpora.languages import CORPORA, QUERIES
from tests.encoders.exact_scores import counted, dot

PIECES = PieceTokenizer(resolve("shipped") / "tokenizer.json")
IDS = ["bert-words.lucene33.porter.1", "bert-words.jieba.lucene33.porter.1", "bert-pieces.1"]
IDS += [f"bert-words.snowball.{language}.1" for language in ("german", "russian")]
MAKERS = [analysis_of(name, PIECES.tokenizer, model="test") for name in IDS]
WORDS, CHINESE, BY_PIECE = MAKERS[:3]
EACH = pytest.mark.parametrize("maker", MAKERS, ids=IDS)
AWKWARD = "ﬁﬄ👍🏽€½…’ßİıΣςé\u0301\u0327\u20e3\u200b\u200d\u00ad\ufeff\x00\x0c\x85\ud800\udc00你한か가ﷺ½Ⅷ𝒜\u2028.-_'\"[]#"
AWKWARD += " abc XYZ 012 the running שלום العربية豈ＡＢ１"
TEXTS = st.text(alphabet=st.one_of(st.sampled_from(AWKWARD + "中国西南部研究生命起源"), st.characters())) | st.text()


CASES = {
    "Chinese words": (CHINESE, "研究生命起源，南京市长江大桥。", ["研究", "生命", "起源", "南京市", "长江大桥"]),
    "Chinese among English": (CHINESE, "OpenSearch的running分词器v3.5", ["opensearch", "的", "run", "分词器", "v3", "5"]),
    "full width": (CHINESE, "ＡＢＣ１２", ["abc12"]),
    "Japanese and Korean stay": (CHINESE, "カナ 한국", ["カナ", "한국"]),
    "words next to symbols": (CHINESE, "中国👍西南部", ["中国", "👍", "西南部"]),
    "pieces": (BY_PIECE, "the unaffable, state-of-the-art 3.14", ["the", "una", "##ffa", "##ble", "state", "of", "the", "art", "3", "14"]),
    "a word that the vocabulary cannot write": (BY_PIECE, "a 龘 b", ["a", "龘", "b"]),
    "Hangul": (BY_PIECE, "한국", ["한", "##국"]),
    "pieces that meet inside a ligature": (BY_PIECE, "ﬃ", ["ff", "##i"]),
    "pieces of accented words": (BY_PIECE, "Zürich cafe\u0301", ["zurich", "cafe"]),
    "numbers and dots": (WORDS, "pi is 3.14 in os.path", ["pi", "3", "14", "o", "path"]),
    "hyphens": (WORDS, "state-of-the-art snake_case", ["state", "art", "snake", "case"]),
    "apostrophes": (WORDS, "don't, the world's; l’été", ["don", "t", "world", "l", "et"]),
    "ASCII symbols": (WORDS, "C++ & a+b $5", ["c", "b", "5"]),
    "emoji": (WORDS, "good👍 👍🏽 👨‍👩‍👧 10€", ["good", "👍", "👍", "🏽", "👨", "👩", "👧", "10", "€"]),
    "keycap": (WORDS, "1️⃣", ["1"]),
    "CJK": (WORDS, "你好world", ["你", "好", "world"]),
    "Hangul in English": (WORDS, "한국", ["한국"]),
    "ligatures": (WORDS, "ﬁnding the ﬄ", ["find", "ffl"]),
    "accents": (WORDS, "Café cafe\u0301 ZÜRICH", ["cafe", "cafe", "zurich"]),
    "zero width": (WORDS, "foo\u200bbar co\u00adop\u200der \ufeffbom", ["foo", "bar", "cooper", "bom"]),
    "controls": (WORDS, "end\x0cstart a\x85b x\x00y", ["end", "start", "b", "xy"]),
    "lone surrogates": (WORDS, "a\ud800b \udfff", ["ab"]),
    "special tokens are text": (WORDS, "[SEP] [MASK]", ["sep", "mask"]),
    "stop words": (WORDS, " ".join(STOP_WORDS), []),
    "stems": (WORDS, "running Runs ran", ["run", "run", "ran"]),
    "nothing": (WORDS, " \t\n", []),
    "Hebrew with points": (WORDS, "שָׁלוֹם עוֹלָם", ["שלום", "עולם"]),
    "Arabic with vowels and marks of direction": (WORDS, "\u202bالعَرَبِيَّة\u202c abc", ["العربية", "abc"]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_was_decided(name):
    maker, text, terms = CASES[name]
    assert maker.terms([text]) == [terms]


def test_an_id_keeps_its_exact_behaviour():
    """The shipped model and every index made with it stand on this one: a change of any term or offset needs a new id."""
    draw = random.Random(0)
    state = blake2b(digest_size=8)
    for _ in range(3000):
        text = "".join(draw.choice(AWKWARD) for _ in range(draw.randint(0, 60)))
        found = WORDS.words([text])[0]
        offsets = (each.tolist() for each in (found.starts, found.ends, found.clean_ends))
        said = (found.clean, *offsets, found.terms, WORDS.terms([text])[0])
        state.update(repr(said).encode("utf-8", "surrogatepass"))
    assert state.hexdigest() == "e797430e8334b4d1"


@EACH
@settings(max_examples=150, deadline=None)
@given(TEXTS)
@example("ﬃ")
@example("¬\u07a6")
@example("研究")
def test_words_slice_the_original_and_none_is_lost(maker, text):
    words = maker.words([text])[0]
    assert [term for term in words.terms if term] == maker.terms([text])[0]
    words.clean.encode()  # no lone surrogate is left
    previous = 0
    for start, end, term in zip(words.starts.tolist(), words.ends.tolist(), words.terms, strict=True):
        assert previous <= start <= end <= len(text)
        assert start < end or (maker is BY_PIECE and text[end - 1] in "ﬀﬁﬂﬃﬄﬅﬆ")
        previous = end
        assert not set(term) & set(" \t\n") or maker is not CHINESE
        if maker is not BY_PIECE:  # a piece by itself is another piece: ##ing, ing
            # A mark behind a symbol is shown with it, and is no part of its term.
            shown = maker.normalised(text[start:end])
            whole = shown if maker is CHINESE and len(term) > 1 else shown.split(" ")[0]  # blanks stand between ideographs, too
            assert maker._make_term(whole) == (term or None)
    spans = zip(words.starts.tolist(), words.ends.tolist(), strict=True)
    covered = {place for start, end in spans for place in range(start, end)}
    rest = "".join(character for place, character in enumerate(text) if place not in covered)
    assert maker.terms([rest]) == [[]]


@settings(max_examples=300, deadline=None)
@given(TEXTS)
@example("价格￥100元")
@example("ﬁ好")
@example("好\u20e3")
def test_bytes_of_a_character_stand_on_it_or_behind_it(text):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({byte: number for number, byte in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    maker = VocabularyTerms(tokenizer)
    words = maker.words([text])[0]
    assert words.terms == maker.terms([text])[0]
    assert len(words.terms) == len(words.clean.encode())
    places = np.column_stack((words.starts, words.ends)).ravel()
    assert (np.diff(places, prepend=0, append=len(text)) >= 0).all()


@EACH
@settings(max_examples=150, deadline=None)
@given(TEXTS, st.integers(3, 30))
def test_every_piece_belongs_to_the_word_it_is_of(maker, text, max_length):
    words = maker.words([text])[0]
    (pieces,) = PIECES.encode([words.clean], max_length, ends=[words.clean_ends])
    word = words.word_of_piece(pieces)
    assert (word[0], word[-1]) == (-1, -1)
    inner = word[1:-1].tolist()
    assert inner == sorted(inner)
    assert set(inner) == set(range(len(set(inner))))  # from the first word on, none left out
    if len(pieces.ids) < max_length:
        assert len(set(inner)) == len(words.terms)
    if maker is not BY_PIECE:
        whole = [words.clean_ends[place] > start for place, start in zip(inner, pieces.starts[1:-1].tolist(), strict=True)]
        assert all(whole)


@EACH
@settings(max_examples=300, deadline=None)
@given(TEXTS, st.integers(1, 8))
def test_a_text_in_parts_has_the_words_of_the_whole(maker, text, part):
    whole = maker.words([text])[0]
    with mock.patch("termweave.encoders.analysis.words._PART", part):
        cut = maker.words([text, "beside it"])[0]
        assert maker.terms([text]) == [[term for term in whole.terms if term]]
    assert cut.terms == whole.terms
    for name in ("starts", "ends", "clean_ends"):
        np.testing.assert_array_equal(getattr(cut, name), getattr(whole, name))


@settings(max_examples=200, deadline=None)
@given(TEXTS, st.integers(3, 30), st.integers(1, 4))
def test_a_text_of_which_the_beginning_is_cut_has_the_pieces_of_the_whole(text, max_length, characters):
    clean, _ = cleaned(text)
    (whole,) = PIECES.encode([clean], max_length + 8 * len(clean))
    with mock.patch("termweave.encoders.analysis.word_pieces._CHARACTERS", characters):
        found, _ = PIECES.encode([clean, "beside it"], max_length)
    room = max_length - 2
    for name in ("ids", "words", "starts"):
        assert getattr(found, name)[1:-1].tolist() == getattr(whole, name)[1:-1][:room].tolist()


@EACH
def test_the_whole_way_with_what_lies_beyond_the_models_sight(maker, tmp_path):
    """A model folder that names the analysis: terms get weights, and those that the model does not see their anchor."""
    shutil.copytree(resolve("shipped"), tmp_path / "model")
    folder = read_folder(tmp_path / "model")
    write_manifest(tmp_path / "model", replace(folder.manifest, analysis=maker.id, max_length=12))
    encoder = load(str(tmp_path / "model"), "none", threads=1)
    texts = ["研究生命起源 playing chess " * 4 + "南京市长江大桥 unaffable zebra", "", "zebra"]
    statistics = counted(encoder.analysis, encoder.analyse(texts))
    encodings = encoder.encode(texts, kind="document", statistics=statistics)
    for text, encoding in zip(texts, encodings, strict=True):
        anchor = anchored(maker.words([text])[0], statistics, BM25(), "document", Form.from_anchor(folder.manifest.anchor))
        assert encoding.weights.terms == anchor.terms == tuple(dict.fromkeys(maker.terms([text])[0]))
        plain = dict(zip(anchor.terms, anchor.fixed_weights().tolist(), strict=True))
        seen = set(maker.terms([text[:6]])[0])
        for term, weight in encoding.weights.as_dict().items():
            if term == "zebra" and text != "zebra":
                assert weight == pytest.approx(plain[term], rel=1e-6)
            elif term in seen:
                assert weight != pytest.approx(plain[term], rel=1e-6)
    shaded = encoder.shade(texts[0], statistics=statistics)
    assert texts[0][shaded[-1].start : shaded[-1].end] == "zebra"


def test_a_word_of_several_ideographs_takes_its_strongest_character():
    words = CHINESE.words(["南京市长江大桥"])[0]
    (pieces,) = PIECES.encode([words.clean], 99)
    anchor = anchored(words, counted(CHINESE.id, [words.terms]), BM25(), "document")
    logits = np.array([0, 1, 5, 2, -1, -2, -3, -4, 0], np.float32)
    weights = anchor.weights(logits, words.word_of_piece(pieces), "document").as_dict()
    base = dict(zip(anchor.terms, anchor.anchor.tolist(), strict=True))
    strongest = dict(zip(("南京市", "长江大桥"), Form().activate(np.array([5.0, -1.0])), strict=True))
    assert {term: weight / base[term] for term, weight in weights.items()} == pytest.approx(strongest, rel=1e-5)


def test_long_terms_are_dropped_and_counted():
    analysis = Analysis(PIECES.tokenizer)
    fits, long = "1" * LONGEST_TERM, "1" * (LONGEST_TERM + 1)
    assert analysis.terms([f"{fits} {long} {'9' * 100_000} word"]) == [[fits, "word"]]
    assert analysis.too_long == 2


@pytest.mark.parametrize("text", ["word " * 200_000, "a.b" * 330_000, "é👍" * 200_000, "x" * 1_000_000, "你" * 300_000])
def test_a_megabyte_is_no_trouble(text):
    def seconds(part):
        begun = time.process_time()
        WORDS.words([part])
        return time.process_time() - begun

    tenth = min(seconds(text[: len(text) // 10]) for _ in range(2))
    assert seconds(text) < 40 * max(tenth, 0.02)  # quadratic would be 100


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
    with pytest.raises(ModelError, match="prompt 'query: ' has 2 of the model's 4 tokens"):
        tokenizer.encode(["the cats sat"], 4, prompt="query: ")


def test_a_whole_text_is_counted_also_where_a_character_is_several_pieces(encoder):
    tokenizer = encoder._weights.tokenizer
    for text in ("the cats sat", "한국어 문서 검색", "한국어 문서를 검색합니다"):
        assert encoder.lengths([text]) == [len(tokenizer.encode([text], 512)[0].ids)]


#: Words -> terms; "" for a stop word. They also pin the version of Snowball: other stems need another id of the analysis.
TERMS = {
    "german": {"Bücher": "buch", "Büchern": "buch", "Häuser": "haus", "für": "", "und": "", "Straße": "strass", "läuft": "lauft"},
    "french": {"nationales": "national", "chevaux": "cheval", "les": "", "était": "", "créée": "cre", "café": "caf"},
    "spanish": {"corrieron": "corr", "niños": "nin", "canción": "cancion", "canciones": "cancion", "está": "", "más": ""},
    "portuguese": {"cidades": "cidad", "cidade": "cidad", "ações": "aco", "não": "", "também": ""},
    "italian": {"città": "citt", "pompe": "pomp", "pompa": "pomp", "perché": "", "della": ""},
    "dutch": {"pompen": "pomp", "pomp": "pomp", "huizen": "huis", "het": "", "een": ""},
    "russian": {"книгами": "книг", "книга": "книг", "ёлки": "елк", "елка": "елк", "не": "", "и": ""},
}


@pytest.mark.parametrize("language", TERMS)
def test_stems_and_stop_words(language):
    analysis = OF_LANGUAGE[language](PIECES.tokenizer)
    words = list(TERMS[language])
    terms = [analysis.words([word])[0].terms for word in words]
    assert {word: "".join(term) for word, term in zip(words, terms, strict=True)} == TERMS[language]
    assert analysis.terms(["Café"]) == analysis.terms(["Cafe\u0301"])


@pytest.mark.parametrize("language", CORPORA)
def test_inflected_words_are_found_by_bm25_alone(language):
    encoder = load(weights=language_model(language), dense="none")
    texts = CORPORA[language]
    statistics = counted(encoder.analysis, encoder.analyse(texts))
    documents = [each.weights for each in encoder.encode(texts, kind="document", statistics=statistics)]
    for query, best in QUERIES[language].items():
        (asked,) = encoder.encode([query], kind="query", statistics=statistics)
        scores = [dot(asked.weights, document) for document in documents]
        assert int(np.argmax(scores)) == best, query
        assert sorted(scores)[-2] < max(scores)
    anchor = anchored(encoder._analysis().words(texts[:1])[0], statistics, BM25(), "document")
    assert np.allclose(documents[0].weights, anchor.anchor)
    assert encoder.lengths(texts) == [0] * len(texts)
    assert {coverage.analyzer for coverage in encoder.familiarity(texts).values()} == {language}


def test_the_folders_are_found_by_name_here_and_from_an_index():
    for language in CORPORA:
        folder = read_folder(resolve(f"bm25-{language}"))
        assert resolve_local(f"bm25-{language}") == folder.path
        assert folder.manifest.analysis == OF_LANGUAGE[language].id
    assert len({read_folder(resolve(f"bm25-{language}")).manifest.hash for language in CORPORA}) == len(CORPORA)
    assert language_model("klingon") is None
    with pytest.raises(ModelError, match="has no graph to export"):
        kind_of(folder.manifest)(folder).load_torch()


@pytest.fixture
def familiar(encoder):
    """A function: how the shipped model knows some texts."""

    def call(texts):
        (found,) = set(encoder.familiarity(texts).values())  # weights and vectors are one model's
        return found

    return call


GERMAN = "Die Stadt liegt am Rhein. Der Bürgermeister erklärte, dass die Verhandlungen mit den Gewerkschaften fortgesetzt werden."
RUSSIAN = "Город расположен на берегу реки и был основан в 1245 году."
ENGLISH = (
    "The pump brings the water to the tank. The filter is cleaned every month. The valve is not tight and has to be replaced. Two persons are "
    "needed for the work in the van de Graaff building of La Jolla."
)
#: Language -> (text, analyzer).
FOREIGN = {
    "Turkish": (("Şehir nehrin kıyısında yer alır ve 1245 yılında kurulmuştur. Belediye başkanı sendikalarla görüşmelerin "
                "önümüzdeki hafta devam edeceğini açıkladı. Hava kötü olduğunda birçok insan evde kalır."), "standard"),
    "Arabic": ("القاهرة هي عاصمة جمهورية مصر العربية وأكبر مدنها وتقع على ضفاف النيل", "standard"),
    "Hebrew": ("ירושלים היא עיר הבירה של ישראל", "standard"),
    "Chinese": ("重庆是中国西南部的一个直辖市。", "cjk"),
    "Japanese": ("京都は日本の都市です。川のほとりにあり、1245年に設立されました。", "cjk"),
    "Korean": ("서울은 대한민국의 수도이다.", "cjk"),
    "Thai": ("กรุงเทพมหานครเป็นเมืองหลวงของประเทศไทย", "thai"),
    "Greek": ("Η Αθήνα είναι η πρωτεύουσα της Ελλάδας", "greek"),
}  # fmt: skip
KNOWN = {
    "prose": "The city lies on the river and was founded in 1245. When the weather is bad, people stay at home with a book.",
    "biomedicine": "Hyperhomocysteinemia is an independent risk factor for atherothrombosis and for venous thromboembolism.",
    "code": "def read_json(path): return json.loads(Path(path).read_text(encoding='utf-8')) if os.path.exists(path) else None",
    "numbers": "1.5 2.7 3.14 100 % -- 2020-11-21",
    "nothing": "",
    "one foreign word": "Weltschmerz",
    "an English text that cites": "The word 東京 means Tokyo, the capital of Japan, " + "a country of many islands. " * 3,
}


@pytest.mark.parametrize(
    ("texts", "analyzer"),
    [([text] * 3, analyzer) for text, analyzer in FOREIGN.values()] + [(texts, language) for language, texts in CORPORA.items()],
    ids=[*FOREIGN, *CORPORA],
)
def test_other_languages_are_foreign(familiar, texts, analyzer):
    assert (familiar(texts).verdict, familiar(texts).analyzer) == ("foreign", analyzer)


@pytest.mark.parametrize("kind", KNOWN)
def test_english_of_every_kind_is_known(familiar, kind):
    assert familiar([KNOWN[kind]] * 3).verdict == "known"
    assert familiar([ENGLISH]).analyzer == "english"


def test_reasons_name_script_or_figures(familiar):
    found = familiar([KNOWN["prose"], KNOWN["prose"], FOREIGN["Chinese"][0]])
    assert found.verdict == "mixed"
    assert 0.1 < found.unknown < 0.5
    assert "(CJK)" in found.reason
    assert "100% of the words are in a script (Arabic)" in familiar([FOREIGN["Arabic"][0]]).reason
    assert "it looks like German: 0% function words of English" in familiar([GERMAN] * 3).reason


def test_models_of_other_languages_are_not_measured_by_english():
    of_shipped = PIECES.tokenizer
    assert familiarity([GERMAN] * 3, of_shipped, None).verdict == "known"  # word-pieces show a script, and no language
    chinese = characters(FOREIGN["Chinese"][0])
    for language, verdict in (("Chinese", "known"), ("Arabic", "foreign")):
        assert familiarity([FOREIGN[language][0]], chinese, "Chinese").verdict == verdict
    found = familiarity([f"{FOREIGN['Chinese'][0]}研究α射线"] * 3, of_shipped, "Chinese")
    assert "of the words are unknown to it" in found.reason  # the few Greek letters beside do not matter


def test_a_vocabulary_of_characters_reads_what_it_has_letters_of():
    """A backbone from scratch has no piece of several letters, whatever the language of its corpus."""
    own = characters(f"{KNOWN['prose']} {GERMAN}".lower().translate(str.maketrans("äöü", "aou")))
    assert familiarity([KNOWN["prose"]] * 3, own, "English").verdict == "known"
    assert "0% function words of English" in familiarity([GERMAN] * 3, own, "English").reason
    assert "in a script (Cyrillic)" in familiarity([RUSSIAN], own, "English").reason
    assert familiarity([RUSSIAN], characters(RUSSIAN.lower()), None).verdict == "known"


def characters(text):
    """A tokeniser over the characters of a text."""
    letters = dict.fromkeys(text)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
    return BertWordPieceTokenizer({token: place for place, token in enumerate(vocabulary)})._tokenizer


@pytest.mark.parametrize("make", ["byte_level", "unigram"])
def test_vocabularies_that_are_no_word_pieces(make):
    """Byte-level and Unigram tokenisers: their scripts are found in the way they write pieces; Unigram's unknown ids count."""
    words = [f"{a}{b}{c}" for a in "бвгджз" for b in "аеиоу" for c in ("ть", "ка", "сло", "рын", "мост", "лес", "дом", "пол")]
    english = [f"{a}{b}{c}" for a in "bcdfgh" for b in "aeiou" for c in ("t", "lk", "st", "ring", "nder", "rm", "mp", "sh")]
    if make == "byte_level":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        sentences = [" ".join((words + english)[place::7]) for place in range(7)]
        tokenizer.train_from_iterator(sentences * 3, trainers.BpeTrainer(vocab_size=4000, show_progress=False))
    else:
        pieces = [("<unk>", 0.0), ("\u2581", -3.0), *((f"\u2581{word}", -8.0) for word in words + english)]
        tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    assert familiarity([" ".join(words)], tokenizer, None).verdict == "known"
    assert familiarity([" ".join(words)], tokenizer, None).script == "Cyrillic"
    greek = familiarity(["αβγ δεζ ηθι " * 30], tokenizer, None)
    assert (greek.verdict, greek.script, greek.unknown) == ("foreign", "Greek", 1)
