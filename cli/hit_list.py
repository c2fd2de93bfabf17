"""Print hits and texts with words shaded by weight, in a terminal or as an HTML page (--html)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from termweave.cli.declared_options import NEW_FILE, option
from termweave.cli.shared_options import writable
from termweave.search.results import explanation
from termweave.search.results.explanation import window
from termweave.search.results.pictures import Picture, html
from termweave.support.messages import clipped, printable

if TYPE_CHECKING:
    import click
    from rich.console import Console
    from rich.text import Text

    from termweave import answers
    from termweave.cli.output import Output
    from termweave.records import Highlight, Hit, WordWeight

#: The most characters of a text or a field that are printed below a hit.
_SNIPPET = 200
#: The most characters of a passage that a terminal shows shaded.
_PASSAGE = 400
#: The darkest shade of a word as red, green, blue; and each colour of the lightest shade, which is nearly white.
_DARKEST = (0, 110, 60)
_LIGHTEST = 235
#: Up to this share black letters have the higher contrast, beyond it white ones: never less than 4.5 (WCAG 2.2, 1.4.3).
_WHITE_BEYOND = 0.82
_BLANK = re.compile(r"\s")
_WORD = re.compile(r"\S+")


def show(hits: Sequence[Hit], out: Output, *, others: bool = False, lines: Sequence[str] = ()) -> None:
    """Print hits.

    Args:
        hits: The hits, best first.
        out: The terminal.
        others: Whether fields other than title and text are printed, too.
        lines: Lines to print below the hits, such as counts of values and totals.
    """
    from rich.text import Text

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
            _below(console, passage(hit))
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
    for line in lines:
        console.print(Text(printable(line), "dim"))


def _below(console: Console, text: Text) -> None:
    """Print a text, indented, below the title of a hit; if the output is not a terminal, the text stays on one line."""
    for line in [text] if console.soft_wrap else text.wrap(console, max(20, console.width - 5)):
        line.pad_left(5)
        console.print(line)


def _others(hit: Hit) -> str:
    """Names and values of the fields of a hit other than title and text, on one line; long values are cut."""
    import json

    from termweave.search.results.hits import flat

    others = {name: value for name, value in flat(hit.fields) if name not in {"title", "text"}}
    texts = ((name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)) for name, value in others.items())
    return "  ".join(f"{name}: {clipped(' '.join(text.split()), _SNIPPET)}" for name, text in texts)


def _marked(text: str, highlight: Highlight | None, style: str) -> Text:
    """The passage of a highlight on one line, with the matched words marked; the unmarked `text` if there is no highlight."""
    from rich.text import Text

    # One blank for each character, so that offsets stay valid.
    shown = Text(_BLANK.sub(" ", highlight.text if highlight else text), style)
    for start, end in highlight.matches if highlight else ():
        shown.stylize("bold yellow", start, end)
    return shown


def _checked(_context: click.Context, _option: click.Parameter, path: Path | None) -> Path | None:
    writable(None, [path])
    return path


#: The option --html: the path of the page, or None.
html_option = option("--html", "Write the shaded text as a self-contained HTML page.", "FILE", type=NEW_FILE, callback=_checked)


def write(path: Path, title: str, pictures: Sequence[Picture], out: Output) -> None:
    """Write texts with shaded words into an HTML page with a title."""
    from termweave.support import private_files

    with private_files.open_private(path, "wb") as file:
        file.write(html(title, pictures).encode("utf-8", "replace"))
    out.say(f"Written: {path}")


def passage(hit: Hit) -> Text:
    """From the text of an explained hit, the passage whose words add most to the score, with the words shaded, on one line."""
    from rich.text import Text

    explained = hit.explanation or {"text": "", "words": []}
    begin, end = window(explained["text"], explained["words"], _PASSAGE)
    inside = [each for each in explained["words"] if begin <= each["start"] and each["end"] <= end]
    words = [(each["start"] - begin, each["end"] - begin, each["share"]) for each in inside]
    whole = shaded(explained["text"][begin:end], words)
    shown = Text("... " if begin > 0 else "")
    shown.append_text(Text(" ").join(whole[word.start() : word.end()] for word in _WORD.finditer(whole.plain)))
    return shown.append(" ..." if end < len(explained["text"]) else "")


def shaded(text: str, words: Sequence[tuple[int, int, float]]) -> Text:
    """Shade the words of a text by their weights, for a terminal.

    Args:
        text: The text.
        words: Start and end (positions in the text) and weight of each word.
    """
    from rich.text import Text

    result = Text()
    for piece, _, share in Picture("", text, words).runs():
        result.append(piece, _style(share) if share > 0 else "")
    return result


def weighed(text: str, words: Sequence[WordWeight], *, scale: bool = True) -> Text:
    """Shade the words of a text by their weights, for a terminal; with `scale`, a line below the text shows which colour is which weight."""
    picture = shaded(text, [(word.start, word.end, word.weight) for word in words])
    heaviest = max((word.weight for word in words), default=0.0)
    if heaviest and scale:
        picture.append("\n\n")
        for step in range(1, 6):
            picture.append(f" {step / 5 * heaviest:.1f} ", _style(step / 5))
    return picture


def weighted_words(text: str, words: Sequence[WordWeight]) -> list[answers.WeightedWord]:
    """The words of a text as JSON values, each with position, term and weight."""
    places = [(word, word.start, word.end) for word in words]
    return [{"start": at, "end": to, "word": text[at:to], "term": word.term, "weight": word.weight} for word, at, to in places]


def _style(share: float) -> str:
    """The style of a word (colours of letters and background), given the share of its weight in the heaviest weight.

    A program cannot ask a terminal for its background and cannot blend colours, so both letters and background get an opaque colour.
    """
    red, green, blue = (round(_LIGHTEST - (_LIGHTEST - end) * share) for end in _DARKEST)
    return f"{'white' if share > _WHITE_BEYOND else 'black'} on rgb({red},{green},{blue})"
