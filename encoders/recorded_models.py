"""Open the models that a generation (one build of an index) was built with. Other models would give wrong scores.

The lineage has the name and the hash of each model. The host that built the index notes the folder of each hash in its state
folder, so that a search after `index --weights ./mine` needs no option.

Anyone who can write to the index can change these names. A name from an index therefore opens only models that this host already
has (`encoders.model_lookup.resolve_local`). Only names that the user gives can be paths or start downloads.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from termweave import encoders
from termweave.encoders import hub
from termweave.encoders.kinds import kind_of, read_folder
from termweave.encoders.model_lookup import resolve, resolve_local
from termweave.errors import ModelError
from termweave.support import atomic_files, paths

if TYPE_CHECKING:
    from termweave.catalog.lineage import Lineage, ModelLineage
    from termweave.encoders import ModelInfo, TextEncoder


_NOT_HERE = "and this host has no model of that name. An index can open only models that the host already has."


def encoder_of(
    lineage: Lineage, name: str, options: Mapping[str, str | Path | None], *, new_query: str | Path | None = None
) -> TextEncoder:
    """Open the models that a generation's lineage (its record of origin) names.

    Args:
        lineage: The lineage, with name and hash of each model.
        name: Name of the index, for messages.
        options: "weights", "dense" and "dense_query" -> model name or folder that the user gives instead of the stored name; None: the
            user gives none. "weights_otherwise" and "dense_otherwise" -> name or folder to try if this host does not have the stored
            model; None or "none": nothing else is tried.
        new_query: A query encoder to use in place of the lineage's; "none": the dense model's own query encoder; None: the lineage's.

    Raises:
        UsageError: The user's name or folder is not a model.
        ModelError: A model is not on this host, or has another hash.
    """
    names = dict.fromkeys(("weights", "dense", "dense_query"), "none")
    recorded = {output: model for output, model in lineage.models.items() if output != "dense_query"}
    if new_query is None and "dense_query" in lineage.models:
        # Last: it may lie in the folder of "dense", whatever the order of the JSON.
        recorded["dense_query"] = lineage.models["dense_query"]
    folders = {recorded[output].hash: folder for output, folder in options.items() if folder and output in recorded}
    further = {
        model.hash: folder
        for output, model in recorded.items()
        if (folder := options.get(f"{output}_otherwise")) and folder != "none"
    }
    missing: dict[str, ModelLineage] = {}
    for output, model in recorded.items():  # if one model has both outputs, one option is enough
        if output == "dense_query" and not options.get(output) and _has_query_encoder(names["dense"], model):
            continue
        folder = options.get(output) or folders.get(model.hash) or local_folder(model) or further.get(model.hash)
        if folder is None:
            missing[output] = model
        else:
            names[output] = str(folder)
    if missing:
        raise _missing(name, missing)
    query = names["dense_query"] if new_query is None else new_query
    encoder = encoders.load(weights=names["weights"], dense=names["dense"], dense_query=query)
    # A model that the user named comes first, so that the message speaks of the option that was given.
    for output, model in sorted(recorded.items(), key=lambda item: not options.get(item[0])):
        present, flag = encoder.models.get(output), output.replace("_", "-")
        if present is None:
            raise ModelError(f"The index {name!r} needs its {flag} model {model.name!r}.", f"Name its folder with --{flag}.")
        if present.hash != model.hash:
            here = f"the model on this host is {present.name!r} ({present.hash})"
            hint = f"Name the right model folder with --{flag}, or index again. Another model would give wrong scores."
            raise ModelError(f"The index {name!r} was built with the {flag} model {model.name!r} ({model.hash}); {here}.", hint)
    return encoder


def local_folder(model: ModelLineage) -> str | None:
    """The folder of a model that a lineage names, or of a newer model of the same name; None: this host has neither."""
    folder = _remembered(model.hash) or resolve_local(model.name)
    return None if folder is None else str(folder)


def _has_query_encoder(folder: str, model: ModelLineage) -> bool:
    """Whether the dense model with this folder or name brings the given query encoder, as the hash tells."""
    if folder == "none":
        return False
    dense = read_folder(resolve(folder), check=False)
    return (kind_of(dense.manifest).query_folder(dense) or dense).manifest.hash == model.hash


def ranker_folder(name: str, expected: str) -> Path:
    """Find the folder of a ranker that the user, or the profile (tuned settings of reranking) of an index, names.

    Args:
        name: A folder or a name. A name in a profile can only open a model that this host already has.
        expected: The hash of the ranker with which the profile was made; "": the user named the ranker.

    Raises:
        UsageError: The user named a model that does not exist.
        ModelError: This host does not have the profile's model, or has another one of this name.
    """
    if not expected:
        return resolve(name)
    if (noted := _remembered(expected)) is not None:
        return Path(noted)
    folder = resolve_local(name)
    option = "--rerank ranker@DIR (ltr@DIR for a feature ranker)"
    if folder is None:
        hint = f"If you trust the model, give {option}, or put its folder into {paths.models()}; --rerank none leaves it out."
        raise ModelError(f"The profile reranks with {name!r}, {_NOT_HERE}", hint)
    if (present := read_folder(folder, check=False).manifest.hash) != expected:
        problem = f"The ranker {name!r} on this host has the hash {present}, and the profile was made with {expected}."
        raise ModelError(problem, f"Tune again, or name the right folder: {option}.")
    return folder


def _missing(index: str, models: Mapping[str, ModelLineage]) -> ModelError:
    """Make the error about models that this host does not have; its hint names the options that would open them."""
    names = " and ".join(dict.fromkeys(repr(model.name) for model in models.values()))
    options = " and ".join(
        f"--{output.replace('_', '-')} {model.name if hub.well_formed(model.name) else 'DIR'}" for output, model in models.items()
    )
    hint = f"If you trust the model, give {options}, or put its folder into {paths.models()}."
    return ModelError(f"The index {index!r} was built with {names}, {_NOT_HERE}", hint)


def remember(models: Iterable[ModelInfo]) -> None:
    """Note the folder of each opened model in a file on this host, so that `encoder_of` finds the model by its hash."""
    for model in models:
        if model.folder is not None:
            note = _note(model.hash)
            note.parent.mkdir(parents=True, exist_ok=True)
            atomic_files.write(note, bytes(model.folder))


def _remembered(expected: str) -> str | None:
    """The recorded folder of the model with this hash; None: no folder is recorded, or the folder no longer holds this model."""
    try:
        folder = Path(os.fsdecode(_note(expected).read_bytes()))
        return str(folder) if read_folder(folder, check=False).manifest.hash == expected else None
    except (OSError, ValueError, ModelError):
        return None  # never noted, moved, or trained again: the model is looked up by its name


def _note(model: str) -> Path:
    """The file that notes the folder of the model with this hash."""
    return paths.state() / "models" / model
