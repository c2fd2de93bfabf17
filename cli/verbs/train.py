"""`termweave train`: a data set to a model folder that `termweave index --weights` takes."""

from __future__ import annotations

import sys
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from termweave.cli._options import CONTEXT, output_options, source_options
from termweave.words import sized

if TYPE_CHECKING:
    from termweave.cli._options import Output
    from termweave.training.inspection import Change, Inspection
    from termweave.training.prospect import Plan
    from termweave.training.run import Result

SCHEMA = "termweave.train/1"


@click.command("train", context_settings=CONTEXT, short_help="Train term weights on your own text.")
@click.argument("method")
@click.argument("dataset")
@click.option(
    "--out",
    "folder",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Folder of the run and of the model.",
)
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set a parameter; repeatable. `termweave methods METHOD` lists them.",
)
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Parameters in TOML; --set wins over it.",
)
@click.option("--skip-bad", is_flag=True, help="Leave entries out that cannot be read, and the second of two with one id.")
@click.option("--resume", is_flag=True, help="Go on with the run in DIR; it ends with the same model.")
@click.option("--plan", "only_plan", is_flag=True, help="Say what would be done, or refused, and do nothing.")
@source_options
@output_options
def command(
    *,
    method: str,
    dataset: str,
    folder: Path,
    assignments: tuple[str, ...],
    config: Path | None,
    skip_bad: bool,
    resume: bool,
    only_plan: bool,
    reading: dict[str, Any],
    out: Output,
) -> None:
    """Train METHOD on DATASET and export the model to DIR.

    METHOD: fectek learns by contrast; its default (anchor=bm25, or anchor=idf) is the anchored head, a multiplier on BM25 or idf
    that starts as BM25 itself; anchor=none is the paper's FecTek. bert-scorer learns by regression on tf-idf or query-term
    recall. DATASET is a BEIR folder (its split 'train' is used; PATH:SPLIT names another), or any corpus: with a click log
    (--set clicks=FILE), or alone, when questions are made of the documents themselves.

    How well the model ranks held-out questions decides when to stop. What int8 costs in nDCG@10 is measured with at most 50 of them,
    in at most 300 documents. Needs the extra: pip install 'termweave[train]'.

    \b
    Examples:
      termweave train fectek ./my-beir-folder --out runs/mine
      termweave train fectek ./docs.jsonl --out runs/clicks --set clicks=clicks.tsv
      termweave train fectek ./products.csv --out runs/products --id-field sku --text-field description
      termweave train fectek ./docs.jsonl --out runs/alone --set anchor=idf --set fcm=true
      termweave train fectek ./docs.jsonl --out runs/both --set beside=./judged-elsewhere
      termweave train fectek ./docs.jsonl --out runs/more --set start=shipped --set keep=0.3
      termweave train bert-scorer ./my-beir-folder --out runs/deepct --set target=recall --plan
      termweave index ./docs.jsonl docs --weights runs/mine --dense runs/mine
    """
    from termweave.errors import UsageError
    from termweave.training import methods

    chosen = methods.get(method)
    flags = {
        "skip_bad": skip_bad,
        "id_field": reading["id_field"],
        "title_field": reading["title_field"],
        "text_field": ",".join(reading["text_fields"]),
    }
    settings = chosen.settings(methods.given(assignments, config) | {name: value for name, value in flags.items() if value})
    missing = [name for name in ("torch", "onnx", "transformers", "accelerate") if find_spec(name) is None]
    if missing:
        raise UsageError(f"Training needs {' and '.join(missing)}.", "Install them: pip install 'termweave[train]'")
    from termweave.training import prospect, run

    if only_plan:
        run.holds(folder, chosen, dataset, settings, resume=resume)
        found = prospect.plan(chosen, dataset, settings, out.say)
        out.emit({"schema": "termweave.train-plan/1", **asdict(found)}, _planned(found))
        return
    with out.progress("Training") as bar:
        result = run.train(chosen, dataset, settings, folder, resume=resume, say=out.say, progress=bar)
    from termweave.training.inspection import inspect

    out.say("looking at the result")
    seen = inspect(result.folder, dataset, settings)
    out.emit(_as_json(result, seen), lambda: _shown(result, seen, out))
    if result.history["best"] == 0:
        out.warn(
            "No step ranked the held-out questions better than step 0: the model is what training began with. "
            "More questions, or judged ones, may teach it something."
        )
    if not result.default:
        out.warn("The model is significantly below BM25 on its development questions: it is not fit to be a default.")


def _planned(plan: Plan) -> str:
    cache = (
        f"hidden states of {plan.backbone}: {sized(plan.states_bytes)} in the cache"
        if plan.frozen
        else f"layers of {plan.backbone} are trained"
    )
    return "\n".join(
        [
            f"{plan.method} on {plan.dataset}: {plan.documents:,} documents",
            f"{plan.questions:,} questions ({plan.origin}) on {plan.trained_on:,} documents",
            *(
                f"beside: {each['dataset']}: {each['questions']:,} questions ({each['origin']}) on {each['trained']:,} of "
                f"{each['documents']:,} documents"
                for each in plan.beside
            ),
            f"{plan.dev:,} questions held out, searched in {plan.searched:,} documents",
            cache,
            f"at most {plan.settings['steps']} steps of {plan.settings['batch']} questions, a look every {plan.settings['every']}",
        ]
    )


def _as_json(result: Result, seen: Inspection) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        **asdict(result),
        "folder": str(result.folder),
        "passages": [
            {
                "id": passage.id,
                "words": [
                    {
                        "start": word.start,
                        "end": word.end,
                        "word": passage.text[word.start : word.end],
                        "term": word.term,
                        "weight": word.weight,
                    }
                    for word in passage.words
                ],
            }
            for passage in seen.passages
        ],
        "gained": [asdict(change) for change in seen.gained],
        "lost": [asdict(change) for change in seen.lost],
    }


def _shown(result: Result, seen: Inspection, out: Output) -> None:
    """Passages shaded in a terminal, their heaviest terms elsewhere; then what changed, and the figures."""
    from termweave.cli.weights import shaded
    from termweave.encoders.export import ndcg_said

    console = out.console()
    for passage in seen.passages:
        if sys.stdout.isatty():
            console.print(shaded(passage.text, passage.words, scale=False), "")
        else:
            heavy = sorted({(-word.weight, word.term) for word in passage.words if word.term})[:8]
            click.echo(f"{passage.text[:100]} ...\n    {', '.join(f'{term} {-weight:.1f}' for weight, term in heavy)}")
    if seen.gained or seen.lost:
        click.echo(f"\ngained most against BM25: {_changes(seen.gained)}\nlost most against BM25:   {_changes(seen.lost)}\n")
    else:
        click.echo("\nno term gained or lost against BM25\n")
    click.echo(
        f"dev nDCG@10: BM25 {result.bm25:.4f}, model {result.dev:.4f} (p {result.p:.2g}; float impacts {result.dev_float:.4f})"
    )
    if result.ndcg:
        click.echo(ndcg_said(result.ndcg))
    click.echo(f"model {result.hash} in {result.folder}")


def _changes(changes: list[Change]) -> str:
    return ", ".join(f"{change.term} x{change.ratio:.2f}" for change in changes)
