"""The same picture as an image: the pictures of `pictures` in a PNG. Needs the extra ``report`` (matplotlib, with Pillow).

matplotlib knows the fonts of the host, brings some of its own (Latin, Greek, Cyrillic, Hebrew, Arabic) and says which
characters a font has; Pillow draws. Every character is drawn with the first font that has it, emoji in their colours; what no
font has (often Chinese, or emoji) is an empty box, and is returned so that a user can be told.

Words from right to left are ordered word by word (a line's direction is that of the first letter of the text), which is
what Unicode's algorithm does with plain sentences; nested quotations and brackets may differ. Arabic letters are joined where
Pillow was built with Raqm, as its wheels are.
"""

from __future__ import annotations

import bisect
import io
import re
import unicodedata
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from termweave.errors import UsageError
from termweave.search.pictures import NOTHING, colour, wants_white

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from termweave.search.pictures import Picture

_SIZE, _SMALL, _WIDTH, _MARGIN = 26, 20, 1400, 40
#: The one size of coloured emoji, which are bitmaps.
_BITMAPS = 109
#: What joins and varies emoji belongs to the character before it.
_JOINERS = {"\u200d", "\ufe0e", "\ufe0f"}
#: A longer text is cut: an image of many screens is not looked at.
_LONGEST = 12_000
_TOKEN = re.compile(
    r"\n|[^\S\n]+|[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]|[^\s\u2e80-\u9fff\uac00-\ud7af]+"
)
_RIGHT_TO_LEFT = {"R", "AL"}
#: A piece of a line: text, share of the heaviest weight.
_Token = tuple[str, float]


def png(title: str, pictures: Sequence[Picture]) -> tuple[bytes, str]:
    """The pictures one below the other.

    Args:
        title: Stands on top.
        pictures: In the order they are shown.

    Returns:
        The file's bytes, and the characters that no font here has, each once.

    Raises:
        UsageError: matplotlib is not installed.
    """
    sheet = _Sheet()
    sheet.write([(title, 0.0)], _SIZE + 6)
    if not pictures:
        sheet.write([(NOTHING, 0.0)], _SIZE)
    for picture in pictures:
        sheet.skip(_SIZE)
        sheet.write([(picture.title, 0.0)], _SIZE)
        if picture.note:
            sheet.write([(picture.note, 0.0)], _SMALL)
        sheet.write(_tokens(picture), _SIZE)
        for share, name, said in picture.rows:
            sheet.write(_split(f"{share:+.4f}  {name}  {said}", 0.0), _SMALL)
    return sheet.bytes(), "".join(sorted(sheet.missing))


def _tokens(picture: Picture) -> list[_Token]:
    tokens: list[_Token] = []
    length = 0
    for piece, _, share in picture.runs():
        length += len(piece)
        if length > _LONGEST:
            return [*tokens, (" ...", 0.0)]
        tokens += [(piece, share)] if share > 0 else _split(piece, 0.0)
    return tokens


def _split(text: str, share: float) -> list[_Token]:
    return [(found, share) for found in _TOKEN.findall(text)]


class _Sheet:
    """An image that grows downwards."""

    def __init__(self) -> None:
        try:
            from matplotlib import font_manager  # noqa: F401, PLC0415 - an extra
            from PIL import Image, ImageDraw, features  # noqa: PLC0415 - comes with it
        except ImportError:
            raise UsageError(
                "A picture needs the extra 'report', which is not installed.", "pip install 'termweave[report]'; or use --html."
            ) from None
        self._image_of, self._draw_on = Image.new, ImageDraw.Draw
        self._joins = bool(features.check("raqm"))
        self._lines: list[tuple[int, bool, list[_Token]]] = []
        self.missing: set[str] = set()

    def skip(self, height: int) -> None:
        """Leave some pixels free."""
        self._lines.append((height, False, []))

    def write(self, tokens: list[_Token], size: int) -> None:
        """A paragraph, broken into lines."""
        leftwards = _direction("".join(text for text, _ in tokens)) is True
        line: list[_Token] = []
        width = 0.0
        for text, share in self._pieces(tokens, size):
            wide = 0.0 if text == "\n" else self._wide(text, size)
            if text == "\n" or (line and width + wide > _WIDTH - 2 * _MARGIN):
                self._lines.append((size, leftwards, line))
                line, width = [], 0.0
                if text.isspace():
                    continue
            line.append((text, share))
            width += wide
        self._lines.append((size, leftwards, line))

    def _pieces(self, tokens: list[_Token], size: int) -> Iterator[_Token]:
        """The tokens, those that are wider than a line in pieces that are not."""
        for text, share in tokens:
            rest = text
            while len(rest) > 1 and self._wide(rest, size) > _WIDTH - 2 * _MARGIN:
                fitting = self._fitting(rest, size)
                yield rest[:fitting], share
                rest = rest[fitting:]
            yield rest, share

    def _fitting(self, text: str, size: int) -> int:
        """How many characters of a text a line holds, at least one."""
        room = float(_WIDTH - 2 * _MARGIN)
        return max(1, bisect.bisect(range(1, len(text)), room, key=lambda length: self._wide(text[:length], size)))

    def bytes(self) -> bytes:
        """Draw everything."""
        height = sum(round(size * 1.7) for size, _, _ in self._lines) + 2 * _MARGIN
        image: Any = self._image_of("RGB", (_WIDTH, height), "white")
        draw = self._draw_on(image)
        top = float(_MARGIN)
        for size, leftwards, line in self._lines:
            shown = _visual(line, leftwards=leftwards)
            left = float(_MARGIN)
            if leftwards:
                left = _WIDTH - _MARGIN - sum(self._wide(text, size) for text, _ in shown)
            for text, share in shown:
                wide = self._wide(text, size)
                if share > 0:
                    box = (left - 2, top, left + wide + 2, top + size * 1.5)
                    draw.rounded_rectangle(box, radius=5, fill=colour(share))
                self._draw(image, draw, left, top + size * 1.2, text, size, "white" if wants_white(share) else "black")
                left += wide
            top += round(size * 1.7)
        file = io.BytesIO()
        image.save(file, "PNG")
        return file.getvalue()

    def _draw(self, image: Any, draw: Any, left: float, baseline: float, text: str, size: int, ink: str) -> None:
        """One token, segment by segment, each with the font that has its characters."""
        for segment, font in self._segments(text, size):
            wide = self._length(segment, font, size)
            if font.size == size:
                draw.text((left, baseline), segment, font=font, fill=ink, anchor="ls")
            else:  # bitmaps: drawn as they are, then made as small as the letters
                tile = self._image_of("RGBA", (round(font.getlength(segment)) + 1, 2 * font.size), (0, 0, 0, 0))
                self._draw_on(tile).text((0, font.size), segment, font=font, embedded_color=True, anchor="ls")
                small = tile.resize((max(1, round(wide)), 2 * size))
                image.paste(small, (round(left), round(baseline) - size), small)
            left += wide

    def _wide(self, text: str, size: int) -> float:
        return sum(self._length(segment, font, size) for segment, font in self._segments(text, size))

    def _length(self, segment: str, font: Any, size: int) -> float:
        return float(font.getlength(segment) * size / font.size)

    def _segments(self, text: str, size: int) -> list[tuple[str, Any]]:
        """Pieces of one font each, from left to right as they are drawn."""
        pieces: list[tuple[str, Any]] = []
        places: list[int | None] = []
        for character in text:
            places.append(places[-1] if places and character in _JOINERS else _font_with(character))
        for place, run in groupby(zip(places, text, strict=True), lambda pair: pair[0]):
            piece = "".join(character for _, character in run)
            if place is None:
                self.missing.update(character for character in piece if not unicodedata.category(character).startswith("C"))
            pieces.append((piece, _opened(place or 0, size)))
        if _direction(text) is True:
            pieces.reverse()
            if not self._joins:
                pieces = [(segment[::-1], font) for segment, font in pieces]
        return pieces


def _direction(text: str) -> bool | None:
    """Whether the first letter runs from right to left; None where there is no letter."""
    for character in text:
        kind = unicodedata.bidirectional(character)
        if kind == "L" or kind in _RIGHT_TO_LEFT:
            return kind in _RIGHT_TO_LEFT
    return None


def _visual(line: list[_Token], *, leftwards: bool) -> list[_Token]:
    """Tokens from left to right as they are seen: runs against the line's direction are turned round.

    Example:
        >>> _visual([("a", 0), (" ", 0), ("ש", 0), (" ", 0), ("ל", 0), (" ", 0), ("b", 0)], leftwards=False)
        [('a', 0), (' ', 0), ('ל', 0), (' ', 0), ('ש', 0), (' ', 0), ('b', 0)]
    """
    directions = [_direction(text) for text, _ in line]
    # What has no direction (spaces, digits, signs) goes with its neighbours where they agree, else with the line.
    for place, own in enumerate(directions):
        if own is None:
            before = directions[place - 1] if place else leftwards
            after = next((each for each in directions[place + 1 :] if each is not None), leftwards)
            directions[place] = before if before == after else leftwards
    shown: list[_Token] = []
    for against, run in groupby(zip(directions, line, strict=True), lambda pair: pair[0] != leftwards):
        tokens = [token for _, token in run]
        shown += reversed(tokens) if against else tokens
    return shown[::-1] if leftwards else shown


@lru_cache(maxsize=1)
def _paths() -> list[str]:
    """Files of fonts: matplotlib's own first, then the host's, plain faces before others."""
    import matplotlib as mpl  # noqa: PLC0415
    from matplotlib import font_manager  # noqa: PLC0415

    own = Path(mpl.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"
    hosts = sorted(font_manager.findSystemFonts(), key=lambda path: ("regular" not in path.lower(), len(path), path))
    return [str(own), *hosts]


@lru_cache(maxsize=4096)
def _font_with(character: str) -> int | None:
    """The first font that has a character; None where none has."""
    return next((place for place, has in _character_maps() if has(character)), None)


def _character_maps() -> Iterator[tuple[int, Any]]:
    for place in range(len(_paths())):
        if (face := _face(place)) is not None and _opened(place, _SIZE) is not None:
            yield place, lambda character, face=face: face.get_char_index(ord(character)) > 0


@lru_cache(maxsize=64)
def _face(place: int) -> Any:
    from matplotlib.ft2font import FT2Font  # noqa: PLC0415

    try:
        return FT2Font(_paths()[place])
    except (OSError, RuntimeError):  # not a font after all
        return None


@lru_cache(maxsize=256)
def _opened(place: int, size: int) -> Any:
    """A font in some size, or in the one size that it has; None where it cannot be opened in either."""
    from PIL import ImageFont  # noqa: PLC0415

    for possible in (size, _BITMAPS):
        try:
            return ImageFont.truetype(_paths()[place], possible)
        except OSError:  # fonts of bitmaps have sizes of their own
            continue
    return None
