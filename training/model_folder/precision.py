"""The precision in which a trained model is used: int8, unless int8 costs too much on the held-out questions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from termweave.encoders.kinds import read_folder
from termweave.encoders.manifest import GRAPHS, MANIFEST, write_manifest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

#: The largest loss of nDCG@10 by int8 with which a model is used in int8.
MOST_LOST = 0.005
#: What a run says where it is larger, and the card with it.
ONLY_FP32 = (
    f"int8 costs more than {MOST_LOST:g}, so the folder keeps the fp32 graph alone, which is then used: two to three times as slow on a "
    "CPU. `termweave export FOLDER` writes int8 again."
)
_INT8 = (GRAPHS["int8"], GRAPHS["dequantised"])


def loses_too_much(figures: Mapping[str, Any]) -> bool:
    """Whether an output of a model loses too much by int8 (`quantisation_check.cost`)."""
    return any(isinstance(each, dict) and each["change"] < -MOST_LOST for each in figures.values())


def remove_int8(folder: Path) -> None:
    """Leave a model folder, and those of its towers, with the fp32 graph, which is then the one that is used."""
    for file in folder.rglob(MANIFEST):
        manifest = read_folder(file.parent).manifest
        kept = {name: digest for name, digest in manifest.files.items() if not name.endswith(_INT8)}
        write_manifest(file.parent, replace(manifest, files=kept))
    for name in _INT8:
        for graph in folder.rglob(name):
            graph.unlink()
