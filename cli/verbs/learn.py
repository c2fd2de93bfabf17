"""`termweave learn`: from judged questions or clicks to better search, proved."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from termweave.cli.options.number_types import FloatRange
from termweave.cli.options.shared_options import model_options, models_to_open, verb

if TYPE_CHECKING:
    from termweave.cli.common.output import Output
    from termweave.learning.learned import Learned
    from termweave.settings import Settings

SCHEMA = "termweave.learn/1"


@verb("learn", connects=True)
@click.argument("name")
@click.argument("questions", required=False)
@click.option("--minutes", type=FloatRange(1), default=20.0, show_default=True, help="Time for training, building and measuring.")
@click.option("--plan", "only_plan", is_flag=True, help="Print what was found and what would be tried, without training.")
@click.option(
    "--update", is_flag=True, help="Go on from the live models with the questions that are new since they were learned."
)
@click.option("--promote", is_flag=True, help="Make the new generation live without asking, if its gain is confirmed.")
@model_options
def command(
    *,
    name: str,
    questions: str | None,
    minutes: float,
    only_plan: bool,
    update: bool,
    promote: bool,
    models: dict[str, str | None],
    settings: Settings,
    out: Output,
) -> None:
    """Learn from QUESTIONS how NAME is searched best, and prove it.

    QUESTIONS are judged questions or clicks: a BEIR folder (its split 'train', or PATH:SPLIT), book:NAME, ubi:FOLDER, ubi:opensearch,
    or a click log with lines of query, document id and count; without QUESTIONS those of the index's book and of the server's log of
    user behaviour. They are split into three parts, near duplicates in the same part. On the first part term weights and vectors are
    trained by several methods, first briefly, then the best ones for longer. The second part chooses among them, and how they are
    searched together. The third part compares the result once with the search that is live. Only a gain with p < .05 is offered to
    be made live; 'termweave rollback NAME' brings the earlier generation back.

    Repeat the command after Ctrl-C or a crash: it goes on where it stopped.

    \b
    Examples:
      termweave learn docs ./my-questions --plan
      termweave learn docs ./my-questions
      termweave learn docs book:docs --minutes 10 --promote
      termweave learn docs ubi:opensearch
      termweave learn docs --update --promote --quiet
    """
    from termweave import engine
    from termweave.errors import GateNotMet
    from termweave.training import needs

    needs.check_packages("Learning")
    from termweave.learning.plan import lines, plan
    from termweave.learning.run import CONNECTIONS, LearningTask, Reports, prepare
    from termweave.learning.run import promote as make_live

    server = engine.connect(settings, pool_maxsize=CONNECTIONS)
    task = LearningTask(name, questions, minutes, models_to_open(models, settings), update)
    with out.progress("Learning") as bar:
        learning = prepare(server, task, Reports(bar, out.say))
        planned = plan(learning)
        shown = "\n".join(f"{what:<9} {value}" for what, value in lines(planned))
        if only_plan:
            out.emit({"schema": "termweave.learn-plan/1", **asdict(planned)}, "\n".join([shown, *planned.notes]))
            return
        for line in (*shown.splitlines(), *planned.notes):
            out.say(line)
        learned = learning.run()
    if learned.confirmed and (promote or _agreed(learned, out)):
        learned = make_live(server, learned)
    out.emit({"schema": SCHEMA, **asdict(learned), "folder": str(learned.folder)}, lambda: _show(learned))
    if not learned.confirmed:
        raise GateNotMet(*_missed(learned))


def _agreed(learned: Learned, out: Output) -> bool:
    """Whether the user wants the new generation to go live; nobody is asked where there is no terminal."""
    if out.json or not sys.stdin.isatty():
        return False
    click.echo(_gain(learned), err=True)
    return click.confirm(f"Make {learned.generation} live?", err=True)


def _gain(learned: Learned) -> str:
    return (
        f"nDCG@10 of {learned.parts['test']:,} test questions: {learned.before:.4f} before, {learned.after:.4f} after "
        f"({learned.after - learned.before:+.4f}, p {learned.p:.2g})"
    )


def _show(learned: Learned) -> None:
    """Print what was tried, the gain, and the next step."""
    from termweave.support.messages import sized

    for each in learned.tried:
        kind = "vectors" if each.candidate.part == "dense" else "term weights"
        result = each.dropped or f"{each.before:.4f} -> {each.after:.4f} on held-out questions, {kind} alone"
        precision = f"; int8 costs {-each.int8:.3f}, used in fp32" if each.int8 is not None and each.precision == "fp32" else ""
        click.echo(f"{each.candidate.method}, {each.steps} steps, {each.seconds:.0f} s: {result}{precision}")
    for row in learned.systems:
        click.echo(f"    {row.system:<22} {row.ndcg:.4f}{'' if row.p == 1 else f'  p {row.p:.2g}'}")
    click.echo(_gain(learned))
    if learned.profile:
        parts = ", ".join(f"{name} {share:.2f}" for name, share in learned.profile["weights"].items())
        click.echo(f"searched with {parts}{', rNN' if learned.profile['reranking'] else ''}")
    if learned.gained:
        click.echo(f"gained weight: {', '.join(each['term'] for each in learned.gained)}")
    for part in learned.forgotten:
        what = "vectors" if part.part == "dense" else "term weights"
        click.echo(f"questions of another kind (the demo's), {what} alone: {part.before:.4f} before, {part.after:.4f} after")
    if learned.cost:
        before, after = learned.cost["before"], learned.cost["after"]
        click.echo(
            f"a search takes {before.milliseconds:.0f} ms before and {after.milliseconds:.0f} ms after, the index {sized(before.bytes)} and "
            f"{sized(after.bytes)}"
        )
    if learned.generation:
        click.echo(f"Report: {learned.folder / 'report.html'}")
    if learned.published:
        click.echo(f"{learned.generation} is live; 'termweave rollback {learned.name}' goes back.")
    elif learned.confirmed:
        click.echo(f"Make it live: termweave promote {learned.name} {learned.generation}")


def _missed(learned: Learned) -> tuple[str, str]:
    """The message and the hint where no gain was confirmed."""
    if learned.generation is None:
        return "No trained model ranks the held-out questions better than it did before training; nothing was changed.", (
            "More judged questions help most, more time (--minutes) sometimes."
        )
    if learned.after <= learned.before:
        return (
            f"The new search is not better on the test questions ({_gain(learned)}); nothing was changed.",
            "Judge more questions.",
        )
    more = max(1, round((learned.needed - learned.parts["test"]) / learned.parts["test"] * sum(learned.parts.values())))
    return f"The gain may be chance ({_gain(learned)}); nothing was changed.", (
        f"About {more:,} more judged questions would show whether it is real. "
        f"'termweave promote {learned.name} {learned.generation}' makes it live anyway."
    )
