"""A folder of texts: every .txt, .md and .html file below it is one document, and its id is its path in the folder.

Each may be packed (``page.html.gz``). Hidden files and folders (.git) are none of it; files of other kinds are counted and
said. Bytes have to be UTF-8, or in HTML what the page declares; a file that is not, that holds NULs or is beyond the
longest line that is read elsewhere, is a bad entry.
"""

from __future__ import annotations

import os
from collections import Counter
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, ClassVar

from termweave.corpora import files, markup
from termweave.corpora.beir import CORPUS, folders_in
from termweave.corpora.fields import BadLine, too_long
from termweave.corpora.filesource import FileSource
from termweave.corpora.packing import SUFFIXES, opened
from termweave.errors import InputError, TermweaveError
from termweave.records import Document
from termweave.words import counted, few

if TYPE_CHECKING:
    from collections.abc import Iterator

    from termweave.corpora.sources import Progress


def kind_of(name: str) -> str:
    """The ending that says how a file is read, in lower case, the one of packing taken off."""
    path = PurePath(name.lower())
    return PurePath(path.stem).suffix if path.suffix in SUFFIXES else path.suffix


def texts(folder: Path) -> Iterator[tuple[Path, str]]:
    """The files of text below a folder with their ids: sorted folder by folder, so that no list of millions is held.

    Links to files are followed, links to folders are not: they may lead in circles.
    """
    for path, id_, is_text in _files(folder):
        if is_text:
            yield path, id_


def _files(folder: Path) -> Iterator[tuple[Path, str, bool]]:
    def failed(error: OSError) -> None:
        raise InputError(f"{error.filename} cannot be listed: {error.strerror}.", "Name a folder that you may read.") from error

    for parent, below, names in os.walk(folder, onerror=failed):
        below[:] = sorted(name for name in below if not name.startswith("."))
        for name in sorted(names):
            path = Path(parent, name)
            if not name.startswith(".") and path.is_file():
                yield path, path.relative_to(folder).as_posix(), kind_of(name) in markup.KINDS


class TextFolder(FileSource):
    """A folder of texts: a `Source`, and the reader that recognises it."""

    LABEL: ClassVar[str] = "a folder of .txt, .md or .html files"
    KIND: ClassVar[str] = "texts/1"

    @classmethod
    def recognises(cls, spec: str) -> bool:
        """A folder with a file of text somewhere below it, and no corpus of another kind in it or in one of its folders."""
        path = Path(spec)
        if not path.is_dir() or files.plain_or_packed(path, CORPUS) is not None or folders_in(path):
            return False  # a README beside data sets is not what is meant
        if files.hidden(spec):  # from Python 3.14 on `is_file` says no to all that lies there, and raises nothing
            return False
        return next(texts(path), None) is not None

    @property
    def name(self) -> str:
        """The folder's own name."""
        return self.reading.name or self.path.resolve().name

    @property
    def fingerprint(self) -> str:
        """Over ids and bytes of all files."""
        state = blake2b(digest_size=16)
        for path, id_ in texts(self.path):
            state.update(f"{id_}\0{_state(path)}\0".encode(errors="surrogateescape"))
        return _fingerprint(self.path, self.kind, state.digest())

    @property
    def size(self) -> int:
        """Bytes of all files as they lie."""
        return sum(_state(path)[0] for path, _ in texts(self.path))

    @property
    def remarks(self) -> list[str]:
        """How many files are of other kinds."""
        others = Counter(kind_of(path.name) or "no ending" for path, _, is_text in _files(self.path) if not is_text)
        if not others:
            return []
        named = few([f"{count:,} {ending}" for ending, count in others.most_common()])
        count = counted(others.total(), "file is", "files are")
        return [f"{self.shown}: {count} no text and passed over ({named})."]

    def entries(self, progress: Progress | None) -> Iterator[tuple[int | None, Document | BadLine]]:
        """The files; `Document.line` is the number of the file, the line of a bad one is the line in it."""
        done = 0
        for number, (path, id_) in enumerate(texts(self.path), 1):
            try:
                title, text = _read(path, id_)
            except _BadFile as bad:
                bad.file = f"{self.shown}/{id_}".encode(errors="replace").decode()
                yield bad.line, bad
            else:
                yield number, Document(id_, text, title, {}, number)
            done += _state(path)[0]
            if progress:
                progress(done)


def _state(path: Path) -> tuple[int, int]:
    """Bytes and time of the last change; a file that has gone since the folder was listed has neither."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_size, status.st_mtime_ns


class _BadFile(BadLine):
    """Why a file cannot be read, and the line that shows it."""

    def __init__(self, reason: BadLine | str, line: int | None = None) -> None:
        super().__init__(str(reason), *([reason.hint] if isinstance(reason, BadLine) else []))
        self.line = line


def _read(path: Path, id_: str) -> tuple[str, str]:
    """Title and text of a file.

    Raises:
        _BadFile: It holds no text, or cannot be read.
    """
    try:
        id_.encode()
    except UnicodeEncodeError:
        raise _BadFile("its name is not UTF-8, and the name is the id") from None
    try:
        with opened(path) as stream:
            content = stream.read(files.MAX_LINE + 1)
    except TermweaveError as error:  # of a folder a damaged file is one entry
        raise _BadFile(BadLine(error.message.removeprefix(f"{path} is ").removeprefix(f"{path} ").rstrip("."))) from None
    if len(content) > files.MAX_LINE:
        raise _BadFile(too_long())
    kind = kind_of(path.name)
    # The mark decides before the declaration, in HTML as everywhere.
    marked = content.startswith(files.BOM)
    encoding = markup.charset(content) if markup.KINDS[kind] is markup.html and not marked else "utf-8"
    if files.is_utf16(content[:4]):
        raise _BadFile("UTF-16 or UTF-32, and only UTF-8 is read", 1)
    if b"\0" in content:
        raise _BadFile("a NUL byte: this is no text", content.count(b"\n", 0, content.index(b"\0")) + 1)
    try:
        text = content.removeprefix(files.BOM).decode(encoding)
    except UnicodeDecodeError as wrong:
        before = wrong.object[: wrong.start]
        line, column = before.count(b"\n") + 1, len(before) - before.rfind(b"\n")
        reason = f"byte 0x{wrong.object[wrong.start]:02x} at column {column} is not {encoding.upper()}"
        raise _BadFile(reason, line) from None
    return markup.KINDS[kind](text)


@lru_cache(maxsize=8)
def _fingerprint(folder: Path, kind: str, state: bytes) -> str:
    """Over all contents; `state` is there so that a folder that changed is read again."""
    del state
    digest = blake2b(kind.encode() + b"\n", digest_size=16)
    for path, id_ in texts(folder):
        name = id_.encode(errors="surrogateescape")
        digest.update(len(name).to_bytes(8, "big") + name + bytes.fromhex(files.fingerprint(path, "")))
    return digest.hexdigest()
