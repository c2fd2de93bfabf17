"""A copy of a trained model that is used in fp32 everywhere, because int8 costs too much."""

from __future__ import annotations

import shutil
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING

from termweave.encoders.layouts import read_folder
from termweave.encoders.manifest import GRAPHS, MANIFEST, write_manifest

if TYPE_CHECKING:
    from pathlib import Path


def fp32_copy(folder: Path) -> Path:
    """Copy a model folder, and those of its towers, with the fp32 graphs alone.

    The hash of the copy is another one: an index that was encoded in fp32 opens the copy, and never the int8 graph of the original.

    Returns:
        The copy, beside the folder; made once.
    """
    copy, part = (folder.with_name(f"{folder.name}-{name}") for name in ("fp32", "fp32.part"))
    if copy.is_dir():
        return copy
    shutil.rmtree(part, ignore_errors=True)
    others = {name for precision, name in GRAPHS.items() if precision != "fp32"}
    shutil.copytree(folder, part, ignore=lambda _, names: others.intersection(names))
    for file in part.rglob(MANIFEST):
        manifest = read_folder(file.parent, check=False).manifest
        files = {name: digest for name, digest in manifest.files.items() if name.rpartition("/")[2] not in others}
        own = blake2b(f"{manifest.hash} fp32".encode(), digest_size=8).hexdigest()
        write_manifest(file.parent, replace(manifest, hash=own, files=files))
    return part.rename(copy)
