"""Tables of an evaluation for a terminal and for Markdown, and the file with the values of every query."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from termweave.evaluation.measures import JUDGED, MEASURES
from termweave.evaluation.report.wording import queries
from termweave.evaluation.significance import ALPHA
from termweave.support import private_files
from termweave.support.messages import counted

if TYPE_CHECKING:
    from pathlib import Path

    from rich.table import Table

    from termweave.evaluation.experiment import Experiment, Row

#: Colours of the marks.
_STYLES = {"▲": "green", "▼": "red", "": ""}
#: Beginnings that make a spreadsheet run a cell; the last ones are full-width forms, which some spreadsheets convert.
_FORMULA = re.compile("\\s*[=+\\-@\uff1d\uff0b\uff0d\uff20]")
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?", re.IGNORECASE)


def table(experiment: Experiment) -> Table:
    """Make the table for a terminal: the best values are bold, significant differences from the baseline are marked."""
    from rich import box  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    shown = Table(
        title=heading(experiment),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=0,  # so that the table fits into 80 columns
    )
    compared = experiment.compares
    cells: list[list[str | Text]] = []
    best = {name: max(row.values[name] for row in experiment.rows) for name in MEASURES}
    for row in experiment.rows:
        filled: list[str | Text] = []
        for name in MEASURES:
            mark = _mark(experiment, row, name)
            style = f"{'bold ' if row.values[name] == best[name] else ''}{_STYLES[mark]}".strip()
            filled += [Text(f"{row.values[name]:.4f}{mark or ' '}", style=style), *([_p(row, name)] if compared else [])]
        filled += [_versus(experiment, row)] if compared else []
        filled.append(f"{row.judged:.0%}")
        filled += [_ms(experiment, row)] if experiment.latency else []
        cells.append(filled)
    shown.add_column("system", overflow="fold", min_width=6)
    names = [each for name in MEASURES for each in (name, *(["p"] if compared else []))]
    names += [*(["+/=/-"] if compared else []), "judged", *(["ms"] if experiment.latency else [])]
    for place, name in enumerate(names):
        widest = max(len(name), *(len(row[place]) for row in cells))  # numbers are never cut; the name of the system wraps
        shown.add_column(name, justify="right", style="dim" if name in {"p", "judged"} else "", min_width=widest, no_wrap=True)
    for row, filled in zip(experiment.rows, cells, strict=True):
        shown.add_row(row.system, *filled)
    shown.caption = "\n".join(legend(experiment))
    shown.caption_justify = "left"
    return shown


def heading(experiment: Experiment) -> str:
    """Return the title of the table: the data set and the number of queries."""
    return f"{experiment.dataset}, {queries(len(experiment.queries))}"


def legend(experiment: Experiment, counts: str = "+/=/-") -> list[str]:
    """Explain the marks and columns that the table has."""
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
    compared = experiment.compares
    columns = [*MEASURES, *(["+/=/-"] if compared else []), JUDGED, *(["ms"] if experiment.latency else [])]
    lines = [
        f"| {heading(experiment)} | {' | '.join(columns)} |",
        f"|---|{'---:|' * len(columns)}",
    ]
    for row in experiment.rows:
        cells = [
            *(f"{cell(experiment, row, name)}{_in_brackets(row, name)}" for name in MEASURES),
            *([_versus(experiment, row)] if compared else []),
            f"{row.judged:.0%}",
        ]
        cells += [_ms(experiment, row)] if experiment.latency else []
        lines.append(f"| {row.system.replace('|', chr(92) + '|')} | {' | '.join(cells)} |")
    remarks = [*([f"In brackets: p against {experiment.baseline}"] if compared else []), *legend(experiment), *experiment.notes]
    return "\n".join([*lines, "", *(f"{line}  " for line in remarks)])


def cell(experiment: Experiment, row: Row, name: str) -> str:
    """Return a value as text, with a mark if it differs significantly from the baseline."""
    return f"{row.values[name]:.4f}{_mark(experiment, row, name)}"


def write_per_query(experiment: Experiment, path: Path) -> None:
    """Write all measures of every query and system as a table with tabs.

    Texts that a spreadsheet would run as formulas begin with an apostrophe.
    """
    names = [*MEASURES, JUDGED]
    with private_files.opened(path, encoding="utf-8", newline="\n") as file:
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


def _in_brackets(row: Row, name: str) -> str:
    p = _p(row, name)
    return f" ({p})" if p else ""


def _versus(experiment: Experiment, row: Row) -> str:
    return "" if row.system == experiment.baseline else f"{row.wins}/{row.ties}/{row.losses}"


def _ms(experiment: Experiment, row: Row) -> str:
    timed = experiment.latency.get(row.system)
    return f"{timed.median:.1f}" if timed else ""


def spreadsheet_cell(text: str) -> str:
    """A text as a cell of a CSV or TSV file: one that a spreadsheet would run as a formula begins with an apostrophe.

    Numbers stay as they are. See OWASP, "CSV Injection".

    Example:
        >>> spreadsheet_cell("=cmd|' /C calc'!A0"), spreadsheet_cell("-3.5"), spreadsheet_cell("tea")
        ("'=cmd|' /C calc'!A0", '-3.5', 'tea')
    """
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text
