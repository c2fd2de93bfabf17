"""A BERT small enough to train in seconds, randomly initialised, with a tokeniser of its own, and a toy collection."""

import json
import random
import shutil
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from io import StringIO
from string import ascii_lowercase

import pytest

from termweave.cli import run
from tests.beir_folder import beir_folder

torch = pytest.importorskip("torch", reason="training needs the extra [train]")
pytest.importorskip("transformers", reason="training needs the extra [train]")
pytest.importorskip("accelerate", reason="training needs the extra [train]")
pytest.importorskip("onnx", reason="exporting needs the extra [train]")

SUBJECTS = [f"{a}{b}" for a in ("gran", "mor", "tel", "vex", "lum") for b in ("ada", "ino", "ust", "ert")]
NOISE = [f"{a}{b}" for a in ("fil", "pad", "oth", "com") for b in ("ler", "ing", "ers", "mon", "ish")]
#: How a subject is asked for.
WAYS = ("{}", "about {}", "{} filler", "padmon {}")
#: Settings of a run of seconds.
SMALL = ("hidden=16", "max_length=64", "training_length=64", "batch=12", "rate=0.005", "dev=8", "every=10")


def passage(subject, generator):
    """A marker stands before the word that matters; BM25 cannot know."""
    words = generator.choices(SUBJECTS, k=6) + generator.choices(NOISE, k=6)
    generator.shuffle(words)
    return " ".join([*words[:6], "about", subject, *words[6:]])


@pytest.fixture(scope="session")
def toy():
    """Documents, and questions each with the one document that is about it."""
    generator = random.Random(0)
    subjects = generator.choices(SUBJECTS, k=160)
    documents = [passage(subject, generator) for subject in subjects]
    relevant = [frozenset(place for place, subject in enumerate(subjects) if subject == asked) for asked in SUBJECTS]
    return documents, SUBJECTS, relevant


@pytest.fixture(scope="session")
def base(tmp_path_factory):
    """A transformers folder: 3 layers, width 32."""
    return small_backbone(tmp_path_factory.mktemp("base"), ["about", *SUBJECTS, *NOISE])


def small_backbone(path, words):
    """Write a random BERT with these words and all letters as word-pieces."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
    from transformers import BertConfig, BertModel

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokens = [*special, *words, *ascii_lowercase, *(f"##{letter}" for letter in ascii_lowercase)]
    tokenizer = Tokenizer(models.WordPiece({token: place for place, token in enumerate(tokens)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.save(str(path / "tokenizer.json"))
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64}
    config = BertConfig(vocab_size=len(tokens), **sizes, max_position_embeddings=64)
    BertModel(config, add_pooling_layer=False).save_pretrained(path)
    return path


@pytest.fixture(scope="session")
def complete(base, tmp_path_factory):
    """The small backbone with the special tokens that transformers adds to every text and between the texts of a pair."""
    from tokenizers import Tokenizer, processors

    path = shutil.copytree(base, tmp_path_factory.mktemp("complete") / "complete")
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    special = [(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", special)
    tokenizer.save(str(path / "tokenizer.json"))
    tokens = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    (path / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizer", "model_max_length": 64, **tokens})
    )
    return path


def describe_pooling(folder, pooling, prompts=None, more=()):
    """Describe in a backbone's folder, as sentence-transformers does, how it pools, and its prompts; text of `pooling` is written as it is."""
    modules = (("", "Transformer"), ("1_Pooling", "Pooling"), *more)
    described = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in modules]
    (folder / "modules.json").write_text(json.dumps(described))
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"prompts": prompts or {}}))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(pooling if isinstance(pooling, str) else json.dumps(pooling))
    return folder


@pytest.fixture
def trained_folder(base, tmp_path):
    """A function: write a model with these heads as a folder that `export` takes."""
    from termweave.encoders.analysis.words import ANALYSIS
    from termweave.encoders.manifest import Manifest
    from termweave.encoders.models import joint_model

    def write(model):
        shutil.copy(base / "tokenizer.json", tmp_path)
        bm25 = {"kind": "bm25", "k1": 1.2, "b": 0.75}
        manifest = Manifest("toy", "anchored", ("weights", "dense"), "", 64, analysis=ANALYSIS, anchor=bm25)
        joint_model.save(model, tmp_path, manifest)
        return tmp_path

    return write


@pytest.fixture
def model(base):
    from termweave.encoders.models import transformer
    from termweave.encoders.models.joint_model import HeadShape, JointModel

    torch.manual_seed(0)
    return JointModel(transformer.load_backbone(base), HeadShape(layer=1, hidden=16))


def read_by(base, documents):
    """What `prepare` reads texts with: the analysis of a backbone, its tokeniser, the statistics of these documents, and BM25."""
    from termweave.encoders.analysis.word_pieces import PieceTokenizer
    from termweave.encoders.analysis.words import Analysis
    from termweave.encoders.term_weighting import BM25
    from termweave.training.data.pairs import count

    tokenizer = PieceTokenizer(base / "tokenizer.json")
    analysis = Analysis(tokenizer.tokenizer)
    return analysis, tokenizer, count([documents], analysis), BM25()


@pytest.fixture
def texts(toy, base):
    """A function: twelve documents and six questions, prepared with a form of weights."""
    from termweave.training.term_weights.model import prepare

    documents, questions, _ = toy
    common = read_by(base, documents)
    asked = [f"{one} {two} about {one} xyzzy" for one, two in zip(questions[:6], questions[6:12], strict=True)]

    def prepared(form, prompt=""):
        return prepare(documents[:12], *common, "document", 64, form), prepare(asked, *common, "query", 64, form, prompt)

    return prepared


@pytest.fixture(scope="session")
def folder(toy, tmp_path_factory):
    """The toy collection as a BEIR folder, which no test changes; every subject is asked for in several ways."""
    documents, questions, relevant = toy
    texts = {f"d{n}": text for n, text in enumerate(documents)}
    asked = {f"q{n}-{way}": form.format(text) for n, text in enumerate(questions) for way, form in enumerate(WAYS)}
    rows = [(f"q{n}-{way}", f"d{each}") for n, known in enumerate(relevant) for way in range(len(WAYS)) for each in known]
    return beir_folder(tmp_path_factory.mktemp("toy") / "toy", texts, asked, train=rows)


@pytest.fixture
def own_cache(monkeypatch, tmp_path_factory):
    monkeypatch.setattr("termweave.support.paths.cache", lambda: tmp_path_factory.getbasetemp() / "cache")


def set_options(*settings):
    """`--set` before each setting."""
    return [word for each in settings for word in ("--set", each)]


def train(folder, base, out, *more, method="fectek", settings=SMALL, status=0, json_too=True):
    """`termweave train`: what it printed as JSON, or where it should fail or without `json_too`, all that it said."""
    printed, said = StringIO(), StringIO()
    command = ["train", method, str(folder), "--out", str(out), *set_options(f"backbone={base}", *settings), *more]
    with redirect_stdout(printed), redirect_stderr(said):
        ended = run([*command, *(["--json"] if json_too else [])])
    assert (ended, "Traceback" in said.getvalue()) == (status, False), said.getvalue()
    return json.loads(printed.getvalue()) if status == 0 and json_too else said.getvalue() + printed.getvalue()


@pytest.fixture(scope="session", autouse=True)
def shipped_once():
    """Load the model that comes with termweave once: each run measures it beside the trained one."""
    from termweave.encoders.model_lookup import DEFAULT, resolve
    from termweave.training import dev_measure

    load, kept = dev_measure.load, cache(dev_measure.load)

    def cached(weights, dense, *, precision=None):
        return (kept if resolve(DEFAULT) in (weights, dense) else load)(weights, dense, precision=precision)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dev_measure, "load", cached)
        yield


@pytest.fixture(scope="session")
def trained(folder, base, complete, tmp_path_factory):
    """A function: folder and JSON of a run on the toy collection that is trained once in a session; no test changes the folder."""
    ended = {}

    def once(method, settings, *, plain=False):
        if (method, settings) not in ended:
            backbone = base if plain else complete
            out = tmp_path_factory.mktemp(method) / "out"
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("termweave.support.paths.cache", lambda: tmp_path_factory.getbasetemp() / "cache")
                ended[method, settings] = out, train(folder, backbone, out, method=method, settings=settings)
        return ended[method, settings]

    return once


def randomised(model):
    """Give the heads of a model outputs that differ."""
    for name, parameter in model.heads.named_parameters():
        if "outer" in name:
            torch.nn.init.normal_(parameter, std=0.5)
    return model.eval()
