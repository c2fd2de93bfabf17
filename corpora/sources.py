"""The interfaces of corpora (`Source`), data sets (`Dataset`) and readers (`Reader`), and the records they use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from termweave.catalog.source_fields import Fields
from termweave.errors import UsageError

if TYPE_CHECKING:
    from termweave.corpora.index.source import IndexSource
    from termweave.records import Document, Encoding, ModelInfo, Qrels, Query
    from termweave.settings import Settings
    from termweave.statistics import CorpusStatistics

#: The split that is used when a data set is named without one.
DEFAULT_SPLIT = "test"
#: What messages call an entry of a source, unless its class has another word as `ENTRY`.
LINE = "line"
#: The word for documents that a program holds.
ITEM = "item"
#: Called while documents are read, with the bytes read so far of `Source.size` (for a compressed file: compressed bytes).
Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class IndexReading:
    """Options for reading an index of a search engine.

    Attributes:
        query: Clause of the query DSL that the documents must match; None: all documents are read.
        rate: Most documents per second; None: no limit.
        whole: Whether the fields of title and text stay in the metadata, too: for a new index that takes over the mapping of this one.
        hidden: Whether documents that the default search pipeline of the index hides are read, too: for writing into this index.
        texts: Whether title and text are read; if not, the index need not have such fields.
        build: Name of the index that is built, so that the same command reads on after it was stopped; "": no index is built.
        settings: Function that returns the settings for a server from its address (None: the server that termweave writes to); None: the user's
            settings are used.
    """

    query: Mapping[str, Any] | None = None
    rate: float | None = None
    whole: bool = False
    hidden: bool = False
    texts: bool = True
    build: str = ""
    settings: Callable[[str | None], Settings] | None = field(default=None, repr=False)

    def settings_for(self, url: str | None) -> Settings:
        """Return the settings for a server: its address and the credentials that were given for it."""
        if self.settings is not None:
            return self.settings(url)
        from termweave import settings  # noqa: PLC0415 - pydantic takes 300 ms, and only an index needs it

        return settings.of_source(url, settings.load())


@dataclass(frozen=True, slots=True)
class Reading:
    """Options for reading a source.

    Attributes:
        name: Name of the source in messages, if its path is that of a temporary copy; None: the path names the source.
        skip_bad: Skip bad entries instead of raising an error.
        fields: Fields that the user named; only for a reader that is `MAPPED`.
        include: Patterns of the files to read in a folder of texts; (): the files of known types are read.
        index: Options for reading an index.
        follow_links: Read files in a folder that are links to files outside it.
        list_separator: In a table: the text between the items of a list; a cell of the metadata that contains it becomes a list; "": no cell does.
    """

    name: str | None = None
    skip_bad: bool = False
    fields: Fields = field(default_factory=Fields)
    include: tuple[str, ...] = ()
    index: IndexReading = field(default_factory=IndexReading)
    follow_links: bool = False
    list_separator: str = ""


@dataclass(frozen=True, slots=True)
class Skipped:
    """An entry that could not be read and was skipped.

    Attributes:
        line: Line in the file, from 1 (row of a Parquet file, entry of a collection); None for a whole file.
        reason: A clause that says what is wrong.
        file: Name of the file in messages.
        entry: What messages call an entry of the source: a line, or an item.
    """

    line: int | None
    reason: str
    file: str = ""
    entry: str = LINE

    def __str__(self) -> str:
        return f"{place(self.file, self.line, self.entry)}: {self.reason}"


def place(file: str, line: int | None, entry: str = LINE) -> str:
    """The position of an entry for messages: ``corpus.jsonl, line 7``."""
    return ", ".join(part for part in (file, "" if line is None else f"{entry} {line}") if part)


@dataclass(slots=True)
class Skips:
    """The entries that the last pass over a source skipped: all of them are counted, and the first ones are kept.

    At most `LIMIT` are kept, so that ten million broken lines do not fill the memory. Iterating yields the kept ones.

    Attributes:
        count: Number of all skipped entries.
        kept: The first skipped entries.
    """

    LIMIT: ClassVar[int] = 1000
    count: int = 0
    kept: list[Skipped] = field(default_factory=list)

    def add(self, skipped: Skipped) -> None:
        """Count a skipped entry, and keep it if there is room."""
        self.count += 1
        if len(self.kept) < self.LIMIT:
            self.kept.append(skipped)

    def clear(self) -> None:
        """Start again with nothing, for a new pass."""
        self.count = 0
        self.kept.clear()

    def __iter__(self) -> Iterator[Skipped]:
        return iter(self.kept)

    def __bool__(self) -> bool:
        return self.count > 0


@dataclass(frozen=True)
class Encodings:
    """Facts about a source whose documents were encoded beforehand, so that no model runs when the source is indexed.

    Attributes:
        models: Name of an output, such as term weights -> the model that computed it.
        statistics: Statistics of the corpus that the term weights are based on; None without term weights.
        sample: Encodings of a random sample of the corpus, which the scale of stored weights is derived from.
        passages: Size and stride of the passages that the texts were cut into; {} if they were not cut.
        skip_bad: Whether entries that could not be read were left out.
        analyzer: The server's analyzer that suits the language of the corpus.
        notes: What a user should know about the corpus.
        warnings: What a user should not miss.
    """

    models: Mapping[str, ModelInfo]
    statistics: CorpusStatistics | None
    sample: Sequence[Encoding]
    passages: Mapping[str, int]
    skip_bad: bool
    analyzer: str
    notes: Sequence[str]
    warnings: Sequence[str]


class Source(Protocol):
    """A corpus: documents that can be read as often as needed. A subclass overrides the properties that tell what its documents have beside their texts.

    Attributes:
        ENTRY: What messages call an entry: a line, a record, an item.
        trial: Whether `learn` builds a trial index from this source; such a build must not block other builds.
        decimal_commas: Whether 12,50 in the metadata is a number and not a list: true for a table whose columns are not separated by commas.
        skipped: Entries that the last pass over `documents` skipped; always empty without `skip_bad`.
    """

    ENTRY: str = LINE
    trial: bool = False
    decimal_commas: bool = False
    skipped: Skips

    @property
    def name(self) -> str:
        """Short name, for messages and an index's `_meta`."""

    @property
    def fingerprint(self) -> str:
        """Hexadecimal hash of the documents: it changes with the content."""

    @property
    def total(self) -> int | None:
        """Number of documents; None: the number is not known before the first complete pass."""

    @property
    def size(self) -> int:
        """Number of bytes to read, compressed as they are on disk."""

    def documents(self, progress: Progress | None = None) -> Iterator[Document]:
        """Read all documents in the source's order, one at a time. Every call starts at the beginning.

        Args:
            progress: Called with the bytes read so far, every few hundred kilobytes and at the end.

        Raises:
            InputError: An entry cannot be read, and `skip_bad` is not set.
        """

    @property
    def encodings(self) -> Encodings | None:
        """Facts about documents that were encoded beforehand and carry their `Document.encoding`; None: the documents are not encoded."""
        return None

    @property
    def index(self) -> IndexSource | None:
        """The index that this source reads; None: this source is no index."""
        return None

    @property
    def origin(self) -> dict[str, str]:
        """What the lineage records about the source: name and fingerprint, and for an index how and how far it was read."""
        return {"name": self.name, "fingerprint": self.fingerprint}

    def identities(self) -> Iterator[list[str]] | None:
        """Yield pages of the ids of all documents, if `documents` reads only the changed ones; None: `documents` reads all."""
        return None

    def refuse_encodings(self, reason: str, advice: str) -> None:
        """Raise an error if the documents of the source were encoded beforehand.

        Raises:
            UsageError: The documents were encoded beforehand; the message ends with `reason`.
        """
        if self.encodings is not None:
            raise UsageError(f"{self.name} is encoded already, and {reason}.", advice)


class Derived(Source):
    """A source that is made from another source and has the same name, size and fingerprint, unless a subclass overrides them.

    Its texts differ from those of the other source, so it has no encodings.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.ENTRY, self.trial, self.skipped = source.ENTRY, source.trial, source.skipped
        self.decimal_commas = source.decimal_commas

    @property
    def name(self) -> str:
        """Name of the underlying source."""
        return self._source.name

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the underlying source."""
        return self._source.fingerprint

    @property
    def total(self) -> int | None:
        """Number of documents of the underlying source."""
        return self._source.total

    @property
    def size(self) -> int:
        """Size of the underlying source, in bytes."""
        return self._source.size

    @property
    def index(self) -> IndexSource | None:
        """The index that the underlying source reads."""
        return self._source.index

    @property
    def origin(self) -> dict[str, str]:
        """The origin of the underlying source, but with the name and fingerprint of this source."""
        return {**self._source.origin, **super().origin}

    def identities(self) -> Iterator[list[str]] | None:
        """Return the pages of ids of the underlying source, or None, as `Source.identities` does."""
        return self._source.identities()


class NotAnIndex(UsageError):
    """Raised if the server at an http(s) address is no search engine: the address is then taken for that of a file."""


class OpenedSource(Source, Protocol):
    """A source that a reader opened, with remarks about its format."""

    @property
    def remarks(self) -> list[str]:
        """Sentences about how the source was understood and what was ignored: columns, files of other types."""
        return []

    @property
    def resumed(self) -> str:
        """Time at which an earlier command began the snapshot that is read on (ISO 8601); "": no snapshot is read on."""
        return ""

    def release(self) -> None:
        """Delete the snapshot that is kept so that a stopped build can be resumed."""
        return


class Dataset(Source, Protocol):
    """A corpus with queries and judgements."""

    @property
    def split(self) -> str:
        """Name of the split whose judgements are used."""

    @property
    def relevant_from(self) -> int:
        """The lowest grade that counts as relevant for measures without grades (MRR, recall)."""

    @property
    def notes(self) -> list[str]:
        """Sentences about judgements that were left out, and why."""

    def splits(self) -> list[str]:
        """Names of all splits."""

    def queries(self) -> list[Query]:
        """The queries with at least one judgement in the split, in the file's order."""

    def qrels(self) -> Qrels:
        """The judgements of the queries in `queries`, grades of 0 included."""


class Reader(Protocol):
    """The object that an entry point in the group `termweave.readers` names: usually the source class itself.

    Attributes:
        LABEL: Name of the format for messages, with its article: "a Parquet file".
        MAPPED: Whether entries have named fields, so that `Fields` can be used.
        SEEKS: Whether the reader jumps in the file: a compressed file is then decompressed to disk first.
        SEPARATES: Whether entries have cells that can be lists, so that `Reading.list_separator` can be used.
        JUDGED: Whether the reader opens data sets, too, and is a `DatasetReader`.
    """

    LABEL: ClassVar[str]
    MAPPED: ClassVar[bool] = False
    SEEKS: ClassVar[bool] = False
    SEPARATES: ClassVar[bool] = False
    JUDGED: ClassVar[bool] = False

    @classmethod
    def recognises(cls, spec: str) -> bool:
        """Whether this reader can read a path or name. It looks at the beginning of the content only.

        Raises:
            TermweaveError: No reader could read the file: it may not be opened, or is compressed and damaged.
        """

    @classmethod
    def open(cls, spec: str, reading: Reading) -> OpenedSource:
        """Open the source. Errors in single entries are raised by `documents` only.

        Args:
            spec: Path or name that `recognises` accepted.
            reading: Options for reading.

        Raises:
            UsageError: A named field does not exist, or a package for this format is not installed.
            InputError: The file is damaged so that nothing can be read.
        """


class DatasetReader(Reader, Protocol):
    """A reader of data sets."""

    @classmethod
    def open_dataset(cls, spec: str, split: str) -> Dataset:
        """Open the data set with one split.

        Raises:
            UsageError: The split does not exist.
        """
