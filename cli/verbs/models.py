"""`termweave models`, `backbone` and `export`: list the models on this host, fetch or import encoders, and write a model as ONNX graphs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from termweave.cli.declared_options import CONTEXT, FILE, option
from termweave.cli.output import Output, fitted_table
from termweave.cli.shared_options import verb
from termweave.errors import UsageError
from termweave.support.messages import sized
from termweave.training import needs

if TYPE_CHECKING:
    from termweave import answers

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
    from termweave.encoders.model_lookup import dependence, known_models

    models = known_models()
    columns = {
        "name": [each.name for each in models],
        "origin": [each.origin for each in models],
        "size": [sized(each.bytes) for each in models],
        "gives": [", ".join(each.outputs) for each in models],
        "language": [each.language for each in models],
        "calibration": ["" if each.calibration is None else f"{each.calibration:.3f}" for each in models],
        "model": [each.model for each in models],
    }
    rows = [{**asdict(each), "folder": None if each.folder is None else str(each.folder)} for each in models]
    data: answers.Models = {"schema": "termweave.models/1", "models": rows}  # type: ignore[typeddict-item]
    if doubt := dependence(models):
        out.warn(doubt)
    out.emit(data, lambda: fitted_table(columns, out.console().width, right={"size", "calibration"}))


@click.group("backbone", context_settings=CONTEXT)
def backbone() -> None:
    """Pretrained encoders that commands take by name, such as bge-small-en.

    A name serves wherever a model is named. A model that is not on this host yet is fetched from Maven Central after a sentence
    with its size. Without a network, put the archive in a folder and name the folder in $TERMWEAVE_BACKBONE_ARCHIVES.

    \b
    Examples:
      termweave backbone fetch bge-small-en
      termweave index ./docs docs --dense bge-small-en
      termweave train fectek DATA --out runs/zh --set backbone=bge-small-zh
    """


@verb("fetch", backbone)
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
def fetch(*, names: tuple[str, ...], out: Output) -> None:
    """Fetch encoders by name, and print their folders.

    Each archive is compared with a checksum that is part of termweave.

    \b
    Examples:
      termweave backbone fetch bge-small-en
      termweave backbone fetch e5-small bge-small-zh
    """
    from termweave.encoders import backbones

    if unknown := [name for name in names if name not in backbones.BACKBONES]:
        raise UsageError(f"No encoder is called {unknown[0]!r}.", f"Known: {', '.join(backbones.BACKBONES)}.")
    folders = {name: str(backbones.fetch(name, out.say)) for name in names}
    fetched = {name: backbones.BACKBONES[name] for name in names}
    licences = {name: each.licence for name, each in fetched.items()}
    data: answers.BackboneFolders = {"schema": "termweave.backbone/1", "folders": folders, "licences": licences}
    out.emit(data, "\n".join(f"{name}: {folders[name]} ({each.licence}, {each.origin})" for name, each in fetched.items()))


@verb("import", backbone)
@click.argument("graph", metavar="FILE.onnx", type=FILE)
@option("--name", "The name that commands take from now on.", required=True)
@option("--pooling", "How it makes vectors.", type=click.Choice(["mean", "cls"]), default="mean", show_default=True)
@option("--query-prompt", "Text that it expects before a query.", "TEXT", default="")
@option("--document-prompt", "Text that it expects before a document.", "TEXT", default="")
def import_(*, graph: Path, name: str, pooling: str, query_prompt: str, document_prompt: str, out: Output) -> None:
    """Make a model of FILE.onnx, the graph of a BERT encoder of your own, and of the tokenizer.json beside it.

    The graph maps input_ids to hidden states. Its parameters are read and compared with torch: the same states must come out.
    Needs the extra: pip install 'termweave[train]', in a clone pip install '.[train]'.

    \b
    Examples:
      termweave backbone import model.onnx --name ours --pooling cls
      termweave index ./docs docs --dense ours
    """
    from termweave.encoders.model_lookup import is_taken
    from termweave.encoders.onnx.bert_graph import import_graph

    needs.check_packages("Importing")
    if Path(name).name != name or name.startswith(".") or is_taken(name):
        advice = "Choose a plain name that 'termweave models' does not list, or delete your model of that name."
        raise UsageError(f"Your model cannot be called {name!r}.", advice)
    tokenizer = graph.with_name("tokenizer.json")
    if not tokenizer.is_file():
        raise UsageError(f"{tokenizer} does not exist.", "Put the tokenizer.json of the graph beside it.")
    prompts = {kind: text for kind, text in (("query", query_prompt), ("document", document_prompt)) if text}
    folder = import_graph(graph, tokenizer, name, pooling=pooling, prompts=prompts)
    out.emit({"schema": "termweave.backbone/1", "folders": {name: str(folder)}, "licences": {}}, f"{name}: {folder}")


@verb("export")
@click.argument("model", metavar="MODEL")
@option(
    "--out out_folder",
    "A new folder for the export.  [default: the model's own folder, if termweave wrote it]",
    "DIR",
    type=click.Path(path_type=Path),
)
@option(
    "--on dataset",
    "Measure what int8 costs on a sample of this corpus: nDCG@10 if it has judged queries, else how many of the ten best documents stay.",
    "DATASET",
)
def export(*, model: str, out_folder: Path | None, dataset: str | None, out: Output) -> None:
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
    needs.check_packages("Exporting")
    from termweave.encoders.kinds import read_folder
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
            advice = "Leave --on out; to measure a cross-encoder, evaluate an index with --rerank."
            raise UsageError(f"{model} is a cross-encoder, and --on measures only models of term weights or vectors.", advice)
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
    figures, digits = parity.as_dict(), {"fp32_difference": ".2g"}
    data = {"schema": "termweave.export/1", "folder": str(folder), "graphs": graphs, "parity": figures, "ndcg": ndcg}
    lines = [
        *(f"{graph['file']:23} {sized(int(str(graph['bytes']))):>9}" for graph in graphs.values()),
        f"over {parity.texts} texts:",
        *(f"  {label:42} {figures[name]:{digits.get(name, '.4f')}}" for name, label in _LABELS.items() if name in figures),
        *([int8_cost(ndcg)] if ndcg else []),
        *(sample_cost.in_words(output, cost) for output, cost in costs.items()),
    ]
    out.emit(data | ({"sample": costs} if sample else {}), "\n".join(lines))
