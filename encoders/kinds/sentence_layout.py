"""Read a folder in the layout of sentence-transformers (or plain transformers) as a model folder of termweave.

``modules.json`` lists the modules: Transformer, Pooling, then any of Dense and Normalize (kind dense), Transformer and SpladePooling
(kind sparse), a Transformer with a classifier (kind ranker), or a Router with such modules for documents and for queries. A folder
with ``idf.json`` and no ``modules.json`` is a sparse encoder of OpenSearch with a table of query weights. Without both a transformers
folder is a transformer with mean pooling, as in sentence-transformers. No code of the model runs: these files only name modules.

``onnx/model.onnx`` of a dense model or a ranker is run if the folder has it; else torch exports the graph once (`onnx.checked_graphs`). The model's hash
is over the files that are run or exported, over the tokeniser, and over everything that decides how texts are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from termweave.encoders.analysis.analyses import PieceTerms, VocabularyTerms
from termweave.encoders.kinds.dense import DenseSettings
from termweave.encoders.kinds.ranker import RankerSettings
from termweave.encoders.kinds.sentence_modules import AGAIN, CONFIG, IDF, MODULES, Modules, read_json, read_modules, read_settings
from termweave.encoders.kinds.sparse import SparseSettings
from termweave.encoders.manifest import (
    MANIFEST,
    SENTENCE_GRAPH,
    TOKENIZER,
    Manifest,
    ModelFolder,
    digest,
    graph_files,
    identity,
    weight_files,
)
from termweave.errors import ModelError

#: Prompt names that stand for a document, as `encode_document` of sentence-transformers tries them.
_DOCUMENT_PROMPTS = ("document", "passage", "corpus")
#: Architectures whose positions begin behind the padding id, so that two positions of the table are no tokens.
_OFFSET_POSITIONS = frozenset({"roberta", "xlm-roberta", "camembert", "mpnet", "xlm-roberta-xl", "longformer"})
#: Most tokens of a text where a folder says nothing.
_USUAL_LENGTH = 512
#: Entries of ``config.json`` that change nothing in what is computed.
_NOT_COMPUTED = frozenset({"_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version", "use_cache"})


def read(path: Path, name: str) -> ModelFolder:
    """Read a folder that has no ``termweave.json``.

    Args:
        path: The folder.
        name: The name of the model.

    Raises:
        ModelError: The folder holds no model, or a model that termweave does not run, or a file is missing; the message says which.
    """
    try:
        return _read(path, name)
    except (AttributeError, TypeError) as error:
        raise ModelError(f"A JSON file of the model in {path} has an entry of the wrong type: {error}.", AGAIN) from error


def _read(path: Path, name: str) -> ModelFolder:
    about = read_json(path / "config_sentence_transformers.json", missing={})
    modules = read_modules(path)
    if not (path / MODULES).is_file() and (path / IDF).is_file():
        modules = Modules(pooling="max", kind="sparse", query=Modules(kind="table"))
    folder = _read_tower(path, name, about, modules)
    if modules.query is None or folder.manifest.kind != "dense":
        return folder
    query = _read_tower(path, name, about, modules.query).manifest
    folder.manifest.check_dimension_of(query)
    tower = {key: getattr(query, key) for key in ("hash", "max_length", "pooling", "settings", "files")}
    return replace(folder, manifest=replace(folder.manifest, settings={**folder.manifest.settings, "query": tower}))


def _read_tower(path: Path, name: str, about: Mapping[str, Any], modules: Modules) -> ModelFolder:
    """Read one encoder, for documents or for queries, from the modules that describe it."""
    home = path / modules.transformer
    config = _configuration(path, home, name)
    lower, length = read_settings(home)
    shared: dict[str, Any] = {"transformer": modules.transformer, "lower": lower}
    manifest = Manifest(name, _kind(name, path, config, about, modules.kind), (), "", _max_length(config, length))
    if manifest.kind == "dense":
        layers, dimension = modules.layers(path, _width(home / CONFIG, config))
        size = about.get("truncate_dim")  # for models of the Matryoshka sort
        truncated = size if isinstance(size, int) and 0 < size < dimension else 0
        similarity = about.get("similarity_fn_name")
        if similarity not in {None, "cosine"} and (truncated or not modules.normalised):
            hint = "Name a model for cosine similarity, or one whose last module is Normalize."
            raise ModelError(f"The model {name!r} compares vectors by {similarity}; termweave compares them by cosine.", hint)
        shared |= {"prompts": prompts_of(about), "include_prompt": modules.include_prompt}
        manifest = replace(manifest, outputs=("dense",), dimension=truncated or dimension, pooling=modules.pooling)
        settings: Any = DenseSettings(**shared, layers=layers, truncated=truncated)
    elif manifest.kind == "sparse":
        table = modules.query.query_table(path) if modules.query else {}
        settings = SparseSettings(**shared, prompts=prompts_of(about), twice=modules.twice, **table)
        tokeniser = read_json(home / TOKENIZER).get("model") or {}  # older files do not name its type
        kind = tokeniser.get("type", "WordPiece" if "max_input_chars_per_word" in tokeniser else "")
        analysis = (PieceTerms if kind == "WordPiece" else VocabularyTerms).id
        manifest = replace(manifest, outputs=("weights",), terms="piece", analysis=analysis, pooling=modules.pooling)
    else:
        settings = RankerSettings(**shared, types=has_types(home), prompt=_prompts(about)[1], labels=_labels(name, config))
        manifest = replace(manifest, outputs=("scores",))
    graph = path / SENTENCE_GRAPH
    own_graph = manifest.kind in {"dense", "ranker"} and modules.transformer in {"", "0_Transformer"} and graph.is_file()
    if config.get("auto_map") and not own_graph:
        hint = f"Name a model of an architecture that transformers has itself, or one with {SENTENCE_GRAPH}."
        raise ModelError(f"The model {name!r} brings code of its own ({CONFIG} has auto_map), which is not run.", hint)
    cores = graph_files(graph) if own_graph else weight_files(home)
    if not cores and any(home.glob("pytorch_model*.bin")):
        hint = "Save them as safetensors on a host that trusts them: AutoModel.from_pretrained(DIR).save_pretrained(DIR)."
        raise ModelError(f"The weights of the model {name!r} are a pickle, which may hold code and is not read.", hint)
    if not cores:
        hint = "Save it again as safetensors: SentenceTransformer(...).save(DIR)."
        raise ModelError(f"The model {name!r} has no weights: {home} holds no safetensors and no {SENTENCE_GRAPH}.", hint)
    identities = {str(file.relative_to(path)): identity(file) for file in (*cores, home / TOKENIZER, home / CONFIG)}
    manifest = _with_hash(replace(manifest, settings=asdict(settings)), path, cores, {} if own_graph else config)
    return ModelFolder(path, manifest, {"fp32": graph} if own_graph else {}, identities)


def _configuration(path: Path, home: Path, name: str) -> Any:
    """Read a transformer's ``config.json``, and check that it names an architecture and that the transformer has a tokeniser."""
    if not (home / CONFIG).is_file():
        hint = "Give a folder that training, export or sentence-transformers wrote."
        raise ModelError(f"{path} is not a model folder: it has neither {MANIFEST} nor {CONFIG}.", hint)
    config = read_json(home / CONFIG)
    if not isinstance(config.get("model_type"), str):
        raise ModelError(f"{path} is of an unknown architecture: its {CONFIG} has no model_type.", AGAIN)
    if not (home / TOKENIZER).is_file():
        hint = "Save it there with transformers' fast tokeniser: AutoTokenizer.from_pretrained(...).save_pretrained(DIR)."
        raise ModelError(f"The model {name!r} has no tokeniser: {home / TOKENIZER} is missing.", hint)
    return config


def _kind(name: str, path: Path, config: Mapping[str, Any], about: Mapping[str, Any], kind: str) -> str:
    """The kind of a model: as sentence-transformers recorded it, else by the model's architecture, else `kind`, which its modules mean."""
    family = str(about.get("model_type") or "SentenceTransformer")
    families = {"SentenceTransformer": "dense", "SparseEncoder": "sparse", "CrossEncoder": "ranker"}
    if family not in families:
        raise ModelError(f"The model {name!r} is a {family}, which termweave does not run.", "Name a SentenceTransformer model.")
    if families[family] != "dense":
        return families[family]
    classifier = any(str(each).endswith("ForSequenceClassification") for each in config.get("architectures") or ())
    return "ranker" if classifier and not (path / MODULES).is_file() else kind


def _labels(name: str, config: Mapping[str, Any]) -> int:
    """The number of labels of a classifier, 1 or 2; without an entry in the configuration 2, as in transformers."""
    listed = config.get("id2label")
    labels = len(listed) if isinstance(listed, dict) else config.get("num_labels", 2)
    if not isinstance(labels, int) or labels not in {1, 2}:
        raise ModelError(f"The model {name!r} has {labels} labels; a ranker has one or two.", "Name a model trained for ranking.")
    return labels


def has_types(home: Path) -> bool:
    """Whether the tokeniser, as transformers loads it, gives token types, which mark the tokens of a pair's second text."""
    config = read_json(home / "tokenizer_config.json", missing={})
    if isinstance(names := config.get("model_input_names"), list):
        return "token_type_ids" in names
    return config.get("tokenizer_class") not in ["PreTrainedTokenizerFast", "TokenizersBackend"]


def _with_hash(manifest: Manifest, path: Path, cores: Sequence[Path], config: Mapping[str, Any]) -> Manifest:
    """Complete a manifest: add the digests of the files, and the model's hash, which is over all that decides a vector.

    Args:
        manifest: The manifest without hash and files.
        path: The folder.
        cores: The graph with its files of tensors, or the files of the weights.
        config: The transformer's configuration, from which torch builds the model; {} for a graph, which holds the architecture.
    """
    settings = manifest.settings
    names = [*(str(core.relative_to(path)) for core in cores), f"{settings['transformer']}/{TOKENIZER}".lstrip("/")]
    names += [layer["file"] for layer in settings.get("layers", ())]
    if settings.get("query_table"):
        names += [settings["query_table"], f"{settings['query_tokenizer']}/{TOKENIZER}".lstrip("/")]
    files = {name: digest(path / name) for name in names}
    reading = (manifest.max_length, manifest.dimension, manifest.pooling, sorted(settings.items()))
    architecture = sorted((key, value) for key, value in config.items() if key not in _NOT_COMPUTED and value is not None)
    state = blake2b(digest_size=8)
    for part in (list(files.values()), reading, architecture):
        state.update(repr(part).encode())
    return replace(manifest, hash=state.hexdigest(), files=files)


def _width(file: Path, config: Mapping[str, Any]) -> int:
    """The width of the transformer's states, from its configuration."""
    width = next((config[key] for key in ("hidden_size", "dim", "d_model", "n_embd") if key in config), None)
    if not isinstance(width, int) or width < 1:
        raise ModelError(f"{file} does not say how wide the states of the model are (hidden_size).", AGAIN)
    return width


def prompts_of(about: Mapping[str, Any]) -> dict[str, str]:
    """The prompts for "query" and "document", chosen as sentence-transformers' `encode_query` and `encode_document` choose them."""
    prompts, default = _prompts(about)
    query = prompts.get("query", default)
    document = next((prompts[key] for key in _DOCUMENT_PROMPTS if key in prompts), default)
    return {key: text for key, text in (("query", query), ("document", document)) if text}


def _prompts(about: Mapping[str, Any]) -> tuple[dict[str, str], str]:
    """The prompts by name, and the default one, which `CrossEncoder` puts before the first text of a pair."""
    prompts = {key: text for key, text in (about.get("prompts") or {}).items() if isinstance(text, str)}
    return prompts, prompts.get(str(about.get("default_prompt_name")), "")


def _max_length(config: Mapping[str, Any], length: int) -> int:
    """The most tokens of a text that the model reads: as the folder says, but no more than the transformer has positions."""
    positions = config.get("max_position_embeddings")
    if not isinstance(positions, int) or positions <= 0:
        return length or _USUAL_LENGTH
    padding = config.get("pad_token_id")
    offset = (padding if isinstance(padding, int) else 1) + 1 if config["model_type"] in _OFFSET_POSITIONS else 0
    return min(positions - offset, length or positions)
