"""The folder of a trained ranker: the layout of sentence-transformers' CrossEncoder, and ``termweave.json``.

CrossEncoder loads the folder. Of an anchored ranker it gives the residual alone: the weights of the first stage's features stand in
``termweave.json`` (`Manifest.anchor`), and search adds them.
"""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from termweave.encoders.kinds import sentence_layout, sentence_modules
from termweave.encoders.kinds.ranker import FEATURES
from termweave.encoders.manifest import digests, write_manifest
from termweave.training.backbone import loading

if TYPE_CHECKING:
    from pathlib import Path

    from termweave.training.model_folder.writer import FolderContents
    from termweave.training.ranker.model import AnchoredRanker

_TOKENISER_SETTINGS = "tokenizer_config.json"


def save(model: AnchoredRanker, folder: Path, contents: FolderContents) -> None:
    """Write the classifier and its description; ``tokenizer.json`` is in the folder already."""
    source = contents.setup.backbone
    loading.write_backbone(model.classifier, source, folder)
    config: dict[str, Any] = sentence_modules.read_json(source / _TOKENISER_SETTINGS, missing={})
    length = loading.length(model.backbone, contents.settings.max_length)
    text = json.dumps({**config, "model_max_length": length}, indent=2) + "\n"
    (folder / _TOKENISER_SETTINGS).write_text(text, encoding="utf-8")
    manifest = sentence_layout.read(folder, name=contents.name).manifest
    training = {**contents.training, "backbone_hash": loading.fingerprint(model.backbone)}
    manifest = replace(manifest, training=training, files=digests(folder))
    if model.weights is not None:
        weights = dict(zip(FEATURES, model.weights.detach().cpu().tolist(), strict=False))
        anchored = blake2b(f"{manifest.hash} {weights}".encode(), digest_size=8).hexdigest()
        manifest = replace(manifest, hash=anchored, anchor={"kind": "first-stage", "weights": weights})
    write_manifest(folder, manifest)
