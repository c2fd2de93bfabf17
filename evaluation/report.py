"""Tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from termweave.evaluation.measures import MEASURES

if TYPE_CHECKING:
    from rich.table import Table

    from termweave.evaluation.experiment import Experiment, Row

#: Below this corrected p a difference is marked.
ALPHA = 0.05


def table(experiment: Experiment) -> Table:
    """The table for a terminal: best values bold, differences from the baseline that are significant marked."""
    from rich import box  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    shown = Table(
        title=f"{experiment.dataset}, {len(experiment.queries)} queries",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    shown.add_column("system", no_wrap=True)
    for name in MEASURES:
        shown.add_column(name, justify="right", no_wrap=True)
        shown.add_column("p", justify="right", style="dim", no_wrap=True)
    shown.add_column("+/-", justify="right", no_wrap=True)
    shown.add_column("judged", justify="right", style="dim", no_wrap=True)
    best = {name: max(row.values[name] for row in experiment.rows) for name in MEASURES}
    base = next(row for row in experiment.rows if row.system == experiment.baseline)
    for row in experiment.rows:
        cells = []
        for name in MEASURES:
            text = f"{row.values[name]:.4f}{_mark(row, base, name) or ' '}"
            cells += [f"[bold]{text}[/bold]" if row.values[name] == best[name] else text, _p(row, name)]
        versus = "" if row.system == experiment.baseline else f"{row.wins}/{row.losses}"
        shown.add_row(row.system, *cells, versus, f"{row.judged:.0%}")
    shown.caption = (
        f"▲ ▼ better or worse than {experiment.baseline}, p < {ALPHA} (paired randomisation test, Holm's correction)\n"
        "+/- queries with a better and a worse nDCG@10; judged: share of the ten best that have a judgement"
    )
    shown.caption_justify = "left"
    return shown


def markdown(experiment: Experiment) -> str:
    """The same table for a README."""
    lines = [
        f"| {experiment.dataset}, {len(experiment.queries)} queries | {' | '.join(MEASURES)} |",
        f"|---|{'---:|' * len(MEASURES)}",
    ]
    for row in experiment.rows:
        lines += [f"| {row.system} | {' | '.join(cell(experiment, row, name) for name in MEASURES)} |"]
    return "\n".join(lines)


def cell(experiment: Experiment, row: Row, name: str) -> str:
    """A value, marked where it differs significantly from the baseline's."""
    base = next(each for each in experiment.rows if each.system == experiment.baseline)
    return f"{row.values[name]:.4f}{_mark(row, base, name)}"


def _mark(row: Row, base: Row, name: str) -> str:
    if row.p.get(name, 1.0) >= ALPHA:
        return ""
    return "▲" if row.values[name] > base.values[name] else "▼"


def _p(row: Row, name: str) -> str:
    return "" if name not in row.p else "<.001" if row.p[name] < 0.001 else f"{row.p[name]:.3f}".removeprefix("0")
