"""Model folders: finding one by name, reading it, and noticing when it is incomplete or altered.

A folder holds ``termweave.json`` (this module's `Manifest`), ``tokenizer.json``, ``config.json``, one or more of the graphs in
`GRAPHS`, ``README.md``; a weights model may bring ``statistics.bin``, a default table of document frequencies for
text without a corpus. Nothing is downloaded unless a name begins with ``hf:`` (hub.py).

Two kinds of hash, on purpose: ``hash`` names the model (one for all its graphs, so that an index written on a GPU
can be searched from a laptop); ``files`` holds a digest of every file that matters, and reading checks them.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field, fields
from hashlib import blake2b
from pathlib import Path
from typing import Any

from termweave import atomic, places
from termweave.errors import ModelError, UsageError
from termweave.statistics import CorpusStatistics

SCHEMA = 1
MANIFEST = "termweave.json"
TOKENIZER = "tokenizer.json"
STATISTICS = "statistics.bin"
#: Which file holds the graph in which precision.
GRAPHS = {"int8": "model.int8.onnx", "fp32": "model.onnx", "dequantised": "model.dequantised.onnx"}
#: What ``weights=None, dense=None`` loads.
DEFAULT = "shipped"
#: What an output's name means on the command line when it is switched off.
NONE = ("", "none")


@dataclass(frozen=True)
class Manifest:
    """``termweave.json``: what a model is and how it was made.

    Attributes:
        name: What people call it.
        kind: The module in `encoders.models` that made it, such as "anchored".
        outputs: Of "weights" and "dense", those it has.
        hash: 16 hexadecimal digits; the same for every precision of the same model.
        max_length: Word-pieces it sees, [CLS] and [SEP] included.
        dimension: Length of its vector, where it has one.
        pooling: How the vector is made of the last states.
        terms: "word": weights are for whole, stemmed words.
        analysis: Id of the analysis (`encoders.analysis`).
        anchor: ``{"kind": "bm25", "k1": ..., "b": ...}``.
        heads: Shape of the weight heads (`encoders.models.anchored.HeadShape`).
        quantisation: What was quantised and how, with the parity figures of the export.
        training: Data, licences and method.
        metrics: Figures on development and test sets.
        files: File name -> digest.
        runtime: What runs the graphs: a name among the entry points `termweave.encoders`, of classes like `encoders.runtime.OnnxModel`.
    """

    name: str
    kind: str
    outputs: tuple[str, ...]
    hash: str
    max_length: int
    dimension: int | None = None
    pooling: str = "mean"
    terms: str = "word"
    analysis: str | None = None
    anchor: dict[str, Any] = field(default_factory=dict)
    heads: dict[str, int] = field(default_factory=dict)
    quantisation: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    runtime: str = "onnx"

    def __post_init__(self) -> None:
        """Raise TypeError for what would fail far from here."""
        tables = [each.name for each in fields(self) if each.default_factory is dict]
        if not isinstance(self.max_length, int) or not all(isinstance(getattr(self, name), dict) for name in tables):
            raise TypeError(f"max_length is a whole number, and {', '.join(tables)} are tables")

    def to_bytes(self) -> bytes:
        """As it stands in the folder."""
        import orjson  # noqa: PLC0415 - only when a model is opened

        return orjson.dumps({"schema": SCHEMA, **self.__dict__}, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY)

    @classmethod
    def from_bytes(cls, data: bytes, where: Path) -> Manifest:
        """The inverse of `to_bytes`.

        Raises:
            ModelError: Not a manifest, or one of a later schema.
        """
        import orjson  # noqa: PLC0415

        try:
            loaded = orjson.loads(data)
            schema = loaded.pop("schema")
            if schema != SCHEMA:
                raise ModelError(
                    f"{where} has schema {schema}, this termweave reads {SCHEMA}.", "Update termweave, or make the model again."
                )
            loaded["outputs"] = tuple(loaded["outputs"])
            return cls(**loaded)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ModelError(
                f"{where} is not the description of a model: {error}.", "Copy the folder again, or train it anew."
            ) from error


@dataclass(frozen=True)
class ModelFolder:
    """A model folder that was read and, unless said otherwise, checked."""

    path: Path
    manifest: Manifest

    @classmethod
    def read(cls, path: Path, *, check: bool = True) -> ModelFolder:
        """Read a folder.

        Args:
            path: The folder.
            check: Compare every file with its digest (15 ms for the shipped model).

        Raises:
            ModelError: A file is missing or altered; the message names it.
        """
        if not (path / MANIFEST).is_file():
            if (path / "config.json").is_file():
                raise ModelError(
                    f"{path} is a transformers model, not yet a termweave model: {MANIFEST} is missing.",
                    "`termweave train` makes one of it.",
                )
            raise ModelError(
                f"{path} is not a model folder: {MANIFEST} is missing.", "Give the folder that training or export wrote."
            )
        manifest = Manifest.from_bytes((path / MANIFEST).read_bytes(), path / MANIFEST)
        folder = cls(path, manifest)
        if check:
            folder.check()
        return folder

    def check(self) -> None:
        """Compare every file with its digest.

        Raises:
            ModelError: A file is missing or altered; the message names it.
        """
        for name, expected in self.manifest.files.items():
            file = self.path / name
            if not file.is_file():
                raise ModelError(
                    f"The model {self.manifest.name!r} is incomplete: {file} is missing.",
                    "Copy the whole folder again, or run `termweave export` on it.",
                )
            if digest(file) != expected:
                raise ModelError(
                    f"The model {self.manifest.name!r} was altered: {file} is not the file that was exported.",
                    "Copy the folder again, or run `termweave export` on it.",
                )

    def graph(self, precision: str) -> Path | None:
        """The graph in a precision (a key of `GRAPHS`), where the folder has it."""
        file = self.path / GRAPHS[precision]
        return file if file.name in self.manifest.files and file.is_file() else None

    def statistics(self) -> CorpusStatistics | None:
        """The default table of document frequencies, where the folder has one."""
        file = self.path / STATISTICS
        if not file.is_file():
            return None
        try:
            return CorpusStatistics.from_bytes(file.read_bytes())
        except ValueError as error:
            raise ModelError(f"{file} cannot be read: {error}.", "Make the folder again.") from error


def digest(file: Path) -> str:
    """32 hexadecimal digits over the bytes of a file."""
    with file.open("rb") as stream:
        state = blake2b(digest_size=16)
        while chunk := stream.read(1 << 20):
            state.update(chunk)
    return state.hexdigest()


def digests(path: Path) -> dict[str, str]:
    """Digests of the files in a folder that decide what a model computes."""
    names = (TOKENIZER, "config.json", *GRAPHS.values(), STATISTICS)
    return {name: digest(path / name) for name in names if (path / name).is_file()}


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Write ``termweave.json`` in one step: it is whole or not there."""
    atomic.write(path / MANIFEST, manifest.to_bytes() + b"\n")


def resolve(name: str | Path) -> Path:
    """The folder that a model's name means.

    A name is tried as a path, as "shipped" or the name of a folder shipped with termweave, as a folder in
    `places.models()`, and as an importable package that holds a model folder (itself, or in ``model/``). What begins with
    ``hf:`` is a model on the Hugging Face hub (`hub.fetch`).

    Raises:
        UsageError: None of these; the message lists what there is.
        ModelError: It is on the hub, and cannot be fetched.
    """
    from termweave.encoders import hub  # noqa: PLC0415 - it knows the names of a folder's files from here

    name = str(name)
    if hub.named(name):
        return hub.fetch(name)
    if (path := Path(name).expanduser()).is_dir():
        return path.resolve()
    if any(mark in name for mark in "/\\"):
        raise UsageError(f"There is no model folder {name!r}.", "Give a folder that training or export wrote.")
    shipped = _shipped()
    if name == DEFAULT and shipped:
        return shipped[0]
    for candidate in (*(each for each in shipped if each.name == name), places.models() / name):
        if (candidate / MANIFEST).is_file():
            return candidate
    if (found := _package(name)) is not None:
        return found
    known = [DEFAULT, *(each.name for each in shipped), *_in_models()]
    raise UsageError(f"There is no model named {name!r}.", f"Known: {', '.join(known)}; or give a folder.")


def _shipped() -> list[Path]:
    """Model folders inside the package, sorted by name."""
    home = Path(__file__).parent / "shipped"
    return sorted(file.parent for file in home.glob(f"*/{MANIFEST}"))


def _in_models() -> list[str]:
    home = places.models()
    return sorted(file.parent.name for file in home.glob(f"*/{MANIFEST}")) if home.is_dir() else []


def _package(name: str) -> Path | None:
    """The model folder that an installed package ships; the package is found, never run."""
    module = name.replace("-", "_")
    if not module.replace(".", "_").isidentifier():
        return None
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    for home in (spec.submodule_search_locations or ()) if spec else ():
        for folder in (Path(home), Path(home) / "model"):
            if (folder / MANIFEST).is_file():
                return folder
    return None
