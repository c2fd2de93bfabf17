"""A BERT small enough to train in seconds, randomly initialised, with a tokeniser of its own, and a toy collection."""

import json
import random
import shutil

import pytest

from termweave.cli import run

torch = pytest.importorskip("torch", reason="training needs the extra [train]")
pytest.importorskip("transformers", reason="training needs the extra [train]")
pytest.importorskip("onnx", reason="exporting needs the extra [train]")

SUBJECTS = [f"{a}{b}" for a in ("gran", "mor", "tel", "vex", "lum") for b in ("ada", "ino", "ust", "ert")]
NOISE = [f"{a}{b}" for a in ("fil", "pad", "oth", "com") for b in ("ler", "ing", "ers", "mon", "ish")]
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
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
    from transformers import BertConfig, BertModel

    path = tmp_path_factory.mktemp("base")
    letters = [chr(97 + place) for place in range(26)]
    tokens = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "about",
        *SUBJECTS,
        *NOISE,
        *letters,
        *(f"##{letter}" for letter in letters),
    ]
    tokenizer = Tokenizer(models.WordPiece({token: place for place, token in enumerate(tokens)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.save(str(path / "tokenizer.json"))
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokens),
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    BertModel(config, add_pooling_layer=False).save_pretrained(path)
    return path


def with_special_tokens(base, path, tokenizer_class):
    """Copy the small backbone, with the special tokens that transformers adds to every text and between the texts of a pair."""
    from tokenizers import Tokenizer, processors

    shutil.copytree(base, path)
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    special = [(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", special)
    tokenizer.save(str(path / "tokenizer.json"))
    tokens = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    config = {"tokenizer_class": tokenizer_class, "model_max_length": 64, **tokens}
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    return path


@pytest.fixture
def trained_folder(base, tmp_path):
    """A function: write a model with these heads as a folder that `export` takes."""
    from termweave.encoders.analysis.words import ANALYSIS
    from termweave.encoders.manifest import Manifest
    from termweave.encoders.models import joint_model

    def write(model):
        shutil.copy(base / "tokenizer.json", tmp_path)
        anchor = {"kind": "bm25", "k1": 1.2, "b": 0.75}
        joint_model.save(
            model, tmp_path, Manifest("toy", "anchored", ("weights", "dense"), "", 64, analysis=ANALYSIS, anchor=anchor)
        )
        return tmp_path

    return write


@pytest.fixture
def model(base):
    from termweave.encoders.models import transformer
    from termweave.encoders.models.joint_model import HeadShape, JointModel

    torch.manual_seed(0)
    return JointModel(transformer.load_backbone(base), HeadShape(layer=1, hidden=16))


@pytest.fixture
def texts(toy, base):
    """A function: twelve documents and six questions, prepared with a form of weights."""
    from termweave.encoders.analysis.word_pieces import PieceTokenizer
    from termweave.encoders.analysis.words import Analysis
    from termweave.encoders.term_weighting import BM25
    from termweave.training.data.pairs import count
    from termweave.training.term_weights.preparation import prepare

    documents, questions, _ = toy
    tokenizer = PieceTokenizer(base / "tokenizer.json")
    analysis = Analysis(tokenizer.tokenizer)
    statistics = count([documents], analysis)
    asked = [f"{one} {two} about {one} xyzzy" for one, two in zip(questions[:6], questions[6:12], strict=True)]

    def prepared(form, prompt=""):
        common = (analysis, tokenizer, statistics, BM25())
        return prepare(documents[:12], *common, "document", 64, form), prepare(asked, *common, "query", 64, form, prompt)

    return prepared


@pytest.fixture(scope="module")
def folder(toy, tmp_path_factory):
    """The toy collection as a BEIR folder; every subject is asked for in several ways."""
    documents, questions, relevant = toy
    path = tmp_path_factory.mktemp("toy") / "toy"
    (path / "qrels").mkdir(parents=True)
    rows, asked = [], []
    for number, (question, known) in enumerate(zip(questions, relevant, strict=True)):
        for way, form in enumerate(("{}", "about {}", "{} filler", "padmon {}")):
            asked.append({"_id": f"q{number}-{way}", "text": form.format(question)})
            rows += [f"q{number}-{way}\td{document}\t1" for document in known]
    (path / "corpus.jsonl").write_text("\n".join(json.dumps({"_id": f"d{n}", "text": text}) for n, text in enumerate(documents)))
    (path / "queries.jsonl").write_text("\n".join(map(json.dumps, asked)))
    (path / "qrels" / "train.tsv").write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture
def own_cache(monkeypatch, tmp_path_factory):
    monkeypatch.setattr("termweave.support.paths.cache", lambda: tmp_path_factory.getbasetemp() / "cache")


def train(capsys, folder, base, out, *more, method="fectek", settings=SMALL, status=0):
    """`termweave train`: what it printed, or where it should fail, what it said."""
    sets = [part for each in (f"backbone={base}", *settings) for part in ("--set", each)]
    assert run(["train", method, str(folder), "--out", str(out), *sets, *more, "--json"]) == status, capsys.readouterr().err
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return json.loads(captured.out) if status == 0 else captured.err


def stop_and_resume(monkeypatch, tmp_path, deaths, train):
    """Check that a run which dies in a batch and is resumed makes the model of a run that does not: `train` takes folder and options."""
    from termweave.training.data.sampler import BatchSampler
    from termweave.training.trainer import checkpoints

    whole, draw, calls, out = train(tmp_path / "whole"), BatchSampler.draw, [], tmp_path / "out"

    def dies(self, number):
        calls.append(number)
        if len(calls) in deaths:
            raise RuntimeError("the machine went away")
        return draw(self, number)

    with monkeypatch.context() as patch:
        patch.setattr(BatchSampler, "draw", dies)
        assert "the machine went away" in train(out, status=1)
    assert any((out / "checkpoints").rglob(checkpoints.HISTORY))
    resumed = train(out, "--resume")
    assert (resumed["hash"], resumed["history"]) == (whole["hash"], whole["history"])


def randomised(model):
    """Give the heads of a model outputs that differ."""
    for name, parameter in model.heads.named_parameters():
        if "outer" in name:
            torch.nn.init.normal_(parameter, std=0.5)
    return model.eval()
