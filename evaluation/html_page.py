"""The HTML report: one self-contained file with the table, plots, and the queries whose figures changed most.

Plots are SVG elements of the page. They need matplotlib, an extra; `require_plots` checks for it beforehand.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from textwrap import wrap
from typing import TYPE_CHECKING

from termweave import __version__
from termweave.evaluation import table as report
from termweave.evaluation.measures import JUDGED, LEADING, MEASURES, per_query
from termweave.support.extras import needed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from termweave.corpora import Dataset
    from termweave.evaluation.experiment import Experiment, Row
    from termweave.evaluation.gates import Verdict
    from termweave.records import Qrels

#: Number of best and of worst queries shown for each system.
_ENDS = 8
#: Depths of the recall curves.
_DEPTHS = (1, 2, 3, 5, 10, 20, 30, 50, 70, 100)
#: Most characters in a line of a panel's title.
_TITLE = 36
_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:68rem;margin:2rem auto;padding:0 1rem;color:#222;overflow-wrap:anywhere}
table{border-collapse:collapse;margin:1rem 0}th,td{padding:.25rem .55rem;border-bottom:1px solid #ddd;text-align:right}
td{overflow-wrap:normal;white-space:nowrap}td.text{white-space:normal;overflow-wrap:anywhere;min-width:12rem;text-align:start}
td:first-child{white-space:normal;overflow-wrap:anywhere;min-width:7rem}
th:first-child,td:first-child,th.text{text-align:left}td.up{color:#2e7d32}td.down{color:#c62828}td.best{font-weight:600}
th{overflow-wrap:normal}.wide{overflow-x:auto}.wide svg{width:100%;min-width:36rem;height:auto;max-width:max-content}
:root{color-scheme:light dark}
small{white-space:nowrap;color:#666;font-weight:400}tr.base td{background:#f6f6f6}.dim{color:#666}.met{color:#2e7d32}.missed{color:#c62828}
summary{cursor:pointer;margin:.3rem 0}
@media(max-width:600px){th,td{padding:.25rem .35rem}td:first-child{min-width:6rem}td.text{min-width:8rem}}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#121212}th,td{border-color:#444}.wide svg{filter:invert(.93) hue-rotate(180deg)}
tr.base td{background:#222}.dim,small{color:#aaa}td.up,.met{color:#81c784}td.down,.missed{color:#ef9a9a}}
"""


def html(
    experiment: Experiment, dataset: Dataset, *, about: Mapping[str, str], verdicts: Sequence[Verdict] = (), more: str = ""
) -> str:
    """Make the HTML report of an evaluation.

    Args:
        experiment: The results of the evaluation.
        dataset: The data set, whose judgements the recall curves need.
        about: Facts about what was measured: index, server, models.
        verdicts: Verdicts of the gates.
        more: HTML that follows at the end.

    Returns:
        A complete page without scripts that loads nothing from elsewhere.
    """
    title = f"termweave: {experiment.dataset}"
    facts = {"queries": f"{len(experiment.queries):,}", **about, "termweave": __version__}
    parts = [
        f"<h1>{escape(experiment.dataset)}</h1>",
        f"<p class=dim>{' · '.join(f'{escape(name)} {escape(value)}' for name, value in facts.items())}</p>",
        _table(experiment),
        *(f"<p class=dim>{escape(line)}</p>" for line in (*report.legend(experiment, "better, same, worse:"), *experiment.notes)),
        *(
            f"<p class={'met' if each.met else 'missed'}>{'Met' if each.met else 'NOT met'}: {escape(each.reason)}.</p>"
            for each in verdicts
        ),
        _section(f"{LEADING} query by query, against {experiment.baseline}", differences(experiment)),
        _section("Recall", recall(experiment, dataset.qrels(), dataset.relevant_from)),
        _section("Latency", latency(experiment)),
        "<h2>Queries that moved most</h2>",
        "".join(_moved(experiment, row) for row in experiment.rows if row.system != experiment.baseline)
        or f"<p class=dim>Every query has the same {LEADING} as with {escape(experiment.baseline)}.</p>",
        more,
    ]
    head = f"<head><meta charset=utf-8><meta name=viewport content='width=device-width, initial-scale=1'><title>{escape(title)}</title>"
    return "\n".join([f"<!doctype html><html lang=en>{head}<style>{_STYLE}</style></head><body>", *parts, "</body></html>\n"])


def _section(title: str, drawing: str) -> str:
    return f"<h2>{escape(title)}</h2>\n{_wide(drawing)}" if drawing else ""


def _wide(part: str) -> str:
    """Wrap a part that may be wider than a phone, so that only this part scrolls sideways."""
    return f"<div class=wide>{part}</div>"


def _table_of(rows: Sequence[str]) -> str:
    return _wide("<table>\n" + "\n".join(rows) + "\n</table>")


def _table(experiment: Experiment) -> str:
    best = {name: max(row.values[name] for row in experiment.rows) for name in MEASURES}
    timed, compared = experiment.latency, experiment.compares
    names = ["system", *MEASURES, *(["better", "same", "worse"] if compared else []), JUDGED]
    names += ["median ms", "95\u00a0% ms"] if timed else []
    lines = [_row("th", ((name, "") for name in names))]
    for row in experiment.rows:
        cells = [(row.system, "")]
        for name in MEASURES:
            value = report.cell(experiment, row, name)
            colour = "up" if value.endswith("▲") else "down" if value.endswith("▼") else ""
            p = f"\np {row.p[name]:.4f}" if name in row.p and compared else ""
            cells.append((value + p, f"{colour}{' best' if row.values[name] == best[name] else ''}".strip()))
        base = row.system == experiment.baseline
        counts = (row.wins, row.ties, row.losses) if compared else ()
        cells += [("" if base else str(count), "") for count in counts]
        cells.append((f"{row.judged:.1%}", "dim"))
        if timed:
            took = timed.get(row.system)
            cells += [(f"{took.median:.1f}", ""), (f"{took.p95:.1f}", "")] if took else [("", ""), ("", "")]
        lines.append(_row("td", cells, "base" if base else ""))
    return _table_of(lines)


def _row(tag: str, cells: Iterable[tuple[str, str]], kind: str = "") -> str:
    """Make an HTML row of cells, each given as text and CSS class; the second line of a cell with figures is small."""
    filled = []
    for text, css in cells:
        first, line_end, second = ("", "", "") if css == "text" else text.partition("\n")
        content = f"{escape(first)}<br><small>{escape(second)}</small>" if line_end else escape(text)
        direction = " dir=auto" if css == "text" else ""  # text of a user, which may be written from right to left
        attributes = f' class="{css}"{direction}' if css else ""
        filled.append(f"<{tag}{attributes}>{content}</{tag}>")
    return f"<tr{f' class={kind}' if kind else ''}>{''.join(filled)}</tr>"


def moved_most(experiment: Experiment, row: Row) -> list[tuple[str, float, float]]:
    """List the queries that gained most against the baseline, then those that lost most: id, nDCG@10 of the baseline, nDCG@10 of the system."""
    base = experiment.values[experiment.baseline][LEADING]
    mine = experiment.values[row.system][LEADING]
    order = sorted(range(len(mine)), key=lambda place: (-(mine[place] - base[place]), place))
    gained = [place for place in order[:_ENDS] if mine[place] > base[place]]
    lost = [place for place in order[::-1][:_ENDS] if mine[place] < base[place]]
    return [(experiment.queries[place], float(base[place]), float(mine[place])) for place in (*gained, *lost)]


def _moved(experiment: Experiment, row: Row) -> str:
    """Make the HTML list of the queries that gained and lost most with a system."""
    moved = moved_most(experiment, row)
    if not moved:
        return ""
    lines = [_row("th", (("query", ""), ("text", "text"), (experiment.baseline, ""), (row.system, ""), ("difference", "")))]
    for query, before, after in moved:
        cells = [(query, ""), (experiment.texts.get(query, ""), "text"), (f"{before:.3f}", ""), (f"{after:.3f}", "")]
        lines.append(_row("td", [*cells, (f"{after - before:+.3f}", "up" if after > before else "down")]))
    table = _table_of(lines)
    return f"<details><summary>{escape(row.system)}: {row.wins} better, {row.losses} worse</summary>{table}</details>"


def require_plots() -> None:
    """Check that plots can be drawn.

    Raises:
        UsageError: matplotlib is not installed.
    """
    needed("matplotlib", "report", "The plots of an HTML report need matplotlib (the tables of --save DIR do not), which")


def differences(experiment: Experiment) -> str:
    """Plot the sorted differences of nDCG@10 from the baseline, query by query, in one panel for each system.

    Returns:
        An `<svg>` element; "" if there is nothing to compare.
    """
    import numpy as np  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    base = experiment.values[experiment.baseline][LEADING]
    others = [row for row in experiment.rows if row.system != experiment.baseline]
    if not others:
        return ""
    columns = 2 if len(others) == 4 else min(3, len(others))
    rows = -(-len(others) // columns)
    figure = Figure(figsize=(3.3 * columns, 2.4 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for panel in axes.flat[len(others) :]:
        panel.set_axis_off()
    for panel, row in zip(axes.flat, others, strict=False):
        difference = np.sort(experiment.values[row.system][LEADING] - base)[::-1]
        # One bar for each query, drawn as one outline: thousands of rectangles would make the page slow.
        edges = np.arange(len(difference) + 1) + 0.5
        panel.stairs(np.maximum(difference, 0), edges, fill=True, color="#2e7d32")
        panel.stairs(np.minimum(difference, 0), edges, fill=True, color="#c62828")
        panel.axhline(0, color="#444", linewidth=0.6)
        panel.set_title("\n".join([*wrap(row.system, _TITLE), f"{row.wins} better, {row.losses} worse"]), fontsize=9)
        panel.set_xlabel("queries, sorted", fontsize=8)
        panel.tick_params(labelsize=7, labelbottom=True)
    most = max((float(np.abs(experiment.values[row.system][LEADING] - base).max()) for row in others), default=0.0) or 1.0
    axes[0][0].set_ylim(-1.05 * most, 1.05 * most)  # as far down as up, the same in all panels
    axes[0][0].xaxis.get_major_locator().set_params(integer=True)  # there is no query 1.5
    axes[0][0].set_ylabel(f"{LEADING} minus {experiment.baseline}", fontsize=8)
    return svg(figure, "differences")


def recall(experiment: Experiment, qrels: Qrels, relevant_from: int) -> str:
    """Plot the mean recall at each depth, with one curve for each system."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(6.6, 3.6), layout="constrained")
    panel = figure.subplots()
    names = [f"recall@{depth}" for depth in _DEPTHS]
    for system, run in experiment.runs.items():
        values = per_query(run, qrels, experiment.queries, relevant_from=relevant_from, measures=names)
        panel.plot(_DEPTHS, [values[name].mean() for name in names], marker=".", label=system)
    panel.set_xscale("log")
    panel.set_xticks(_DEPTHS, [str(depth) for depth in _DEPTHS])
    panel.minorticks_off()
    panel.set_xlabel("depth")
    panel.set_ylabel("recall")
    panel.set_ylim(0, 1.02)
    panel.grid(alpha=0.25)
    panel.legend(fontsize=8)
    return svg(figure, "recall")


def latency(experiment: Experiment) -> str:
    """Plot the median and the 95th percentile of whole searches; "" if no searches were timed."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    if not experiment.latency:
        return ""
    names = list(experiment.latency)[::-1]
    figure = Figure(figsize=(6.6, 0.6 + 0.4 * len(names)), layout="constrained")
    panel = figure.subplots()
    panel.barh(names, [experiment.latency[name].p95 for name in names], color="#cfd8dc", label="95 % are faster")
    panel.barh(names, [experiment.latency[name].median for name in names], color="#37474f", label="half are faster")
    panel.set_xlabel("ms per search")
    panel.legend(fontsize=8)
    return svg(figure, "latency")


def svg(figure: Figure, name: str) -> str:
    """Return a figure as an `<svg>` element, with ids that are unique to the plot, and the same bytes every time."""
    import matplotlib as mpl  # noqa: PLC0415

    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    # matplotlib numbers figures, axes and lines from one in every plot; on one page the ids would clash.
    return re.sub(r'(\bid="|href="#|url\(#)', rf"\1{name}-", text[text.index("<svg") :])
