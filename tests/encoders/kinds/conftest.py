"""Small random models of many architectures, saved by sentence-transformers itself."""

import random
from functools import cache
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="making models needs the extra [train]")
pytest.importorskip("transformers", reason="making models needs the extra [train]")
pytest.importorskip("sentence_transformers", reason="the comparison needs sentence-transformers")

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers  # noqa: E402 - after the skips

WORDS = [
    "".join(random.Random(seed).choices("abcdefghijklmnoprstuvw", k=random.Random(-seed).randint(2, 9))) for seed in range(1, 400)
]
#: Texts of many lengths; some exceed what the models read.
TEXTS = [
    "The cat sat on the mat.",
    "",
    "   two  spaces \n and a line",
    "Zürich, Genève – “quoted”",
    "x" * 300,
    *(" ".join(random.Random(size).choices(WORDS, k=size)) for size in (1, 2, 5, 9, 20, 33, 60, 200)),
]
LENGTH = 40
SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}


def word_pieces():
    """A BERT tokeniser: [CLS] ... [SEP]."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(
        WORDS * 3, trainers.WordPieceTrainer(vocab_size=300, special_tokens=special, show_progress=False)
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")],
    )
    return tokenizer, {"unk": "[UNK]", "pad": "[PAD]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}


SPECIAL = {"unk": "<unk>", "pad": "<pad>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"}
_ORDER = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def byte_pairs():
    """A RoBERTa tokeniser: <s> ... </s> over bytes."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        WORDS * 3,
        trainers.BpeTrainer(vocab_size=400, special_tokens=_ORDER, initial_alphabet=alphabet, show_progress=False),
    )
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return tokenizer, SPECIAL


def unigrams():
    """An XLM-R tokeniser: Unigram with ▁ for the blank."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace("  ", " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.train_from_iterator(
        WORDS * 3, trainers.UnigramTrainer(vocab_size=300, special_tokens=_ORDER, unk_token="<unk>", show_progress=False)
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return tokenizer, SPECIAL


def backbone(architecture, vocabulary, padding, labels=0):
    """A random encoder of an architecture; with labels a sequence classifier."""
    import transformers as tf

    shared = {"vocab_size": vocabulary, "pad_token_id": padding}
    configs = {
        "bert": lambda: tf.BertConfig(**SIZE, **shared, max_position_embeddings=64),
        "roberta": lambda: tf.RobertaConfig(**SIZE, **shared, max_position_embeddings=66, type_vocab_size=1),
        "xlm-roberta": lambda: tf.XLMRobertaConfig(**SIZE, **shared, max_position_embeddings=66, type_vocab_size=1),
        "mpnet": lambda: tf.MPNetConfig(**SIZE, **shared, max_position_embeddings=66),
        "distilbert": lambda: tf.DistilBertConfig(
            dim=32, n_layers=2, n_heads=4, hidden_dim=48, max_position_embeddings=64, **shared
        ),
        "modernbert": lambda: tf.ModernBertConfig(
            **SIZE,
            **shared,
            max_position_embeddings=64,
            local_attention=8,
            global_attn_every_n_layers=2,
            bos_token_id=0,
            eos_token_id=2,
            cls_token_id=0,
            sep_token_id=2,
        ),
        "electra": lambda: tf.ElectraConfig(**SIZE, **shared, embedding_size=32, max_position_embeddings=64),
        "deberta-v2": lambda: tf.DebertaV2Config(
            **SIZE,
            **shared,
            max_position_embeddings=64,
            type_vocab_size=0,
            relative_attention=True,
            position_buckets=16,
            pos_att_type=["p2c", "c2p"],
            position_biased_input=False,
            norm_rel_ebd="layer_norm",
            share_att_key=True,
        ),
    }
    torch.manual_seed(len(architecture))
    config = configs[architecture]()
    if labels:
        config.num_labels = labels
    auto = tf.AutoModelForSequenceClassification if labels else tf.AutoModel
    model = auto.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # beyond the tiny numbers of a fresh model, so that nothing is hidden by them
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def save_backbone(architecture, path, length=LENGTH, labels=0, **options):
    """Save a random encoder, or with labels a classifier, with its tokeniser, as transformers does."""
    from transformers import PreTrainedTokenizerFast

    makers = {"roberta": byte_pairs, "modernbert": byte_pairs, "xlm-roberta": unigrams}
    tokenizer, special = makers.get(architecture, word_pieces)()
    names = {f"{name}_token": token for name, token in special.items()}
    if labels and architecture in {"bert", "electra"}:
        options = {"model_input_names": ["input_ids", "token_type_ids", "attention_mask"], **options}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=length, **names, **options)
    fast.save_pretrained(path)
    backbone(architecture, len(fast), fast.pad_token_id, labels).save_pretrained(path)
    return path


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """A function: a sentence-transformers folder of an architecture, and the model that was saved there."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules

    backbones = {}

    def make(architecture="bert", pooling="mean", *, dense=(), normalise=True, lower=False, include_prompt=True, **options):
        if architecture not in backbones:
            backbones[architecture] = save_backbone(architecture, tmp_path_factory.mktemp(architecture))
        parts = [modules.Transformer(str(backbones[architecture]), do_lower_case=lower)]
        parts.append(modules.Pooling(32, pooling, include_prompt=include_prompt))
        torch.manual_seed(1)
        width = 32 * (1 if isinstance(pooling, str) else len(pooling))
        for size, activation in dense:
            parts.append(modules.Dense(width, size, activation_function=activation))
            width = size
        if normalise:
            parts.append(modules.Normalize())
        model = SentenceTransformer(modules=parts, device="cpu", **options)
        path = tmp_path_factory.mktemp("saved") / "model"
        model.save(str(path))
        return path, SentenceTransformer(str(path), device="cpu")

    return make


@pytest.fixture(scope="session")
def made_with_head(tmp_path_factory):
    """A function: a folder that SparseEncoder or CrossEncoder saved, and the model; the encoder below is random."""
    import sentence_transformers
    import transformers as tf

    def make(family, architecture="bert", **options):
        path = save_backbone(architecture, tmp_path_factory.mktemp(architecture), **options)
        config = tf.AutoConfig.from_pretrained(path)
        if family == "CrossEncoder":
            config.num_labels = 1
        torch.manual_seed(3)
        head = {"SparseEncoder": tf.AutoModelForMaskedLM, "CrossEncoder": tf.AutoModelForSequenceClassification}[family]
        model = head.from_config(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.05)
        model.save_pretrained(path)
        whole = getattr(sentence_transformers, family)(str(path), device="cpu")
        target = tmp_path_factory.mktemp("saved") / "model"
        whole.save(str(target))
        return target, whole

    return make


@pytest.fixture(scope="session")
def inference_free(tmp_path_factory, made_with_head):
    """A function: a folder of a sparse encoder with a table of query weights, and the SparseEncoder that saved it."""
    from sentence_transformers import SparseEncoder
    from sentence_transformers.sparse_encoder.modules import Router, SparseStaticEmbedding, SpladePooling, Transformer

    @cache
    def make(architecture="bert", activation="log1p_relu"):
        inner, _ = made_with_head("SparseEncoder", architecture)
        encoder = Transformer(str(inner), transformer_task="fill-mask")
        torch.manual_seed(5)
        table = SparseStaticEmbedding(encoder.tokenizer, weight=torch.rand(len(encoder.tokenizer)) * 3 - 0.1, frozen=True)
        pooling = SpladePooling("max", activation_function=activation)
        router = Router.for_query_document(query_modules=[table], document_modules=[encoder, pooling])
        path = tmp_path_factory.mktemp("saved") / "model"
        SparseEncoder(modules=[router], device="cpu", similarity_fn_name="dot").save(str(path))
        return path, SparseEncoder(str(path), device="cpu")

    return make


@pytest.fixture(scope="session")
def ranked(tmp_path_factory):
    """A function: a folder with a random cross-encoder of an architecture, and the CrossEncoder that reads it."""
    from sentence_transformers import CrossEncoder

    folders = {}

    def make(architecture="bert", labels=1):
        if (architecture, labels) not in folders:
            path = tmp_path_factory.mktemp("ranker") / f"{architecture}-{labels}"
            folders[architecture, labels] = save_backbone(architecture, path, labels=labels)
        path = folders[architecture, labels]
        return path, CrossEncoder(str(path), device="cpu")

    return make


@pytest.fixture(scope="session")
def schemas():
    """The folder of the JSON schemas."""
    return Path(__file__).parents[3] / "docs" / "schemas"


@pytest.fixture(scope="session")
def texts():
    """Texts of many lengths; some exceed what the models read."""
    return TEXTS


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    """Graphs that torch exports stay out of the user's cache; all tests share them."""
    from termweave.support import paths

    monkeypatch.setattr(paths, "cache", lambda: tmp_path_factory.getbasetemp() / "cache")
