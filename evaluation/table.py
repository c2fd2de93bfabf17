"""Tables of an evaluation for a terminal and for Markdown, the file with the values of every query, and the JSON.

The JSON is the same for the command line and web pages; its schema is in docs/schemas.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from termweave.evaluation.measures import ALPHA, JUDGED, MEASURES, queries
from termweave.support import private_files
from termweave.support.messages import counted

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from termweave.evaluation.experiment import Experiment, Row

#: Colours of the marks.
_STYLES = {"▲": "green", "▼": "red", "": ""}
#: Beginnings that make a spreadsheet run a cell; the last ones are full-width forms, which some spreadsheets convert.
_FORMULA = re.compile("\\s*[=+\\-@\uff1d\uff0b\uff0d\uff20]")
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?", re.IGNORECASE)


def table(experiment: Experiment) -> Table:
    """Make the table for a terminal: the best values are bold, significant differences from the baseline are marked."""
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    # Without padding the table fits into 80 columns.
    shown = Table(title=heading(experiment), title_justify="left", caption_justify="left", box=SIMPLE_HEAD, padding=0)
    shown.caption = "\n".join(legend(experiment))
    columns: list[tuple[str, Sequence[str | Text]]] = []
    for name in MEASURES:
        best, values = max(row.values[name] for row in experiment.rows), []
        for row in experiment.rows:
            mark = _mark(experiment, row, name)
            style = f"{'bold ' if row.values[name] == best else ''}{_STYLES[mark]}".strip()
            values.append(Text(f"{row.values[name]:.4f}{mark or ' '}", style=style))
        columns += [(name, values), *([("p", [_p(row, name) for row in experiment.rows])] if experiment.compares else [])]
    columns += _further(experiment, "judged").items()
    shown.add_column("system", overflow="fold", min_width=6)
    for name, cells in columns:
        widest = max(map(len, (name, *cells)))  # numbers are never cut; the name of the system wraps
        shown.add_column(name, justify="right", style="dim" if name in {"p", "judged"} else "", min_width=widest, no_wrap=True)
    for place, row in enumerate(experiment.rows):
        shown.add_row(row.system, *(cells[place] for _, cells in columns))
    return shown


def _further(experiment: Experiment, judged: str) -> dict[str, list[str]]:
    """Make the columns that follow those of the measures: heading -> cells, one for each system."""
    rows = experiment.rows
    counts = ["" if row.system == experiment.baseline else f"{row.wins}/{row.ties}/{row.losses}" for row in rows]
    timed = [experiment.latency.get(row.system) for row in rows]
    return {
        **({"+/=/-": counts} if experiment.compares else {}),
        judged: [f"{row.judged:.0%}" for row in rows],
        **({"ms": [f"{each.median:.1f}" if each else "" for each in timed]} if experiment.latency else {}),
    }


def heading(experiment: Experiment) -> str:
    """Return the title of the table: the data set and the number of queries."""
    return f"{experiment.dataset}, {queries(len(experiment.queries))}"


def legend(experiment: Experiment, counts: str = "+/=/-") -> list[str]:
    """Return lines that explain the marks and columns of the table."""
    judged = "judged: share of the ten best with a judgement"
    lines = [
        f"▲ ▼ better or worse than {experiment.baseline}, p < {ALPHA} (paired randomisation test, Holm's correction)",
        f"{counts} queries with a better, the same or a worse nDCG@10; {judged}",
    ]
    if not experiment.compares:
        lines = [judged]
    if experiment.latency:
        timed = next(iter(experiment.latency.values())).queries
        lines.append(f"ms: median of {counted(timed, 'whole search', 'whole searches')}, one at a time, systems in turn")
    return lines


def markdown(experiment: Experiment) -> str:
    """Return the table as Markdown, with p-values in brackets behind the values."""
    further = _further(experiment, JUDGED)
    columns = [*MEASURES, *further]
    lines = [f"| {heading(experiment)} | {' | '.join(columns)} |", f"|---|{'---:|' * len(columns)}"]
    for place, row in enumerate(experiment.rows):
        values = (f"{cell(experiment, row, name)}{f' ({p})' if (p := _p(row, name)) else ''}" for name in MEASURES)
        cells = [row.system.replace("|", "\\|"), *values, *(each[place] for each in further.values())]
        lines.append(f"| {' | '.join(cells)} |")
    against = [f"In brackets: p against {experiment.baseline}"] if experiment.compares else []
    return "\n".join([*lines, "", *(f"{line}  " for line in (*against, *legend(experiment), *experiment.notes))])


def cell(experiment: Experiment, row: Row, name: str) -> str:
    """Return a value as text, with a mark if it differs significantly from the baseline."""
    return f"{row.values[name]:.4f}{_mark(experiment, row, name)}"


def write_per_query(experiment: Experiment, path: Path) -> None:
    """Write all measures of every query and system as a table with tabs.

    Texts that a spreadsheet would run as formulas begin with an apostrophe.
    """
    names = [*MEASURES, JUDGED]
    with private_files.open_private(path, encoding="utf-8", newline="\n") as file:
        file.write("\t".join(["query", "system", *names, "text"]) + "\n")
        for position, query in enumerate(experiment.queries):
            for system, values in experiment.values.items():
                words = [spreadsheet_cell(" ".join(part.split())) for part in (query, system, experiment.texts.get(query, ""))]
                file.write("\t".join([*words[:2], *(f"{values[name][position]:.6g}" for name in names), words[2]]) + "\n")


def _mark(experiment: Experiment, row: Row, name: str) -> str:
    if row.p.get(name, 1.0) >= ALPHA:
        return ""
    base = next(each for each in experiment.rows if each.system == experiment.baseline)
    return "▲" if row.values[name] > base.values[name] else "▼"


def _p(row: Row, name: str) -> str:
    return "" if name not in row.p else "<.001" if row.p[name] < 0.001 else f"{row.p[name]:.3f}".removeprefix("0")


def spreadsheet_cell(text: str) -> str:
    """Return a text as a cell of a CSV or TSV file; a text that a spreadsheet would run as a formula gets an apostrophe in front.

    Numbers stay as they are. See OWASP, "CSV Injection".

    Example:
        >>> spreadsheet_cell("=cmd|' /C calc'!A0"), spreadsheet_cell("-3.5"), spreadsheet_cell("tea")
        ("'=cmd|' /C calc'!A0", '-3.5', 'tea')
    """
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def as_json(experiment: Experiment) -> dict[str, Any]:
    """Return the results as JSON data: a row for each system and measure, and figures of each system as a whole."""
    rows, systems, number = [], [], len(experiment.queries)
    for row in experiment.rows:
        system = {"system": row.system, "mode": row.mode, "reranker": row.reranker}
        rows += [
            {**system, "measure": name, "value": value, "p": row.p.get(name), "n": number} for name, value in row.values.items()
        ]
        took = asdict(experiment.latency[row.system]) if row.system in experiment.latency else None
        counts = {"wins": row.wins, "ties": row.ties, "losses": row.losses}
        systems.append({"system": row.system, **counts, "judged": row.judged, "latency_ms": took})
    return {
        "schema": "termweave.evaluate/1",
        "dataset": experiment.dataset,
        "baseline": experiment.baseline,
        "rows": rows,
        "systems": systems,
        "notes": list(experiment.notes),
    }
