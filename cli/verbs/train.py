"""`termweave train`: train a model on a data set and write a model folder for `termweave index --weights` or `--dense`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from termweave.cli import hit_list
from termweave.cli.declared_options import FOLDER, GroupedCommand, flag, option
from termweave.cli.shared_options import verb
from termweave.cli.source_options import source_options
from termweave.declared_settings import DeclaredSetting, settings_of, written
from termweave.support.messages import duration, printable, sized
from termweave.training.methods import base

if TYPE_CHECKING:
    from termweave.cli.output import Output
    from termweave.training.methods.base import Method
    from termweave.training.run import TrainingPlan, TrainingResult
    from termweave.training.term_weights.inspection import Inspection


class TrainCommand(GroupedCommand):
    """A command whose help lists the training methods; `METHOD --help` describes this method instead."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Store the METHOD among the arguments, because click handles --help before it parses arguments."""
        if not ctx.resilient_parsing:
            ctx.meta[__name__] = self.make_parser(ctx).parse_args(args=list(args))[0].get("method")
        return super().parse_args(ctx, args)

    def get_help(self, ctx: click.Context) -> str:
        """The help of the command, or the description of the method that the user named together with --help."""
        name = ctx.meta.get(__name__)
        return _described(base.get(name)) if isinstance(name, str) else super().get_help(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of training methods into the help, before the options."""
        with formatter.section("Methods (termweave train METHOD --help: paper, equations, parameters)"):
            formatter.write_dl([(name, base.get(name).title) for name in base.names()])
        super().format_options(ctx, formatter)


@verb("train", long=True, cls=TrainCommand)
@click.argument("method")
@click.argument("dataset")
@option("--out folder", "Folder of the run and of the model; --plan can do without.", "DIR", type=FOLDER)
@option(
    "--set assignments", "Set a parameter; repeatable. `termweave train METHOD --help` lists them.", "KEY=VALUE", multiple=True
)
@flag("--resume", "Resume the run in DIR on the same data; it ends with the same model.")
@flag("--plan only_plan", "Check the settings and print the planned run without training.")
@source_options()
def command(
    *,
    method: str,
    dataset: str,
    folder: Path | None,
    assignments: tuple[str, ...],
    resume: bool,
    only_plan: bool,
    reading: dict[str, Any],
    out: Output,
) -> None:
    """Train METHOD on DATASET and export the model to DIR.

    METHOD: fectek is trained with a contrastive loss; by default its head predicts a multiplier on BM25 (anchor=idf: on idf), so
    training starts from BM25 itself. bert-scorer is trained by regression on tf-idf or query-term recall. With --set preset=paper
    each trains the model that its paper describes.

    DATASET is a BEIR folder (its split 'train' is used; PATH:SPLIT names another), or any corpus: with a click log
    (--set clicks=FILE), or alone, when questions are made of the documents themselves.

    The ranking of held-out questions decides when to stop. At most 50 of them, searched in at most 300 documents, also measure
    how much nDCG@10 the int8 model loses. Needs the extra: pip install 'termweave[train]', in a clone pip install '.[train]'.

    \b
    Examples:
      termweave train fectek ./my-beir-folder --out runs/mine
      termweave train fectek ./docs.jsonl --out runs/clicks --set clicks=clicks.tsv
      termweave train fectek ./products.csv --out runs/products --id-field sku --text-field description
      termweave train fectek ./docs.jsonl --out runs/alone --set anchor=idf --set fcm=true
      termweave train fectek ./my-beir-folder --out runs/paper --set preset=paper
      termweave train fectek ./docs.jsonl --out runs/both --set beside=./judged-elsewhere
      termweave train fectek ./docs.jsonl --out runs/more --set start=shipped --set keep=0.3
      termweave train bert-scorer ./my-beir-folder --set target=recall --plan
      termweave index ./docs.jsonl docs --weights runs/mine --dense runs/mine
      termweave train coder ./my-beir-folder --out runs/dense
    """
    from termweave.training import needs

    if folder is None and not only_plan:
        raise click.UsageError("--out DIR is missing: name the folder for the run and the model.")
    chosen = base.get(method)
    settings = chosen.settings(base.read_assignments(assignments), {name: value for name, value in reading.items() if value})
    if chosen.torch:
        needs.check_packages("Training")
    from termweave.training import run

    if only_plan:
        if folder is not None:
            run.holds(folder, chosen, dataset, settings, resume=resume)
        planned = run.plan(chosen, dataset, settings, out.say)
        out.emit({"schema": "termweave.train-plan/1", **asdict(planned)}, _planned(planned))
        return
    assert folder is not None
    with out.progress("Training") as bar:
        result = run.train(chosen, dataset, settings, folder, resume=resume, say=out.say, progress=bar)
    inspection = chosen.inspect(result.folder, dataset, settings, out.say)
    out.emit(_as_json(result, inspection), lambda: _show(result, inspection, out))
    if not result.beats_its_start:
        out.warn(f"{without_effect(result)} Train with more questions, or with judged ones.")
    if not result.default:
        out.warn("The model is significantly worse than BM25 on its development questions: do not use it as a default.")


def _planned(plan: TrainingPlan) -> str:
    """Format a training plan as text."""
    cached = f"hidden states of {plan.backbone}: {sized(plan.states_bytes)} in the cache"
    lines = [
        f"{plan.method} on {plan.dataset}: {plan.documents:,} documents",
        f"{plan.questions:,} questions ({plan.origin}) on {plan.trained_on:,} documents",
        *(
            f"in addition: {each['dataset']}: {each['questions']:,} questions ({each['origin']}) on {each['trained']:,} of "
            f"{each['documents']:,} documents"
            for each in plan.beside
        ),
        f"{plan.dev:,} questions held out, searched in {plan.searched:,} documents",
        cached if plan.frozen else f"layers of {plan.backbone} are trained",
        f"at most {plan.settings['steps']} steps of {plan.settings['batch']} questions, evaluated every {plan.settings['every']}",
        *(
            f"{each['method']} is trained first: at most {each['steps']:,} steps, about {duration(60 * each['minutes'])} of the time below"
            for each in plan.before
        ),
        f"about {duration(60 * plan.minutes)} and {sized(plan.memory_bytes)} of memory",
    ]
    return "\n".join(lines)


def without_effect(result: TrainingResult) -> str:
    """The sentence for a training that did not rank the held-out questions better by more than chance."""
    step = result.history["steps"][result.history["best"]]
    if step == 0:  # of the last fit, which may begin a little better than the run
        return "No step ranked the held-out questions better than step 0 by more than chance: training did not change the model."
    return (
        f"Step {step} ranks the held-out questions better than step 0 by less than chance (p {result.start_p:.2g}): by their figure, training "
        "did not change the model."
    )


def _as_json(result: TrainingResult, inspection: Inspection | None) -> dict[str, Any]:
    """The result of a training run as JSON values, with sample passages and the terms that changed most (empty without `inspection`)."""
    data = {"schema": "termweave.train/1", **asdict(result), "folder": str(result.folder)}
    if inspection is None:  # a model of vectors has no words to show
        return {**data, "passages": [], "gained": [], "lost": []}
    passages = [{"id": each.id, "words": hit_list.weighted_words(each.text, each.words)} for each in inspection.passages]
    changes = {name: list(map(asdict, getattr(inspection, name))) for name in ("gained", "lost")}
    return {**data, "passages": passages, **changes}


def _show(result: TrainingResult, inspection: Inspection | None, out: Output) -> None:
    """Print the figures of a training run and, if the model has term weights, sample passages and the terms that changed most."""
    from termweave.encoders.onnx.export import int8_cost
    from termweave.training.model_folder import ONLY_FP32, loses_too_much

    if inspection is not None:
        _show_weights(inspection, out)
    floats = "vectors in fp32" if inspection is None else "float impacts"
    unrounded = f"; {floats} {result.dev_float:.4f}" if result.dev_float != result.dev else ""  # a ranker has no outputs to round
    start = f"step 0 {result.start:.4f} (p {result.start_p:.2g})"
    click.echo(f"dev {result.measure}: model {result.dev:.4f}; {start}, BM25 {result.bm25:.4f} (p {result.p:.2g}){unrounded}")
    if result.ndcg:
        click.echo(int8_cost(result.ndcg))
    if loses_too_much(result.ndcg):
        click.echo(ONLY_FP32)
    click.echo(f"model {result.hash} in {result.folder}")


def _show_weights(inspection: Inspection, out: Output) -> None:
    """Print sample passages (shaded in a terminal, else with their heaviest terms) and the terms that changed most against BM25."""
    console = out.console()
    for passage in inspection.passages:
        if sys.stdout.isatty():
            console.print(hit_list.weighed(passage.text, passage.words, scale=False), "")
        else:
            heavy = sorted({(-word.weight, word.term) for word in passage.words if word.term})[:8]
            click.echo(f"{printable(passage.text[:100])} ...\n    {', '.join(f'{term} {-weight:.1f}' for weight, term in heavy)}")
    if inspection.gained or inspection.lost:
        both = (inspection.gained, inspection.lost)
        gained, lost = (", ".join(f"{each.term} x{each.ratio:.2f}" for each in changes) for changes in both)
        click.echo(f"\ngained most against BM25: {gained}\nlost most against BM25:   {lost}\n")
    else:
        click.echo("\nno term gained or lost against BM25\n")


def _described(method: Method) -> str:
    """Describe a training method as text: its paper, equations, presets and parameters."""
    equations = [f"  {equation}" for equation in method.equations]
    presets = [_preset(name, preset.help, preset.settings) for name, preset in method.presets.items()]
    groups = [
        "\n".join(["", f"{heading}:", *map(_line, parameters)])
        for heading, parameters in groupby(settings_of(method.parameters).values(), lambda each: each.heading)
    ]
    lines = [
        *(f"{method.name}: {method.title}", method.source, "", *equations, "", click.wrap_text(method.note, 100), ""),
        *("Presets (--set preset=NAME; a parameter that is set wins over the preset):", *presets, ""),
        *("Parameters (--set name=value):", *groups),
    ]
    return "\n".join(lines)


def _preset(name: str, text: str, settings: Mapping[str, object]) -> str:
    values = " ".join(f"{setting}={written(value)}" for setting, value in settings.items())
    return click.wrap_text(f"{text}: {values}", 100, initial_indent=f"  {name:14} ", subsequent_indent=" " * 17)


def _line(parameter: DeclaredSetting) -> str:
    description = f"{parameter.setting.help}{' One of: ' + ', '.join(parameter.choices) + '.' if parameter.choices else ''}"
    initial = f"  {parameter.name:16} {written(parameter.default) or '-':12} "
    return click.wrap_text(description, 100, initial_indent=initial, subsequent_indent=" " * 32)
