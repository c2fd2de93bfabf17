"""`termweave export`: write a model as ONNX graphs and print how close they are to torch."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from termweave.cli.options.shared_options import verb
from termweave.errors import UsageError
from termweave.support.extras import install
from termweave.support.messages import sized

if TYPE_CHECKING:
    from termweave.cli.common.output import Output
    from termweave.encoders.onnx.parity import Parity

SCHEMA = "termweave.export/1"
#: Figure of `Parity` -> its label in the printed table.
_LABELS = {
    "fp32_difference": "fp32 against torch, largest difference",
    "int8_rank_correlation": "int8 weights or scores, rank correlation",
    "int8_multiplier_difference": "int8 multipliers, mean difference",
    "int8_score_difference": "int8 scores, mean difference (deviations)",
    "int8_cosine_min": "int8 vectors, smallest cosine",
    "int8_cosine_mean": "int8 vectors, mean cosine",
    "dequantised_cosine_min": "int8's weights in fp32, smallest cosine",
}


@verb("export")
@click.argument("model", metavar="MODEL")
@click.option(
    "--out",
    "out_folder",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="A new folder for the export.  [default: the model's own folder, if termweave wrote it]",
)
@click.option(
    "--on",
    "dataset",
    metavar="DATASET",
    help="Measure what int8 costs on a sample of this corpus: nDCG@10 if it has judged queries, else how many of the ten best documents stay.",
)
def command(*, model: str, out_folder: Path | None, dataset: str | None, out: Output) -> None:
    """Write MODEL as ONNX graphs: fp32, int8, and int8's weights in fp32 for GPUs.

    MODEL is a folder that training wrote, or a folder or hf:OWNER/NAME in the layout of sentence-transformers (an encoder or a
    cross-encoder); the export loads there, too. The fp32 graph must compute what torch computes (largest difference 1e-4), and the vectors of
    the int8 graph must stay close; else nothing is written. The figures are printed and kept in termweave.json. What int8 costs
    in nDCG needs questions: --on names a corpus that has some; `termweave train` measures it, too, and its figures are repeated here if the
    graphs are the same.
    Needs the extra: pip install 'termweave[train]', in a clone pip install '.[train]'.

    \b
    Examples:
      termweave export runs/my-model
      termweave export path/to/sentence-transformers-model --out my-model
      termweave export hf:OWNER/NAME --out my-model --on ./nfcorpus
    """
    missing = [name for name in ("torch", "onnx", "transformers") if find_spec(name) is None]
    if missing:
        raise UsageError(f"Exporting needs {' and '.join(missing)}.", f"Install them: {install('train')}.")
    from termweave.encoders.layouts import read_folder
    from termweave.encoders.manifest import GRAPHS
    from termweave.encoders.model_lookup import resolve
    from termweave.encoders.onnx.bert_graph import write_weights
    from termweave.encoders.onnx.export import export, int8_cost

    path = resolve(model)
    write_weights(path)
    sample = None
    if dataset:
        from termweave.training import sample_cost

        outputs = read_folder(path, check=False).manifest.outputs
        if "scores" in outputs:
            raise UsageError(
                f"{model} is a cross-encoder, and --on compares term weights or vectors.",
                "Leave --on out; to measure a cross-encoder, evaluate an index with --rerank.",
            )
        sample = sample_cost.draw(dataset)
    out.say(f"Exporting {model} ...")
    parity = export(path, out_folder)
    folder = out_folder or path
    ndcg = read_folder(folder, check=False).manifest.quantisation.get("ndcg", {})
    graphs = {precision: {"file": name, "bytes": (folder / name).stat().st_size} for precision, name in GRAPHS.items()}
    costs: dict[str, Any] = {}
    if sample:
        out.say(f"Comparing fp32 and int8 on {dataset} ...")
        costs = {output: sample_cost.cost(folder, output, sample) for output in outputs}
    data: dict[str, Any] = {"schema": SCHEMA, "folder": str(folder), "graphs": graphs, "parity": parity.as_dict(), "ndcg": ndcg}
    lines = [
        *(f"{graph['file']:23} {sized(int(str(graph['bytes']))):>9}" for graph in graphs.values()),
        *_figures(parity),
        *([int8_cost(ndcg)] if ndcg else []),
        *(sample_cost.in_words(output, figures) for output, figures in costs.items()),
    ]
    if sample:
        data["sample"] = costs
    out.emit(data, "\n".join(lines))


def _figures(parity: Parity) -> list[str]:
    """The parity figures, one per line."""
    figures = parity.as_dict()
    shown = [(label, figures[name], name) for name, label in _LABELS.items() if name in figures]
    return [
        f"over {parity.texts} texts:",
        *(
            f"  {label:42} {value:.2g}" if name == "fp32_difference" else f"  {label:42} {value:.4f}"
            for label, value, name in shown
        ),
    ]
