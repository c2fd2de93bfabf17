"""Hits for a terminal."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from termweave.cli import _pictures
from termweave.words import clipped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.text import Text

    from termweave.cli._options import Output
    from termweave.records import Highlight, Hit

_SNIPPET = 200
_BLANK = re.compile(r"\s")


def show(hits: Sequence[Hit], out: Output, *, others: bool = False) -> None:
    """Hits for a terminal; `others`: with the fields besides title and text."""
    from rich.text import Text

    from termweave.search import explanation

    console = out.console()
    for hit in hits:
        marks = {each.field: each for each in hit.highlights or ()}
        title = str(hit.fields.get("title") or hit.id)
        console.print(
            Text.assemble(
                (f"{hit.rank:>3}  ", "dim"),
                (f"{hit.score:.4f}  ", "cyan"),
                _marked(title, marks.get("title"), "bold"),
                ("" if title == hit.id else f"  [{hit.id}]", "dim"),
                (f"  passage {hit.passage.number}" if hit.passage else "", "dim"),
            )
        )
        if hit.explanation is not None:
            _below(console, _pictures.passage(hit))
            console.print(Text(explanation.as_text(hit.explanation), style="green"))
        elif "text" in marks:
            cut = marks["text"].start + len(marks["text"].text) < len(str(hit.fields["text"]))
            before, behind = "... " if marks["text"].start else "", "..." if cut else ""
            _below(console, Text.assemble(before, _marked("", marks["text"], ""), behind))
        elif snippet := " ".join(str(hit.fields.get("text", "")).split()):
            _below(console, Text(clipped(snippet, _SNIPPET)))
        if others and (line := _others(hit)):
            _below(console, Text(line, "dim"))


def _below(console: Console, text: Text) -> None:
    """A text below its title, all its lines indented; one line where the output is no terminal."""
    for line in [text] if console.soft_wrap else text.wrap(console, max(20, console.width - 5)):
        line.pad_left(5)
        console.print(line)


def _others(hit: Hit) -> str:
    """The fields of a hit besides title and text, on one line."""
    import json

    from termweave.search.hits import flat

    found = []
    for name, value in flat(hit.fields):
        if name not in {"title", "text"}:
            said = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            found.append(f"{name}: {clipped(' '.join(said.split()), _SNIPPET)}")
    return "  ".join(found)


def _marked(text: str, highlight: Highlight | None, style: str) -> Text:
    """A passage on one line with its matches marked; `text` where there is none."""
    from rich.text import Text

    shown = Text(_BLANK.sub(" ", highlight.text if highlight else text), style)  # one blank each: offsets stay
    for start, end in highlight.matches if highlight else ():
        shown.stylize("bold yellow", start, end)
    return shown
