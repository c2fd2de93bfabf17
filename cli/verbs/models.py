"""`termweave models`: the models that this host knows."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from termweave.cli.options.shared_options import verb
from termweave.support.messages import sized

if TYPE_CHECKING:
    from termweave import answers
    from termweave.cli.common.output import Output


@verb("models")
def command(*, out: Output) -> None:
    """List the models that commands take by name: shipped, of installed packages, your own, fetched, used, and those that can be fetched.

    A model is "used" if an index was built with it on this host, from a path. The calibration is the unit in which hybrid search measures
    its similarities; it is measured when a model is exported, or first used.

    \b
    Examples:
      termweave models
      termweave models --json
    """
    from termweave.cli.common.fitted_table import fitted_table
    from termweave.encoders.model_lookup import dependence, known_models

    known = known_models()
    columns = {
        "name": [each.name for each in known],
        "origin": [each.origin for each in known],
        "size": [sized(each.bytes) for each in known],
        "gives": [", ".join(each.outputs) for each in known],
        "language": [each.language for each in known],
        "calibration": ["" if each.calibration is None else f"{each.calibration:.3f}" for each in known],
        "model": [each.model for each in known],
    }
    rows: list[answers.KnownModel] = [
        {**asdict(each), "folder": None if each.folder is None else str(each.folder)}  # type: ignore[typeddict-item]
        for each in known
    ]
    data: answers.Models = {"schema": "termweave.models/1", "models": rows}
    if doubt := dependence(known):
        out.warn(doubt)
    out.emit(data, lambda: fitted_table(columns, out.console().width, right={"size", "calibration"}))
