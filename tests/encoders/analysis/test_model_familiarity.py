"""Whether a model knows the language of a text: the shipped model's tokeniser, and a Chinese one."""

import pytest
from tokenizers import BertWordPieceTokenizer, Tokenizer, models, pre_tokenizers, trainers

from termweave.encoders import load
from termweave.encoders.analysis.model_familiarity import familiarity
from tests.corpora.languages import CORPORA


@pytest.fixture
def familiar(encoder):
    """A function: how the shipped model knows some texts."""

    def call(texts):
        (found,) = set(encoder.familiarity(texts).values())  # weights and vectors are one model's
        return found

    return call


@pytest.fixture
def tokenizer(encoder):
    return encoder._weights.tokenizer.tokenizer


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
    "an English text that cites": "The word 東京 means Tokyo, and it is the capital of Japan, "
    + "a country of many islands. " * 3,
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


def test_models_of_other_languages_are_not_measured_by_english(tokenizer):
    assert (
        familiarity([GERMAN] * 3, tokenizer, None).verdict == "known"
    )  # word-pieces say nothing of a language: only the script does
    chinese = characters(FOREIGN["Chinese"][0])
    for language, verdict in (("Chinese", "known"), ("Arabic", "foreign")):
        assert familiarity([FOREIGN[language][0]], chinese, "Chinese").verdict == verdict
    found = familiarity([f"{FOREIGN['Chinese'][0]}研究α射线"] * 3, tokenizer, "Chinese")
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


def test_without_a_model_there_is_nothing_to_say():
    assert load("none", "none").familiarity(["text"]) == {}


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
