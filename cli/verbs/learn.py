"""`termweave learn`: improve the search of an index by judged questions or clicks, and prove the gain on test questions."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from termweave import engine
from termweave.cli.declared_options import FloatRange, flag, option
from termweave.cli.shared_options import model_options, verb
from termweave.errors import GateNotMet
from termweave.support.messages import counted, sized

if TYPE_CHECKING:
    from termweave.cli.output import Output
    from termweave.learning.report import Learned
    from termweave.settings import Settings

#: nDCG@10 below which questions and documents hardly belong together.
_NOTHING = 0.05


@verb("learn", connects=True)
@click.argument("name")
@click.argument("questions", required=False)
@option("--minutes", "Time for training, building and measuring.", type=FloatRange(1), default=20.0, show_default=True)
@flag("--plan only_plan", "Print what was found and what would be tried, without training.")
@flag("--update", "Go on from the live models with the questions that are new since they were learned.")
@flag("--promote", "Make the new generation live without asking, if its gain is confirmed.")
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
    user behaviour. They are split into three parts, near duplicates in the same part. On the first part term weights and vectors
    are trained by several methods, as far as there is time: first briefly, then the best ones for longer. The second part
    chooses among them, and how they are searched together. The third part compares the result once with the search that is live.
    Only a gain with p < .05 is offered to be made live; 'termweave rollback NAME' brings the earlier generation back. With 20 to 39
    questions those choose and confirm, and questions made of the documents train.

    Repeat the command after Ctrl-C or a crash: it goes on where it stopped. With --minutes 1 it trains no more, and builds and proves
    what was trained.

    \b
    Examples:
      termweave learn docs ./my-questions --plan
      termweave learn docs ./my-questions
      termweave learn docs book:docs --minutes 10 --promote
      termweave learn docs ubi:opensearch
      termweave learn docs --update --promote --quiet
    """
    from termweave.training import needs

    needs.check_packages("Learning")
    from termweave.learning import run
    from termweave.learning.preparation import CONNECTIONS, LearningTask, Reports, prepare
    from termweave.learning.report import lines, plan

    server = engine.connect(settings, pool_maxsize=CONNECTIONS)
    task = LearningTask(name, questions, minutes, models, update)
    with out.progress("Learning") as bar:
        learning = prepare(server, task, Reports(bar, out.say))
        planned = plan(learning)
        shown = "\n".join(f"{label:<9} {value}" for label, value in lines(planned))
        if only_plan:
            out.emit({"schema": "termweave.learn-plan/1", **asdict(planned)}, "\n".join([shown, *planned.notes]))
            return
        out.say(*shown.splitlines(), *planned.notes)
        learned = run.run(learning)
    if learned.confirmed and (promote or _agreed(learned, out)):
        learned = run.promote(server, learned)
    out.emit({"schema": "termweave.learn/1", **learned.as_json()}, lambda: _show(learned))
    if not learned.confirmed:
        raise GateNotMet(*why_missed(learned))


def _agreed(learned: Learned, out: Output) -> bool:
    """Ask the user whether the new generation should go live; False without a question for JSON output or without a terminal."""
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
    """Print the result of learning: the models and ways to search that were tried, the gain, and the next step."""
    from termweave.learning.training_rounds import PARTS

    for each in learned.tried:
        alone, int8 = f"{PARTS[each.candidate.part]} alone", each.int8 if each.precision == "fp32" else None
        result = each.dropped or f"{each.before:.4f} -> {each.after:.4f} on held-out questions, {alone}"
        precision = f"; int8 costs {-int8:.3f} there, so it is used in fp32" if int8 else ""
        click.echo(f"{each.candidate.method}, {each.steps} steps, {each.seconds:.0f} s: {result}{precision}")
    for row in learned.systems:
        click.echo(f"    {row.system:<22} {row.ndcg:.4f}{'' if row.p == 1 else f'  p {row.p:.2g}'}")
    click.echo(_gain(learned))
    if learned.profile:
        parts = [f"{name} {share:.2f}" for name, share in learned.profile["weights"].items()]
        parts += [name for key, name in (("reranking", "rNN"), ("ranker", "the trained ranker")) if learned.profile.get(key)]
        stay = "no document encoded: the documents keep their vectors"
        encoded = f"{counted(learned.encoded, 'document')} encoded" if learned.encoded else stay
        click.echo(f"searched with {', '.join(parts)}; {encoded}")
    if learned.gained:
        click.echo(f"gained weight: {', '.join(each['term'] for each in learned.gained)}")
    for part in learned.forgotten:
        figures = f"{part.before:.4f} before, {part.after:.4f} after"
        click.echo(f"questions of another kind (the demo's), {PARTS[part.part]} alone: {figures}")
    if learned.cost:
        before, after = learned.cost["before"], learned.cost["after"]
        took = f"{before.milliseconds:.0f} ms before and {after.milliseconds:.0f} ms after"
        click.echo(f"a search takes {took}, the index {sized(before.bytes)} and {sized(after.bytes)}")
    if learned.generation:
        click.echo(f"Report: {learned.folder / 'report.html'}")
    if learned.published:
        click.echo(f"{learned.generation} is live; 'termweave rollback {learned.name}' goes back.")
    elif learned.confirmed:
        click.echo(f"Make it live: termweave promote {learned.name} {learned.generation}")


def why_missed(learned: Learned) -> tuple[str, str]:
    """The message and the hint of the error for a run of learning that confirmed no gain."""
    from termweave.learning.questions import more_to_confirm

    if max(learned.before, learned.after) < _NOTHING:
        hint = "Look at some of the questions: the ids may be those of another corpus, or the clicks may be chance."
        return f"The live search finds next to none of the answers (nDCG@10 {learned.before:.4f}), and nothing was changed.", hint
    if learned.generation is None:
        hint = learned.short_of_time or "More judged questions help most, more time (--minutes) sometimes."
        return "No trained model ranks the held-out questions better than it did before training; nothing was changed.", hint
    if learned.after <= learned.before:
        message = f"The new search is not better on the test questions ({_gain(learned)}); nothing was changed."
        return message, learned.short_of_time or "Judge more questions."
    more = more_to_confirm(learned.needed, learned.parts)
    advice = f"About {counted(more, 'more judged question')} would show whether it is real."
    return f"The gain may be chance ({_gain(learned)}); nothing was changed.", (
        f"{advice if more else 'The gain is so small that no number of questions like these would show it.'} "
        f"'termweave promote {learned.name} {learned.generation}' makes it live anyway. {learned.short_of_time}".rstrip()
    )
