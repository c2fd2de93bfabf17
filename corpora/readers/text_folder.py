"""Read folders of texts: every .txt, .md, .rst, .adoc and .html file below a folder is a document, and its id is its path in the folder.

PDF and office files are read where the extra `office` is installed (`office_file`). The user may name the files instead, by patterns
(``*.py``, ``src/*.c``): then each matching file is a text, whatever its type. A link to a file outside the folder is named and not read, unless
the user asks for it: a folder that was downloaded must not put the private files of this host into an index.

Files may be compressed (``page.html.gz``). Hidden files and folders (.git) are ignored; files of other types are counted and named in a
remark. Files must be UTF-8; HTML is read in the encoding that browsers would take. A file with another encoding, with NULs, or longer than the
longest line of other formats is a bad entry.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path, PurePath
from typing import ClassVar

from termweave.corpora.file_source import FileSource
from termweave.corpora.formats import lines, markup
from termweave.corpora.formats.compression import SUFFIXES, decompressed
from termweave.corpora.formats.fields import BadLine, attempted, too_long
from termweave.corpora.readers import office_file as office
from termweave.corpora.readers.beir import CORPUS, folders_in
from termweave.corpora.sources import Progress, Reading
from termweave.errors import InputError, TermweaveError, UsageError
from termweave.records import Document
from termweave.support.extras import install
from termweave.support.messages import counted, few


def kind_of(name: str) -> str:
    """Return the suffix that decides how a file is read, in lower case and without a suffix of compression."""
    path = PurePath(name.lower())
    return PurePath(path.stem).suffix if path.suffix in SUFFIXES else path.suffix


@dataclass(frozen=True, slots=True)
class _File:
    """A file below a folder.

    Attributes:
        path: Path of the file.
        id: Path of the file within the folder.
        is_text: Whether its type or a pattern makes it a document.
        outside: Whether it is a link to a file outside the folder.
    """

    path: Path
    id: str
    is_text: bool
    outside: bool


def texts(folder: Path, reading: Reading) -> Iterator[tuple[Path, str]]:
    """Yield path and id of the text files below a folder, sorted folder by folder so that no long list is kept in memory.

    Links to files in the folder are followed. Links to folders are not, because they may form a loop.

    Args:
        folder: The folder.
        reading: Options that say which files are read, and whether links to files outside the folder are followed.
    """
    for file in _files(folder, reading.include):
        if file.is_text and (reading.follow_links or not file.outside):
            yield file.path, file.id


def _files(folder: Path, include: Sequence[str] = ()) -> Iterator[_File]:
    """Yield all files below a folder, sorted folder by folder."""
    root = folder.resolve()

    def failed(error: OSError) -> None:
        if isinstance(error, FileNotFoundError) and folder.is_dir():
            return  # a folder below was deleted after it was listed, as a file may be
        raise InputError(f"{error.filename} cannot be listed: {error.strerror}.", "Name a folder that you may read.") from error

    for parent, below, names in os.walk(folder, onerror=failed):
        below[:] = sorted(name for name in below if not name.startswith("."))
        if names and lines.hidden(parent):  # from Python 3.14 on, `is_file` returns False for all files in it
            failed(PermissionError(errno.EACCES, os.strerror(errno.EACCES), parent))
        for name in sorted(names):
            path = Path(parent, name)
            if not name.startswith(".") and path.is_file():
                id_ = path.relative_to(folder).as_posix()
                kind = kind_of(name)
                is_known = kind in markup.KINDS or (kind in office.MODULES and office.readable())
                outside = path.is_symlink() and not path.resolve().is_relative_to(root)
                yield _File(path, id_, _matches(id_, include) if include else is_known, outside)


def _matches(id_: str, include: Sequence[str]) -> bool:
    """Whether a pattern matches a path; a pattern with a slash must match the whole path, a pattern without a slash the name of the file."""
    name = id_.rpartition("/")[2]
    return any(fnmatchcase(id_ if "/" in pattern else name, pattern) for pattern in include)


class TextFolder(FileSource):
    """A folder of texts: a `Source`, and the reader that recognises it."""

    LABEL: ClassVar[str] = "a folder of .txt, .md, .rst, .adoc, .html, .pdf, .docx, .pptx or .xlsx files"
    KIND: ClassVar[str] = "texts/3"

    @classmethod
    def recognises(cls, spec: str) -> bool:
        """Whether this is a folder with text files below it, and without a BEIR folder in it."""
        path = Path(spec)
        if not path.is_dir() or lines.plain_or_packed(path, CORPUS) is not None or folders_in(path) or lines.hidden(spec):
            return False  # a README beside data sets is not a corpus
        return any(file.is_text or kind_of(file.id) in office.MODULES for file in _files(path))

    @classmethod
    def open(cls, spec: str, reading: Reading) -> TextFolder:
        """Open the folder.

        Raises:
            UsageError: The folder has only links to files outside it, or only PDF and office files whose packages are not installed.
        """
        if next(texts(Path(spec), reading), None) is None:
            if any(file.is_text for file in _files(Path(spec), reading.include)):
                message = f"The texts in {spec} are links to files outside this folder."
                raise UsageError(message, "If you trust these links, add --follow-links.")
            raise UsageError(f"{spec} holds PDF and office files only, which need more packages.", f"Run `{install('office')}`.")
        return super().open(spec, reading)

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.reading.name or self.path.resolve().name

    @property
    def fingerprint(self) -> str:
        """Hash of the ids and bytes of all files."""
        state = blake2b(digest_size=16)
        for path, id_ in texts(self.path, self.reading):
            state.update(f"{id_}\0{_state(path)}\0".encode(errors="surrogateescape"))
        return _fingerprint(self.path, self.kind, state.digest(), self.reading.include, self.reading.follow_links)

    @property
    def size(self) -> int:
        """Size of all files on disk, in bytes."""
        return sum(_state(path)[0] for path, _ in texts(self.path, self.reading))

    @property
    def remarks(self) -> list[str]:
        """Sentences about what is read as what, and about files of other types, if there are any."""
        read, others = Counter[str](), Counter[str]()
        outside: list[str] = []
        for file in _files(self.path, self.reading.include):
            if file.is_text and file.outside and not self.reading.follow_links:
                outside.append(file.id)
            else:
                (read if file.is_text else others)[kind_of(file.id) or "without suffix"] += 1
        kinds, other = _numbers(read), f"{counted(others.total(), 'file is', 'files are')}"
        remarks = [f"each text file is a document ({kinds}); id = its path; title = its heading or <title>."]
        if outside:
            count = counted(len(outside), "text is a link to a file", "texts are links to files")
            remarks.append(f"{count} outside the folder and ignored ({few(outside)}); --follow-links reads them.")
        if others and self.reading.include:
            remarks.append(f"{other} not included and ignored ({_numbers(others)}).")
        elif others:
            unread = [] if office.readable() else sorted(others.keys() & office.MODULES.keys())
            advice = f" `{install('office')}` reads {few(unread)}." if unread else ""
            advice = f"--include '*.py' reads texts of any type.{advice}"
            remarks.append(f"{other} of other types and ignored ({_numbers(others)}); {advice}")
        return [f"{self.shown}: {remark}" for remark in remarks]

    def entries(self, progress: Progress | None) -> Iterator[tuple[int | None, Document | BadLine]]:
        """Read the files."""
        done = 0
        with closing(office.Extractor()) as extractor:
            for path, id_ in texts(self.path, self.reading):
                document = attempted(_document, path, id_, extractor)
                if isinstance(document, BadLine):
                    if not path.exists():
                        continue
                    document.file = f"{self.shown}/{id_}".encode(errors="replace").decode()
                yield document.line, document
                done += _state(path)[0]
                if progress:
                    progress(done)


def _numbers(kinds: Counter[str]) -> str:
    return few([f"{count:,} {ending}" for ending, count in kinds.most_common()])


def _state(path: Path) -> tuple[int, int]:
    """Return size in bytes and time of the last change in ns of a file; (0, 0): the file was deleted after the folder was listed."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_size, status.st_mtime_ns


def _document(path: Path, id_: str, extractor: office.Extractor) -> Document:
    """Read a file as a document. Its line number is always 1, so that the document stays the same when files before it come and go.

    Raises:
        BadLine: The file is not a text, or cannot be read.
    """
    try:
        id_.encode()
    except UnicodeEncodeError:
        raise BadLine("its name is not UTF-8, and the name is the id") from None
    kind = kind_of(path.name)
    if kind in office.MODULES and office.readable():
        return extractor.document(path, kind, id_)
    try:
        with decompressed(path) as stream:
            content = stream.read(lines.MAX_LINE + 1)
    except TermweaveError as error:  # a damaged file in a folder is one bad entry
        raise BadLine(error.message.removeprefix(f"{path} is ").removeprefix(f"{path} ").rstrip(".")) from None
    if len(content) > lines.MAX_LINE:
        raise too_long()
    read = markup.KINDS.get(kind, markup.plain)  # a file that a pattern names may have any suffix
    title, body = read(markup.decoded(content) if read is markup.html else _text(content))
    return Document(id_, body, title, {}, 1)


def _text(content: bytes) -> str:
    """Decode the content of a file that must be UTF-8.

    Raises:
        BadLine: The content is not UTF-8, or contains a NUL byte.
    """
    if lines.is_utf16(content[:4]):
        raise BadLine("UTF-16 or UTF-32, but it must be UTF-8", line=1)
    if b"\0" in content:
        raise BadLine("a NUL byte: this is not a text", line=content.count(b"\n", 0, content.index(b"\0")) + 1)
    try:
        return content.removeprefix(lines.BOM).decode()
    except UnicodeDecodeError as wrong:
        before = wrong.object[: wrong.start]
        line, column = before.count(b"\n") + 1, len(before) - before.rfind(b"\n")
        raise BadLine(f"byte 0x{wrong.object[wrong.start]:02x} at column {column} is not UTF-8", line=line) from None


@lru_cache(maxsize=8)
def _fingerprint(folder: Path, kind: str, state: bytes, include: tuple[str, ...], follow_links: bool) -> str:  # noqa: FBT001 - a key of the cache
    """Hash ids and bytes of all text files. Results are cached; `state` is an argument so that a changed folder is read again."""
    del state
    digest = blake2b(kind.encode() + b"\n", digest_size=16)
    for path, id_ in texts(folder, Reading(include=include, follow_links=follow_links)):
        name = id_.encode(errors="surrogateescape")
        digest.update(len(name).to_bytes(8, "big") + name + bytes.fromhex(lines.fingerprint(path, "")))
    return digest.hexdigest()
