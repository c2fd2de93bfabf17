"""The models a generation was made with, opened again: another one's scores, or weights, would be wrong.

A generation says the name and the hash of each. On the host that built it the state folder knows by the hash in which folder
it lay, so a search after `index --weights ./mine` need not be told once more.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from termweave import atomic, places
from termweave.errors import ModelError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from termweave.encoders import ModelInfo, TextEncoder
    from termweave.search.lineage import Lineage, ModelLineage


def encoder_of(found: Lineage, name: str, asked: Mapping[str, str | Path | None]) -> TextEncoder:
    """Open the models that a lineage names.

    Args:
        found: The lineage.
        name: Of the index, for messages.
        asked: Output -> name or folder, where the stored name does not resolve on this host.

    Raises:
        ModelError: A model is not here, or the one here has another hash.
    """
    from termweave import encoders  # noqa: PLC0415 - the runtime loads only where a model is needed

    names = dict.fromkeys(("weights", "dense"), "none")
    folders = {found.models[output].hash: folder for output, folder in asked.items() if folder and output in found.models}
    for output, model in found.models.items():  # of a joint model one option is enough
        names[output] = str(asked.get(output) or folders.get(model.hash) or _remembered(model) or model.name)
    try:
        encoder = encoders.load(weights=names["weights"], dense=names["dense"])
    except UsageError as error:
        given = [f"--{output}" for output in found.models if asked.get(output)]
        if given:
            raise
        lacking = " and ".join(dict.fromkeys(repr(model.name) for model in found.models.values()))
        options = " and ".join(f"--{output} DIR" for output in found.models)
        raise ModelError(
            f"The index {name!r} was made with {lacking}, and no model of that name is found here: {error.message}",
            f"Name its folder with {options}, or put it into {places.models()}, where names are looked for.",
        ) from error
    for output, model in found.models.items():
        here = encoder.models.get(output)
        if here is None:
            raise ModelError(f"The index {name!r} needs its {output} model {model.name!r}.", f"Name its folder with --{output}.")
        if here.hash != model.hash:
            raise ModelError(
                f"The index {name!r} was made with the {output} model {model.name!r} ({model.hash}); "
                f"the one found here is {here.name!r} ({here.hash}).",
                f"Name the right model folder with --{output}, or index again: scores of another model would be wrong.",
            )
    return encoder


def remember(models: Iterable[ModelInfo]) -> None:
    """Note where models lie on this host, for `encoder_of`."""
    for model in models:
        note = _note(model.hash)
        note.parent.mkdir(parents=True, exist_ok=True)
        atomic.write(note, bytes(model.folder))


def _remembered(model: ModelLineage) -> str | None:
    """The folder a model of this hash lay in, while it holds that model."""
    from termweave.encoders.folder import ModelFolder  # noqa: PLC0415 - likewise

    try:
        folder = Path(os.fsdecode(_note(model.hash).read_bytes()))
        return str(folder) if ModelFolder.read(folder, check=False).manifest.hash == model.hash else None
    except (OSError, ValueError, ModelError):
        return None  # never noted here, or moved since, or trained anew: the name has to find it


def _note(model: str) -> Path:
    return places.state() / "models" / model
