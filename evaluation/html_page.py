"""The HTML report: one self-contained file with the table, plots, and the queries whose figures changed most."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from termweave import __version__
from termweave.evaluation import plots
from termweave.evaluation import table as report
from termweave.evaluation.measures import JUDGED, LEADING, MEASURES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from termweave.corpora import Dataset
    from termweave.evaluation.experiment import Experiment, Row
    from termweave.evaluation.gates import Verdict

#: Number of best and of worst queries shown for each system.
_ENDS = 8
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
    """Make the report.

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
        _section(f"{LEADING} query by query, against {experiment.baseline}", plots.differences(experiment)),
        _section("Recall", plots.recall(experiment, dataset.qrels(), dataset.relevant_from)),
        _section("Latency", plots.latency(experiment)),
        "<h2>Queries that moved most</h2>",
        "".join(_moved(experiment, row) for row in experiment.rows if row.system != experiment.baseline)
        or f"<p class=dim>Every query has the same {LEADING} as with {escape(experiment.baseline)}.</p>",
        more,
    ]
    head = f"<meta charset=utf-8><meta name=viewport content='width=device-width, initial-scale=1'><title>{escape(title)}</title>"
    return (
        f"<!doctype html><html lang=en><head>{head}<style>{_STYLE}</style></head><body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _section(title: str, drawing: str) -> str:
    return f"<h2>{escape(title)}</h2>\n{_wide(drawing)}" if drawing else ""


def _wide(part: str) -> str:
    """Wrap a part that may be wider than a phone, so that only this part scrolls sideways."""
    return f"<div class=wide>{part}</div>"


def _table_of(rows: Sequence[str]) -> str:
    return _wide("<table>\n" + "\n".join(rows) + "\n</table>")


def _table(experiment: Experiment) -> str:
    best = {name: max(row.values[name] for row in experiment.rows) for name in MEASURES}
    timed = experiment.latency
    compared = experiment.compares
    names = ["system", *MEASURES]
    names += [*(["better", "same", "worse"] if compared else []), JUDGED]
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
    filled = "".join(f"<{tag}{_attributes(css)}>{_content(text, css)}</{tag}>" for text, css in cells)
    return f"<tr class={kind}>{filled}</tr>" if kind else f"<tr>{filled}</tr>"


def _content(text: str, css: str) -> str:
    """The content of a cell; a second line of figures is small."""
    first, line_end, second = ("", "", "") if css == "text" else text.partition("\n")
    return f"{escape(first)}<br><small>{escape(second)}</small>" if line_end else escape(text)


def _attributes(css: str) -> str:
    direction = " dir=auto" if css == "text" else ""  # text of a user, which may be written from right to left
    return f' class="{css}"{direction}' if css else ""


def moved_most(experiment: Experiment, row: Row) -> list[tuple[str, float, float]]:
    """The queries that gained most against the baseline and then those that lost most: id, value of the baseline, value of the system."""
    base = experiment.values[experiment.baseline][LEADING]
    mine = experiment.values[row.system][LEADING]
    order = sorted(range(len(mine)), key=lambda place: (-(mine[place] - base[place]), place))
    gained = [place for place in order[:_ENDS] if mine[place] > base[place]]
    lost = [place for place in order[::-1][:_ENDS] if mine[place] < base[place]]
    return [(experiment.queries[place], float(base[place]), float(mine[place])) for place in (*gained, *lost)]


def _moved(experiment: Experiment, row: Row) -> str:
    """List the queries that gained and lost most."""
    moved = moved_most(experiment, row)
    if not moved:
        return ""
    lines = [_row("th", (("query", ""), ("text", "text"), (experiment.baseline, ""), (row.system, ""), ("difference", "")))]
    for query, before, after in moved:
        cells = [(query, ""), (experiment.texts.get(query, ""), "text"), (f"{before:.3f}", ""), (f"{after:.3f}", "")]
        lines.append(_row("td", [*cells, (f"{after - before:+.3f}", "up" if after > before else "down")]))
    table = _table_of(lines)
    return f"<details><summary>{escape(row.system)}: {row.wins} better, {row.losses} worse</summary>{table}</details>"
