"""Small random models of many architectures, saved by sentence-transformers itself, and the difference to what it computes with them."""

import json
import random
from functools import cache, wraps

import pytest

torch = pytest.importorskip("torch", reason="making models needs the extra [train]")
pytest.importorskip("transformers", reason="making models needs the extra [train]")
pytest.importorskip("sentence_transformers", reason="the comparison needs sentence-transformers")

import numpy as np  # noqa: E402
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers  # noqa: E402 - after the skips

from termweave.encoders import DenseEncoder, Ranker, TermWeighter  # noqa: E402
from termweave.support import paths  # noqa: E402

WORDS = [
    "".join(random.Random(seed).choices("abcdefghijklmnoprstuvw", k=random.Random(-seed).randint(2, 9))) for seed in range(1, 400)
]
SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
MODERNBERT = {"local_attention": 8, "global_attn_every_n_layers": 2}
MODERNBERT |= {"bos_token_id": 0, "eos_token_id": 2, "cls_token_id": 0, "sep_token_id": 2}
DEBERTA = {"type_vocab_size": 0, "relative_attention": True, "position_buckets": 16, "pos_att_type": ["p2c", "c2p"]}
DEBERTA |= {"position_biased_input": False, "norm_rel_ebd": "layer_norm", "share_att_key": True}
#: Architecture -> its configuration in transformers, the positions it has, and its other parameters.
CONFIGURATIONS = {
    "bert": ("BertConfig", 64, SIZE),
    "roberta": ("RobertaConfig", 66, {**SIZE, "type_vocab_size": 1}),
    "xlm-roberta": ("XLMRobertaConfig", 66, {**SIZE, "type_vocab_size": 1}),
    "mpnet": ("MPNetConfig", 66, SIZE),
    "distilbert": ("DistilBertConfig", 64, {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48}),
    "modernbert": ("ModernBertConfig", 64, {**SIZE, **MODERNBERT}),
    "electra": ("ElectraConfig", 64, {**SIZE, "embedding_size": 32}),
    "deberta-v2": ("DebertaV2Config", 64, {**SIZE, **DEBERTA}),
}


def word_pieces():
    """A BERT tokeniser: [CLS] ... [SEP]."""
    names = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=300, special_tokens=[*names.values()], show_progress=False)
    tokenizer.train_from_iterator(WORDS * 3, trainer)
    special = [(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    forms = {"single": "[CLS] $A [SEP]", "pair": "[CLS] $A [SEP] $B:1 [SEP]:1"}
    tokenizer.post_processor = processors.TemplateProcessing(**forms, special_tokens=special)
    return tokenizer, names


SPECIAL = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}  # in this order


def byte_pairs():
    """A RoBERTa tokeniser: <s> ... </s> over bytes."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    options = {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet(), "show_progress": False}
    tokenizer.train_from_iterator(WORDS * 3, trainers.BpeTrainer(vocab_size=400, special_tokens=[*SPECIAL.values()], **options))
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return tokenizer, SPECIAL


def unigrams():
    """An XLM-R tokeniser: Unigram with ▁ for the blank."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace("  ", " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    options = {"special_tokens": [*SPECIAL.values()], "unk_token": "<unk>", "show_progress": False}
    tokenizer.train_from_iterator(WORDS * 3, trainers.UnigramTrainer(vocab_size=300, **options))
    forms = {"single": "<s> $A </s>", "pair": "<s> $A </s> </s> $B </s>"}
    tokenizer.post_processor = processors.TemplateProcessing(**forms, special_tokens=[("<s>", 0), ("</s>", 2)])
    return tokenizer, SPECIAL


def save_random(architecture, path, head="", labels=1):
    """Save a random transformer, with a head or without, and its tokeniser, as transformers does."""
    import transformers as tf

    makers = {"roberta": byte_pairs, "modernbert": byte_pairs, "xlm-roberta": unigrams}
    tokenizer, special = makers.get(architecture, word_pieces)()
    options = {f"{name}_token": token for name, token in special.items()}
    if head == "ForSequenceClassification" and architecture in {"bert", "electra"}:
        options["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    fast = tf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=40, **options)
    fast.save_pretrained(path)
    name, positions, parameters = CONFIGURATIONS[architecture]
    shared = {"vocab_size": len(fast), "pad_token_id": fast.pad_token_id, "max_position_embeddings": positions}
    config = getattr(tf, name)(**parameters, **shared)
    config.num_labels = labels
    torch.manual_seed(len(architecture))
    model = getattr(tf, f"AutoModel{head}").from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # beyond the tiny numbers of a fresh model, so that nothing is hidden by them
            parameter.add_(torch.randn_like(parameter) * (0.05 if head == "ForMaskedLM" else 0.1))
    model.save_pretrained(path)
    return path


def change(file, **changes):
    """Alter a JSON file of a folder; None removes an entry."""
    content = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


def saved(model, folder):
    """The folder that a model of sentence-transformers saves, and the model that it reads from there."""
    model.save(str(folder / "model"))
    return folder / "model", type(model)(str(folder / "model"), device="cpu")


def once(make):
    """Make each model once; a test that alters one copies it."""
    models_by_arguments = {}

    @wraps(make)
    def call(*arguments, **options):
        key = repr((arguments, sorted(options.items())))
        if key not in models_by_arguments:
            models_by_arguments[key] = make(*arguments, **options)
        return models_by_arguments[key]

    return call


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """A function: a sentence-transformers folder of an architecture, and the model that was saved there."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules

    backbone = cache(lambda architecture: save_random(architecture, tmp_path_factory.mktemp(architecture)))

    @once
    def make(architecture="bert", pooling="mean", *, dense=(), normalise=True, include_prompt=True, **options):
        parts = [modules.Transformer(str(backbone(architecture))), modules.Pooling(32, pooling, include_prompt=include_prompt)]
        torch.manual_seed(1)
        widths = [32 * (1 if isinstance(pooling, str) else len(pooling)), *(size for size, _ in dense)]
        for width, (size, activation) in zip(widths, dense, strict=False):
            parts.append(modules.Dense(width, size, activation_function=activation))
        model = SentenceTransformer(modules=[*parts, *[modules.Normalize()] * normalise], device="cpu", **options)
        return saved(model, tmp_path_factory.mktemp("saved"))

    return make


@pytest.fixture(scope="session")
def sparse_made(tmp_path_factory):
    """A function: a folder that SparseEncoder saved, and the model."""
    from sentence_transformers import SparseEncoder

    @once
    def make(architecture="bert"):
        inner = save_random(architecture, tmp_path_factory.mktemp(architecture), "ForMaskedLM")
        return saved(SparseEncoder(str(inner), device="cpu"), tmp_path_factory.mktemp("saved"))

    return make


@pytest.fixture(scope="session")
def inference_free(tmp_path_factory, sparse_made):
    """A function: a folder of a sparse encoder with a table of query weights, and the SparseEncoder that saved it."""
    from sentence_transformers import SparseEncoder
    from sentence_transformers.sparse_encoder.modules import Router, SparseStaticEmbedding, SpladePooling, Transformer

    @once
    def make(architecture="bert", activation="log1p_relu"):
        encoder = Transformer(str(sparse_made(architecture)[0]), transformer_task="fill-mask")
        torch.manual_seed(5)
        table = SparseStaticEmbedding(encoder.tokenizer, weight=torch.rand(len(encoder.tokenizer)) * 3 - 0.1, frozen=True)
        pooling = SpladePooling("max", activation_function=activation)
        router = Router.for_query_document(query_modules=[table], document_modules=[encoder, pooling])
        return saved(SparseEncoder(modules=[router], device="cpu", similarity_fn_name="dot"), tmp_path_factory.mktemp("saved"))

    return make


@pytest.fixture(scope="session")
def ranked(tmp_path_factory):
    """A function: a folder with a random cross-encoder of an architecture, and the CrossEncoder that reads it."""
    from sentence_transformers import CrossEncoder

    @once
    def make(architecture="bert", labels=1):
        path = tmp_path_factory.mktemp("ranker") / f"{architecture}-{labels}"
        save_random(architecture, path, "ForSequenceClassification", labels)
        return path, CrossEncoder(str(path), device="cpu")

    return make


@pytest.fixture(scope="session")
def texts():
    """Texts of many lengths; some exceed what the models read."""
    odd = ["The cat sat on the mat.", "", "   two  spaces \n and a line", "Zürich, Genève – “quoted”", "x" * 300]
    return odd + [" ".join(random.Random(size).choices(WORDS, k=size)) for size in (1, 2, 5, 9, 20, 33, 60, 200)]


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    """Graphs that torch exports stay out of the user's cache; all tests share them."""
    monkeypatch.setattr(paths, "cache", lambda: tmp_path_factory.getbasetemp() / "cache")


#: What of_vectors, of_scores and of_weights give: the largest difference to what sentence-transformers computes with the same folder.
QUERIES = ("the cat sat where", "", "Zürich", " ".join(["a long query of many words"] * 12))


def _sides(encoder, reference, texts):
    """Documents and queries: what we give, and what the reference gives."""
    yield encoder.encode(texts, kind="document"), reference.encode_document(texts)
    yield encoder.encode(texts, kind="query"), reference.encode_query(texts)


def of_vectors(path, reference, texts):
    sides = _sides(DenseEncoder.load(path), reference, texts)
    return max(float(np.abs(given - rows / np.linalg.norm(rows, axis=1, keepdims=True)).max()) for given, rows in sides)


def logits(reference, query, texts):
    """What CrossEncoder gives before its activation; of two labels the difference."""
    scores = reference.predict([(query, text) for text in texts], activation_fn=torch.nn.Identity())
    return scores if scores.ndim == 1 else scores[:, 1] - scores[:, 0]


def of_scores(path, reference, texts):
    scorer = Ranker.load(path)
    assert np.ptp(scorer.score(QUERIES[0], texts)) > 1e-2  # the texts are told apart
    return max(float(np.abs(scorer.score(query, texts) - logits(reference, query, texts)).max()) for query in QUERIES)


def terms(reference, vectors):
    """Term -> weight above 0 of each row of a SparseEncoder; special tokens are no terms."""
    vocabulary = {number: token for token, number in reference.tokenizer.get_vocab().items()}
    special = set(reference.tokenizer.all_special_ids)
    rows = vectors.to_dense().numpy()
    return [{vocabulary[at]: float(row[at]) for at in np.flatnonzero(row > 0) if at not in special} for row in rows]


def of_weights(path, reference, texts):
    difference = 0.0
    for given, vectors in _sides(TermWeighter.load(path), reference, texts):
        for weights, expected in zip((each.as_dict() for each in given), terms(reference, vectors), strict=True):
            either = weights.keys() | expected.keys()
            difference = max([difference, *(abs(weights.get(term, 0.0) - expected.get(term, 0.0)) for term in either)])
    return difference
