"""Print hits to a terminal."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from termweave.cli.common import shaded_texts
from termweave.support.messages import clipped, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.text import Text

    from termweave.cli.common.output import Output
    from termweave.records import Highlight, Hit
    from termweave.search.results.hits import Answer

#: The most characters of a text or a field that are printed below a hit.
_SNIPPET = 200
_BLANK = re.compile(r"\s")


def show(hits: Sequence[Hit], out: Output, *, others: bool = False) -> None:
    """Print hits.

    Args:
        hits: The hits, best first.
        out: The terminal.
        others: Print the fields other than title and text, too.
    """
    from rich.text import Text

    from termweave.search.results import explanation

    console = out.console()
    for hit in hits:
        marks = {highlight.field: highlight for highlight in hit.highlights or ()}
        title = str(hit.fields.get("title") or hit.id)
        console.print(
            Text.assemble(
                (f"{hit.rank:>3}  ", "dim"),
                (f"{hit.score:.4f}  ", "cyan"),
                _marked(title, marks.get("title"), "bold"),
                ("" if title == hit.id else f"  [{printable(hit.id)}]", "dim"),
                (f"  passage {hit.passage.number}" if hit.passage else "", "dim"),
            )
        )
        if hit.explanation is not None:
            _below(console, shaded_texts.passage(hit))
            console.print(Text(explanation.as_text(hit.explanation), style="green"))
        elif "text" in marks:
            cut = marks["text"].start + len(marks["text"].text) < len(str(hit.fields["text"]))
            before, behind = "... " if marks["text"].start else "", "..." if cut else ""
            _below(console, Text.assemble(before, _marked("", marks["text"], ""), behind))
        elif snippet := " ".join(str(hit.fields.get("text", "")).split()):
            _below(console, Text(clipped(snippet, _SNIPPET)))
        for each in hit.passages or ():
            line = f"passage {each.number}, characters {each.start:,} to {each.end:,}: {' '.join(each.text.split())}"
            _below(console, Text(printable(line)))
        if others and (line := _others(hit)):
            _below(console, Text(line, "dim"))


def show_counts(answer: Answer, out: Output) -> None:
    """Print what features add to the hits: counts of values, totals."""
    from rich.text import Text

    for line in answer.lines:
        out.console().print(Text(printable(line), "dim"))


def _below(console: Console, text: Text) -> None:
    """Print a text below its title, with all lines indented. If the output is not a terminal, the text stays on one line."""
    for line in [text] if console.soft_wrap else text.wrap(console, max(20, console.width - 5)):
        line.pad_left(5)
        console.print(line)


def _others(hit: Hit) -> str:
    """The fields of a hit other than title and text, on one line."""
    import json

    from termweave.search.results.hits import flat

    entries = []
    for name, value in flat(hit.fields):
        if name not in {"title", "text"}:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            entries.append(f"{name}: {clipped(' '.join(text.split()), _SNIPPET)}")
    return "  ".join(entries)


def _marked(text: str, highlight: Highlight | None, style: str) -> Text:
    """The passage of a highlight on one line, with its matches marked; `text` if there is no highlight."""
    from rich.text import Text

    shown = Text(
        _BLANK.sub(" ", highlight.text if highlight else text), style
    )  # one blank for each character, so that offsets stay valid
    for start, end in highlight.matches if highlight else ():
        shown.stylize("bold yellow", start, end)
    return shown
