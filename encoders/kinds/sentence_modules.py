"""The modules of a sentence-transformers folder: ``modules.json``, the pooling, the dense layers, and a router of two towers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from termweave.encoders.kinds.pooling import ACTIVATIONS, MODES, DenseLayer
from termweave.encoders.manifest import TOKENIZER, WEIGHTS, is_inside
from termweave.errors import ModelError

MODULES = "modules.json"
#: The query weights of OpenSearch's inference-free models.
IDF = "idf.json"
CONFIG = "config.json"
#: The description of a router, and the module types that have one.
ROUTER = "router_config.json"
_ROUTERS = frozenset({"Router", "Asym"})
#: What older ``Pooling`` modules call the modes, in the order of `MODES`.
_OLD_MODES = ("cls_token", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
#: The settings of a transformer, in the order in which sentence-transformers looks for them: old files have the architecture's name.
_ARCHITECTURES = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
_SETTINGS = tuple(f"sentence_{name}_config.json" for name in _ARCHITECTURES)
#: Arguments of the tokeniser that change no vector, and values that are its defaults.
_HARMLESS, _DEFAULTS = frozenset({"padding", "pad_to_multiple_of", "return_tensors"}), (None, True, "longest_first")
_ADVICE = "Name a model made of Transformer, Pooling, Dense and Normalize."
#: The model length that transformers writes where a tokeniser has none.
_NO_LENGTH = 1_000_000
AGAIN = "Copy the folder again, or save it anew with sentence-transformers."


@dataclass(frozen=True)
class Modules:
    """The facts that a folder's modules give about a model.

    Attributes:
        transformer: Subfolder of the transformer; "" for the folder itself.
        pooling: Modes, joined by "+".
        include_prompt: Whether the prompt takes part in the pooling.
        dense: The subfolders of the dense layers, in order.
        normalised: Whether the vectors get length 1.
        kind: "dense", "sparse", "ranker", or "table" (a table of query weights).
        twice: Whether a sparse model applies the logarithm twice.
        query: The modules for queries, where they differ from those for documents; None: the same modules serve both. A sparse
            model has the kind "table" here, with the table of query weights in the folder `transformer`.
    """

    transformer: str = ""
    pooling: str = "mean"
    include_prompt: bool = True
    dense: tuple[str, ...] = ()
    normalised: bool = False
    kind: str = "dense"
    twice: bool = False
    query: Modules | None = None

    def layers(self, path: Path, width: int) -> tuple[list[dict[str, Any]], int]:
        """The dense layers for `DenseSettings`, and the dimension of the vectors. Each layer must take vectors as long as its predecessor gives."""
        dimension = width * len(self.pooling.split("+"))
        layers = []
        for folder in self.dense:
            home = path / folder
            config = read_json(home / CONFIG)
            activation = str(config.get("activation_function", "torch.nn.modules.activation.Tanh")).rsplit(".", 1)[-1]
            if activation not in ACTIVATIONS:
                raise ModelError(f"The layer {home} has the activation {activation!r}.", f"Known: {', '.join(ACTIVATIONS)}.")
            if any(config.get(f"module_{side}_name") not in {None, "sentence_embedding"} for side in ("input", "output")):
                raise ModelError(f"The layer {home} reads or writes something else than the sentence's vector.", _ADVICE)
            file, residual = f"{folder}/{WEIGHTS}", bool(config.get("use_residual"))
            layer = DenseLayer.read(path / file, activation, residual)
            out, taken = layer.weight.shape
            if taken != dimension:
                raise ModelError(f"The layer {home} takes vectors of {taken} numbers, and gets vectors of {dimension}.", AGAIN)
            dimension = out
            layers.append({"file": file, "activation": activation, "residual": residual})
        return layers, dimension

    def query_table(self, path: Path) -> dict[str, Any]:
        """Settings for a table of query weights, which is a file in the module's folder, or ``idf.json`` in the model's folder."""
        home = self.transformer
        config = read_json(path / home / CONFIG, missing={})
        names = [f"{home}/{WEIGHTS}", f"{home}/{IDF}", IDF] if home else [IDF]
        stored = config.get("path")
        if isinstance(stored, str) and stored.endswith(".json") and is_inside(stored):
            names = [stored, f"{home}/{stored}", *names]
        table = next((name for name in names if (path / name).is_file()), "")
        if not table:
            raise ModelError(f"The model in {path} has no table of query weights: {names[0]} is missing.", AGAIN)
        tokenizer = home if (path / home / TOKENIZER).is_file() else ""
        length = _token_limit(read_json(path / tokenizer / "tokenizer_config.json", missing={}).get("model_max_length"))
        return {"query_table": table, "query_tokenizer": tokenizer, "query_length": length}


def read_modules(path: Path) -> Modules:
    """Read ``modules.json``; without it, the modules that sentence-transformers would make."""
    if not (path / MODULES).is_file():
        return Modules()
    entries = read_json(path / MODULES)
    try:
        modules = [_module(path, MODULES, entry["type"], str(entry["path"])) for entry in entries]
    except (TypeError, KeyError) as error:
        raise ModelError(f"{path / MODULES} does not list modules.", AGAIN) from error
    return _routed(path, modules) if modules and modules[0][0] in _ROUTERS else _chain(path, modules)


def _module(path: Path, file: str, kind: object, folder: str) -> tuple[str, str]:
    """Read an entry of a list of modules: return the name of the module's class, and the module's folder.

    Raises:
        ModelError: The module is not part of sentence-transformers but code that the model brings, or lies outside the model's folder.
    """
    package, _, name = str(kind).rpartition(".")
    if package.partition(".")[0] != "sentence_transformers":
        hint = "Name a model made of sentence-transformers' own modules."
        raise ModelError(f"The model in {path} brings code of its own (the module {str(kind)!r}), which is not run.", hint)
    if folder and not is_inside(folder):
        raise ModelError(f"{path / file} names the folder {folder!r}, which is not inside the model's.", AGAIN)
    return name, folder


def _routed(path: Path, modules: Sequence[tuple[str, str]]) -> Modules:
    """Read the modules of a router, which lists modules for documents and for queries; the modules after the router serve both."""
    home = modules[0][1]
    name = ROUTER if (path / home / ROUTER).is_file() else CONFIG  # the latter before sentence-transformers 5
    file = path / home / name
    config = read_json(file)
    try:
        routes, types = config["structure"], config["types"]
        default = config.get("parameters", {}).get("default_route")
        by_route = {
            route: [_module(path, f"{home}/{name}", types[module], f"{home}/{module}".strip("/")) for module in routes[route]]
            for route in ("document", "query", default)
            if route in routes
        }
        chains = [[*by_route.get(route, by_route.get(default, ())), *modules[1:]] for route in ("document", "query")]
    except (TypeError, KeyError, AttributeError) as error:
        raise ModelError(f"{file} does not describe the modules of queries and documents.", AGAIN) from error
    if default not in routes and not {"document", "query"} <= by_route.keys():
        raise ModelError(f"{file} has routes {', '.join(routes)}, not 'document' and 'query'.", "Use Router.for_query_document.")
    document, query = (_chain(path, chain) for chain in chains)
    together = (document.kind, query.kind) in {("dense", "dense"), ("sparse", "table")} or document == query
    if not together or document.kind not in {"dense", "sparse"}:
        hint = "Name dense encoders, or a sparse encoder alone or with a table of query weights (SparseStaticEmbedding)."
        raise ModelError(f"{file} has models of documents and of queries that termweave does not run together.", hint)
    return document if document == query else replace(document, query=query)


def _chain(path: Path, modules: Sequence[tuple[str, str]]) -> Modules:
    """Interpret a chain of modules, each given as (name of its class, folder)."""
    kinds, folders = [kind for kind, _ in modules], [folder for _, folder in modules]
    if kinds == ["SparseStaticEmbedding"]:
        return Modules(folders[0], kind="table")
    if kinds == ["Transformer"]:
        return Modules(folders[0], kind="ranker")
    if kinds in (["Transformer", "SpladePooling"], ["MLMTransformer", "SpladePooling"]):
        return _splade(folders[0], path / folders[1] / CONFIG)
    if not re.fullmatch("Transformer Pooling( Dense)*( Normalize)?", " ".join(kinds)):
        hint = "termweave runs Transformer, Pooling, Dense and Normalize, in this order: name a model that gives one vector for a text."
        raise ModelError(f"{path / MODULES} lists the modules {', '.join(kinds)}.", hint)
    file = path / folders[1] / CONFIG
    pooling = read_json(file)
    dense = tuple(folder for kind, folder in modules if kind == "Dense")
    include_prompt, normalised = bool(pooling.get("include_prompt", True)), kinds[-1] == "Normalize"
    mode = _pooling_mode(file, pooling)
    return Modules(folders[0], mode, include_prompt=include_prompt, dense=dense, normalised=normalised)


def _splade(transformer: str, file: Path) -> Modules:
    """The modules of a sparse model with the given folder of the transformer; `file` describes the pooling."""
    config = read_json(file)
    pooling, activation = config.get("pooling_strategy", "max"), config.get("activation_function", "relu")
    if pooling not in {"max", "sum"} or activation not in {"relu", "log1p_relu"}:
        message = f"{file} names the pooling {pooling!r} with the activation {activation!r}, which are not supported together."
        raise ModelError(message, "Supported: the poolings max and sum, with relu and log1p_relu.")
    return Modules(transformer, pooling, kind="sparse", twice=activation == "log1p_relu")


def _pooling_mode(file: Path, config: Mapping[str, Any]) -> str:
    """Read the pooling modes, joined by "+", from a pooling module's configuration in its new or its old form."""
    modes = config.get("pooling_mode")
    if modes is None:
        old = zip(MODES, _OLD_MODES, strict=True)
        modes = [mode for mode, name in old if config.get(f"pooling_mode_{name}") is True] or ["mean"]
    modes = [modes] if isinstance(modes, str) else list(modes)
    if not modes or any(mode not in MODES for mode in modes):
        raise ModelError(f"{file} names the pooling {', '.join(map(str, modes)) or 'none'}.", f"Known: {', '.join(MODES)}.")
    return "+".join(modes)


def read_settings(home: Path) -> tuple[bool, int]:
    """Read whether texts are lower-cased first, and how many tokens of a text the transformer reads; 0: the folder does not say it.

    Raises:
        ModelError: The folder has a setting, unknown to termweave, that changes what is read of a text.
    """
    file = next((home / name for name in _SETTINGS if read_json(home / name, missing={})), home / _SETTINGS[0])
    settings = read_json(file, missing={})
    processing = settings.get("processing_kwargs") or {}
    of_tokenizer = settings.get("processor_kwargs", settings.get("tokenizer_args")) or {}
    text = processing.get("text") or {}
    deciding = {name: settings.get(name) for name in ("query_length", "document_length", "query_expansion")}
    deciding |= {"modality_config.message": (settings.get("modality_config") or {}).get("message")}
    deciding |= {**text, "max_length": None, **(processing.get("common") or {})}
    for name, value in deciding.items():
        if name not in _HARMLESS and value not in _DEFAULTS:
            problem = f"{file} says {name}={value!r}, which changes what is read of a text, and termweave does not know it."
            raise ModelError(problem, "Name a model without this setting.")
    length = text.get("max_length") or of_tokenizer.get("model_max_length") or settings.get("max_seq_length")
    length = length or read_json(home / "tokenizer_config.json", missing={}).get("model_max_length")
    return bool(settings.get("do_lower_case")), _token_limit(length)


def _token_limit(length: object) -> int:
    """The limit of tokens that a tokeniser's `model_max_length` means; 0: no limit."""
    return int(length) if isinstance(length, int | float) and 0 < length < _NO_LENGTH else 0


def written(
    width: int, pooling: str, length: int, prompts: Mapping[str, str], *, lower: bool = False, include_prompt: bool = True
) -> dict[str, Any]:
    """The files that sentence-transformers writes beside a transformer with pooling and vectors of length 1: file name -> JSON content.

    Args:
        width: Width of the states.
        pooling: One of `MODES`; it is written under its old name, which every version of sentence-transformers reads.
        length: The most tokens of a text.
        prompts: "query" and "document" -> text before a query or document.
        lower: Whether texts are lower-cased first.
        include_prompt: Whether the prompt takes part in the pooling.
    """
    modules = (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize"))
    modes = {f"pooling_mode_{name}": mode == pooling for mode, name in zip(MODES, _OLD_MODES, strict=True)}
    about = {"prompts": dict(prompts), "default_prompt_name": None, "similarity_fn_name": "cosine"}
    return {
        MODULES: [
            {"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for place, (path, kind) in enumerate(modules)
        ],
        f"1_Pooling/{CONFIG}": {"word_embedding_dimension": width, **modes, "include_prompt": include_prompt},
        _SETTINGS[0]: {"max_seq_length": length, "do_lower_case": lower},
        "config_sentence_transformers.json": about,
    }


def read_json(file: Path, *, missing: Any = None) -> Any:
    """Read a JSON file of a model.

    Args:
        file: The file.
        missing: The value to return if there is no such file; None: a missing file is an error.

    Raises:
        ModelError: The file is missing, or is not a JSON object (``modules.json``: an array).
    """
    if not file.is_file():
        if missing is None:
            raise ModelError(f"The model is incomplete: {file} is missing.", AGAIN)
        return missing
    try:
        content = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{file} is not JSON: {error}.", AGAIN) from error
    if not isinstance(content, list if file.name == MODULES else dict):
        raise ModelError(f"{file} is not a {'list' if file.name == MODULES else 'table'}.", AGAIN)
    return content
