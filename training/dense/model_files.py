"""The folder of a trained dense model: the layout of sentence-transformers, and ``termweave.json``.

sentence-transformers loads the folder as the document encoder. Where queries have an encoder of their own, it is a model folder in the
subfolder ``query``.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from termweave.encoders.kinds import sentence_layout, sentence_modules
from termweave.encoders.manifest import TOKENIZER, Manifest, digests, write_manifest
from termweave.training.backbone import loading
from termweave.training.dense.inputs import reading_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from termweave.training.dense.model import Towers
    from termweave.training.model_folder.writer import FolderContents

QUERY = "query"
_MODULES = (("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize"))


def save(model: Towers, folder: Path, contents: FolderContents) -> None:
    """Write the towers and their description; ``tokenizer.json`` is in the folder already."""
    training = {**contents.training, "backbone_hash": loading.fingerprint(model.backbone)}
    if model.query_backbone is None:
        _write_tower(model, model.backbone, folder, contents)
        write_manifest(folder, _manifest(folder, contents.name, training))
        return
    home = folder / QUERY
    home.mkdir(exist_ok=True)
    shutil.copyfile(folder / TOKENIZER, home / TOKENIZER)
    for backbone, place in ((model.backbone, folder), (model.query_backbone, home)):
        _write_tower(model, backbone, place, contents)
    query = _manifest(home, f"{contents.name}-query", training)
    write_manifest(home, query)
    document = _manifest(folder, contents.name, training)
    both = blake2b(f"{document.hash} {query.hash}".encode(), digest_size=8).hexdigest()
    write_manifest(folder, replace(document, hash=both, settings={**document.settings, "query_folder": QUERY}))


def _write_tower(model: Towers, backbone: Any, folder: Path, contents: FolderContents) -> None:
    """Write one encoder as sentence-transformers writes it."""
    source = contents.setup.backbone
    _, reading = reading_of(source)
    loading.write_backbone(backbone, source, folder)
    modules = [
        {"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for place, (kind, path) in enumerate(_MODULES)
    ]
    _write_json(folder / sentence_modules.MODULES, modules)
    pooling: dict[str, Any] = {"word_embedding_dimension": model.width, "include_prompt": reading.include_prompt}
    old = {mode: key for key, mode in _POOLING_KEYS.items()}
    pooling.update({key: mode == model.pooling for mode, key in old.items()})
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "2_Normalize").mkdir(exist_ok=True)
    _write_json(folder / "1_Pooling" / sentence_modules.CONFIG, pooling)
    length = loading.length(backbone, contents.settings.max_length)
    _write_json(folder / "sentence_bert_config.json", {"max_seq_length": length, "do_lower_case": reading.lower})
    config: Mapping[str, Any] = {"prompts": reading.prompts, "default_prompt_name": None, "similarity_fn_name": "cosine"}
    _write_json(folder / "config_sentence_transformers.json", config)


#: Keys of a ``Pooling`` module that every version of sentence-transformers reads.
_POOLING_KEYS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "lasttoken",
}


def _manifest(folder: Path, name: str, training: Mapping[str, Any]) -> Manifest:
    """The description of a folder that was just written, as it will be read."""
    manifest = sentence_layout.read(folder, name=name).manifest
    return replace(manifest, training=dict(training), files=digests(folder))


def _write_json(file: Path, content: Any) -> None:
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
