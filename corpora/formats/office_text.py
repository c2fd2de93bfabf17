"""Title and text of PDF and office files: the program of the process that `office_file.Extractor` starts.

The libraries read files of any origin, some of them in C++. They run in a process of their own, with limits on memory and on what a file
may unpack to, so that a damaged or hostile file costs one file and never the build. The process reads one request per line,
``{"path": ..., "kind": ".pdf"}``, and answers each with one line, ``{"title": ..., "text": ...}`` or ``{"bad": REASON}``.

    .pdf    pypdfium2 (BSD-3, Apache 2.0; PDFium is the reader in Chromium)
    .docx   python-docx (MIT): paragraphs, tables, text boxes, notes; the title is the paragraph with the style Title, else the property
    .pptx   python-pptx (MIT): all text of the slides, and the notes
    .xlsx   openpyxl (MIT): a line for each row with a value
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from termweave.corpora.formats.compression import decompressed
from termweave.corpora.formats.lines import MAX_LINE
from termweave.support.messages import first_line

#: The longest file, and the most that the parts of an office file may unpack to, in bytes.
LONGEST, MOST_UNPACKED = 256_000_000, 1_000_000_000
#: Memory of this process, in bytes.
MEMORY = 3_000_000_000
#: The beginning of office files that are encrypted, or older than 2007.
_OLD = b"\xd0\xcf\x11\xe0"
#: PDFium writes a hyphen at the end of a line as one of these.
_HYPHENATED = re.compile("[\x02\ufffe\u00ad]\r?\n?")
_UNUSUAL_BLANKS = re.compile(r"[ \t\r\f\v\u00a0]+")
#: Titles that programs give files which have none.
_NO_TITLE = re.compile(
    r"microsoft (word|powerpoint) - .*|powerpoint[- ]\w+|untitled|.*\.(docx?|pptx?|xlsx?|indd|pdf|tex|dvi)", re.IGNORECASE
)


class Refused(Exception):
    """The reason why a file cannot be read, as a clause."""


def pdf(content: bytes) -> tuple[str, str]:
    """Return the title (from the properties) and the text of a PDF, page by page."""
    from pypdfium2 import PdfDocument, PdfiumError  # noqa: PLC0415 - of the extra

    try:
        document = PdfDocument(content)
    except PdfiumError as error:
        reason = str(error)
        if "assword" in reason or "ecurity" in reason:
            raise Refused("it is encrypted: save it without a password") from None
        raise Refused("it is damaged, or no PDF") from None
    pages = (_HYPHENATED.sub("", _page(document, number)) for number in range(len(document)))
    return str(document.get_metadata_dict().get("Title") or ""), _joined(pages, "\n\n")


def _page(document: Any, number: int) -> str:
    with closing(document[number]) as page, closing(page.get_textpage()) as text:
        return str(text.get_text_bounded())


def docx(content: bytes) -> tuple[str, str]:
    """Return title and text of a Word document."""
    from docx import Document  # noqa: PLC0415 - of the extra
    from docx.oxml import parse_xml  # noqa: PLC0415
    from docx.text.paragraph import Paragraph  # noqa: PLC0415

    document = Document(io.BytesIO(content))
    title = document.core_properties.title or ""
    body = document.element.body
    for element in body.iterchildren("{*}p"):
        paragraph = Paragraph(element, document)
        if paragraph.text.strip() and paragraph.style is not None and paragraph.style.name == "Title":
            title = paragraph.text
            body.remove(element)
            break
    notes = [part.target_part.blob for part in document.part.rels.values() if part.reltype.endswith(("/footnotes", "/endnotes"))]
    return title, _joined(text for root in (body, *map(parse_xml, notes)) for text in _paragraphs(root))


def pptx(content: bytes) -> tuple[str, str]:
    """Return title and text of a presentation; the title is that of the first slide, else the one in the properties."""
    from pptx import Presentation  # noqa: PLC0415 - of the extra

    presentation = Presentation(io.BytesIO(content))
    title, texts = "", []
    for number, slide in enumerate(presentation.slides):
        heading = slide.shapes.title
        if number == 0 and heading is not None and heading.text_frame.text.strip():
            title = heading.text_frame.text
            heading.element.getparent().remove(heading.element)
        texts.append("".join(_paragraphs(slide.element)))
        if slide.has_notes_slide and (notes := slide.notes_slide.notes_text_frame) is not None:
            texts.append(notes.text)
    return title or presentation.core_properties.title or "", _joined(texts, "\n\n")


def xlsx(content: bytes) -> tuple[str, str]:
    """Return the title (from the properties) and the cells of a workbook: values, not formulas."""
    from openpyxl import load_workbook  # noqa: PLC0415 - of the extra

    book = load_workbook(io.BytesIO(content), read_only=True, data_only=True)
    return book.properties.title or "", _joined((line for sheet in book.worksheets for line in _rows(sheet)), "\n")


def _rows(sheet: Any) -> Iterator[str]:
    yield sheet.title
    sheet.reset_dimensions()  # a wrong one would pad each row with thousands of empty cells
    for row in sheet.iter_rows(values_only=True):
        if cells := [str(cell) for cell in row if cell is not None]:
            yield "\t".join(cells)


def _paragraphs(root: Any) -> Iterator[str]:
    """The paragraphs below an element of WordprocessingML or DrawingML, in reading order."""
    from lxml.etree import iterwalk  # noqa: PLC0415 - brought by python-docx

    line: list[str] = []
    walk = iterwalk(root, events=("start", "end"))
    for event, element in walk:
        tag = element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""
        if event == "start" and tag == "Fallback":  # the same text box again, for old programs
            walk.skip_subtree()
        elif event == "start" and tag in {"tab", "br", "cr"}:
            line.append("\t" if tag == "tab" else "\n")
        elif event == "end" and tag == "t":
            line.append(element.text or "")
        elif event == "end" and tag == "p":
            yield "".join([*line, "\n"])
            line.clear()


def _joined(texts: Iterable[str], between: str = "") -> str:
    """Join texts, but not beyond the longest text that termweave reads.

    Raises:
        Refused: The texts together are longer.
    """
    parts: list[str] = []
    length = 0
    for text in texts:
        parts.append(text)
        length += len(text) + len(between)
        if length > MAX_LINE:
            raise Refused(f"its text is longer than {MAX_LINE // 1_000_000} MB")
    return between.join(parts)


#: Suffix -> function that reads the content of such a file.
READERS: dict[str, Callable[[bytes], tuple[str, str]]] = {".pdf": pdf, ".docx": docx, ".pptx": pptx, ".xlsx": xlsx}


def extracted(path: Path, kind: str) -> tuple[str, str]:
    """Return title and text of a PDF or office file.

    Raises:
        Refused: The file is encrypted, or too large.
        Exception: The file is damaged; libraries raise exceptions of any class.
    """
    with decompressed(path) as stream:
        content = stream.read(LONGEST + 1)
    if len(content) > LONGEST:
        raise Refused(f"it is larger than {LONGEST // 1_000_000} MB")
    if kind != ".pdf":
        if content.startswith(_OLD):
            raise Refused("it is encrypted, or older than 2007: save it without a password, in today's format")
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if sum(part.file_size for part in archive.infolist()) > MOST_UNPACKED:
                raise Refused(f"it unpacks to more than {MOST_UNPACKED // 1_000_000_000} GB")
    title, text = READERS[kind](content)
    return "" if _NO_TITLE.fullmatch(title.strip()) else _clean(title), _clean(text)


def _clean(text: str) -> str:
    """Clean a text: no characters that JSON or UTF-8 cannot hold, only single blanks, and at most one empty line in succession."""
    text = text.replace("\r\n", "\n").replace("\0", "").encode("utf-8", "ignore").decode()
    lines = [_UNUSUAL_BLANKS.sub(" ", line).strip() for line in text.split("\n")]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def answer(request: dict[str, str]) -> dict[str, str]:
    """Answer one request with title and text of the file, or with the reason why it cannot be read."""
    try:
        title, text = extracted(Path(request["path"]), request["kind"])
    except Refused as reason:
        return {"bad": str(reason)}
    except MemoryError:
        return {"bad": f"reading it takes more than {MEMORY // 1_000_000_000} GB of memory"}
    except Exception as error:  # noqa: BLE001 - libraries raise anything for a damaged file
        return {"bad": f"it is damaged, or no {request['kind']} file ({first_line(error)})"}
    return {"title": title, "text": text}


def main() -> None:
    """Answer requests until standard input ends."""
    if sys.platform == "linux":
        import resource  # noqa: PLC0415 - no such module on Windows

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)  # what libraries print is no answer
    for line in sys.stdin:
        answers.write(json.dumps(answer(json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
