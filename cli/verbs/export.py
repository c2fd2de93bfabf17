"""`termweave export`: a trained model folder to ONNX, with the parity figures printed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from termweave.cli._options import CONTEXT, output_options
from termweave.errors import UsageError
from termweave.words import sized

if TYPE_CHECKING:
    from termweave.cli._options import Output

SCHEMA = "termweave.export/1"


@click.command("export", context_settings=CONTEXT, short_help="A trained model to ONNX, with parity figures.")
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@output_options
def command(*, folder: Path, out: Output) -> None:
    """Write the ONNX graphs (fp32, int8, and int8's weights in fp32 for GPUs) into the trained model folder DIR.

    The fp32 graph must say what torch says (largest difference 1e-4), and the weights must be those that were trained,
    else nothing is written. How close the int8 graph comes is printed and kept in termweave.json. What int8 costs in nDCG
    takes questions: `termweave train` measures it, and here it is said again where the graphs are still the same. Needs the
    extra: pip install 'termweave[train]'.

    \b
    Examples:
      termweave export runs/my-model
      termweave export runs/my-model --json
    """
    missing = [name for name in ("torch", "onnx", "transformers") if find_spec(name) is None]
    if missing:
        raise UsageError(f"Exporting needs {' and '.join(missing)}.", "Install them: pip install 'termweave[train]'")
    from termweave.encoders.export import export, ndcg_said
    from termweave.encoders.folder import GRAPHS, ModelFolder

    out.say(f"Exporting {folder} ...")
    parity = export(folder)
    ndcg = ModelFolder.read(folder, check=False).manifest.quantisation.get("ndcg", {})
    graphs = {precision: {"file": name, "bytes": (folder / name).stat().st_size} for precision, name in GRAPHS.items()}
    data = {"schema": SCHEMA, "folder": str(folder), "graphs": graphs, "parity": parity.as_dict(), "ndcg": ndcg}
    lines = [
        *(f"{graph['file']:16} {sized(int(str(graph['bytes']))):>9}" for graph in graphs.values()),
        f"over {parity.texts} texts:",
        f"  fp32 against torch, largest difference    {parity.fp32_difference:.2g}",
        f"  int8 multipliers, rank correlation        {parity.int8_rank_correlation:.4f}",
        f"  int8 multipliers, mean difference         {parity.int8_multiplier_difference:.4f}",
        f"  int8 vectors, smallest and mean cosine    {parity.int8_cosine_min:.4f}  {parity.int8_cosine_mean:.4f}",
        *([ndcg_said(ndcg)] if ndcg else []),
    ]
    out.emit(data, "\n".join(lines))
