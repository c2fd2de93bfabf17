"""Model folders: the description ``termweave.json``, the files, and the check that no file is missing or altered.

A folder holds ``termweave.json`` (`Manifest`), ``tokenizer.json``, ``config.json``, one or more graphs (`GRAPHS`) and ``README.md``.
A weights model may add ``statistics.bin``, a default table of document frequencies for texts without a corpus.
A folder in the layout of sentence-transformers has no ``termweave.json``; `encoders.kinds.sentence_layout` derives its description.
How a name leads to a folder is decided in `encoders.model_lookup`.

There are two kinds of hash. ``hash`` names the model: all its graphs share it, so that an index written on a GPU can be searched
from a laptop. ``files`` holds a digest of every file that decides what the model computes; reading a folder checks these digests.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, fields
from functools import cached_property
from hashlib import blake2b, file_digest
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import orjson

from termweave.errors import ModelError
from termweave.statistics import CorpusStatistics
from termweave.support import atomic_files
from termweave.support.messages import is_hash

SCHEMA = 1
MANIFEST = "termweave.json"
TOKENIZER = "tokenizer.json"
STATISTICS = "statistics.bin"
#: The weights of a transformer as transformers saves them.
WEIGHTS = "model.safetensors"
#: What training adds to a transformer.
HEADS = "heads.safetensors"
#: The graph of a folder in the layout of sentence-transformers.
SENTENCE_GRAPH = "onnx/model.onnx"
#: Precision -> the file that holds the graph in this precision.
GRAPHS = {"int8": "model.int8.onnx", "fp32": "model.onnx", "dequantised": "model.dequantised.onnx"}
#: Where a graph names a file of tensors, in the bytes of protobuf: the key "location", then the length of the name (up to 16,383).
_LOCATION = re.compile(rb"\n\x08location\x12([\x80-\xff]?[\x00-\x7f])")


@dataclass(frozen=True)
class Manifest:
    """The content of ``termweave.json``: what a model is and how it was made.

    Attributes:
        name: The model's name, as people call it.
        kind: How the model computes: a key of `encoders.kinds.KINDS`, such as "anchored" or "dense".
        outputs: The outputs of the model: "weights" (term weights), "dense" (vectors) or both; "scores" for a ranker.
        hash: 16 hexadecimal digits; the same for every precision of one model.
        max_length: The most tokens the model reads of one text, special tokens included.
        dimension: Length of the model's vectors; None for a model without vectors.
        pooling: The mode in which the vector is made of the states of the tokens; modes whose vectors are concatenated are joined by "+".
        terms: The units that have weights: "word" means whole, stemmed words.
        analysis: Id of the analysis that makes the terms (`encoders.analysis`); None for a model without weights.
        anchor: The formula by which a learned weight is multiplied, such as ``{"kind": "bm25", "k1": ..., "b": ...}``.
        heads: Shape of the weight heads (`encoders.models.joint_model.HeadShape`).
        settings: Settings that the kind needs beyond the fields above, such as prompts (`encoders.kinds`).
        quantisation: The method of quantisation, with the figures by which the export compared the graphs with torch.
        training: Data, licences and method of the training.
        metrics: Measures of quality on development and test sets.
        files: File name -> digest. A name may lead into a subfolder: ``1_Pooling/config.json``.
        runtime: The class that runs the graphs, such as `OnnxModel`: its name among the entry points `termweave.encoders`.
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
    settings: dict[str, Any] = field(default_factory=dict)
    quantisation: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    runtime: str = "onnx"

    def __post_init__(self) -> None:
        """Raise TypeError for a field of the wrong type, before it causes an error far from here."""
        tables = [item.name for item in fields(self) if item.default_factory is dict]
        if not isinstance(self.max_length, int) or not all(isinstance(getattr(self, name), dict) for name in tables):
            raise TypeError(f"max_length is a whole number, and {', '.join(tables)} are tables")

    def _check_names(self) -> None:
        """Raise TypeError if the hash or a file name, used as a path, would lead out of its folder. A model in training has no hash yet."""
        if not (isinstance(self.name, str) and is_hash(self.hash) and all(map(is_inside, self.files))):
            raise TypeError("name is a text, hash is made of hexadecimal digits, and files are names of files in the folder")

    def check_dimension_of(self, queries: Manifest) -> None:
        """Check that a query encoder gives vectors as long as those of the document encoder that this manifest describes.

        Raises:
            ModelError: The lengths differ.
        """
        if queries.dimension != self.dimension:
            lengths = f"gives {queries.dimension} numbers, the document encoder {self.name!r} {self.dimension}"
            raise ModelError(f"The query encoder {queries.name!r} {lengths}.", "Name two encoders that were trained together.")

    def to_bytes(self) -> bytes:
        """The JSON text of ``termweave.json``."""
        return orjson.dumps({"schema": SCHEMA, **self.__dict__}, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY)

    @classmethod
    def from_bytes(cls, data: bytes, where: Path) -> Manifest:
        """Read a manifest from the JSON text that `to_bytes` wrote.

        Args:
            data: The content of the file.
            where: The file, for messages.

        Raises:
            ModelError: The content is not a manifest, or has a later schema than this termweave knows.
        """
        try:
            loaded = orjson.loads(data)
            schema = loaded.pop("schema")
            if schema != SCHEMA:
                raise ModelError(f"{where} has schema {schema}, this termweave reads {SCHEMA}.", "Update termweave.")
            loaded["outputs"] = tuple(loaded["outputs"])
            manifest = cls(**loaded)
            manifest._check_names()
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ModelError(f"{where} is not the description of a model: {error}.", "Copy the folder again.") from error
        return manifest


@dataclass(frozen=True)
class ModelFolder:
    """A model folder that was read.

    Attributes:
        path: The folder.
        manifest: The description in the folder's ``termweave.json``, or one derived from the layout of sentence-transformers.
        graphs: Precision -> file of the graph, for graphs that are not named as in `GRAPHS` or lie outside the folder.
    """

    path: Path
    manifest: Manifest
    graphs: dict[str, Path] = field(default_factory=dict)
    identities: dict[str, tuple[int, ...]] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def read(cls, path: Path, *, check: bool = True) -> ModelFolder:
        """Read a folder that has a ``termweave.json``; `encoders.kinds.read_folder` reads any other, too.

        Args:
            path: The folder.
            check: Compare every file with its digest (15 ms for the shipped model).

        Raises:
            ModelError: A file is missing or altered; the message says which.
        """
        if not (path / MANIFEST).is_file():
            raise ModelError(f"{path} is not a model folder: it has no {MANIFEST}.", "Copy the whole folder again.")
        manifest = Manifest.from_bytes((path / MANIFEST).read_bytes(), path / MANIFEST)
        folder = cls(path, manifest)
        for name, expected in manifest.files.items() if check else ():
            file = path / name
            folder.identities[name] = identity(file)
            if not (present := file.is_file()) or digest(file) != expected:
                problem = f"was altered: {file} is not what was exported" if present else f"is incomplete: {file} is missing"
                raise ModelError(f"The model {manifest.name!r} {problem}.", "Copy it again, or run `termweave export` on it.")
        return folder

    def confirm(self) -> None:
        """Check that no file was replaced or changed since its digest was compared.

        Raises:
            ModelError: A file was replaced or written to meanwhile; the message names it.
        """
        for name, checked in self.identities.items():
            if identity(self.path / name) != checked:
                raise ModelError(f"The model {self.manifest.name!r} changed while it was opened: {self.path / name}.", "Retry.")

    def graph(self, precision: str) -> Path | None:
        """The file of the graph in a precision (a key of `GRAPHS`); None: the folder has no graph in this precision."""
        if precision in self.graphs:
            return self.graphs[precision]
        file = self.path / GRAPHS[precision]
        return file if file.name in self.manifest.files and file.is_file() else None

    @property
    def saturates(self) -> bool:
        """Whether the outputs of the graph that a CPU runs depend on the processor, as with int8 weights not quantised by `onnx.quantisation`."""
        graph = self.graph("int8") or self.graph("fp32")
        if graph is None or self.manifest.quantisation.get("saturates") is False or not graph.stat().st_size:
            return False
        with graph.open("rb") as stream, mmap(stream.fileno(), 0, access=ACCESS_READ) as content:
            return content.find(b"MatMulInteger") >= 0

    @cached_property
    def statistics(self) -> CorpusStatistics | None:
        """The folder's default table of document frequencies; None: the folder has no such table."""
        file = self.path / STATISTICS
        if not file.is_file():
            return None
        try:
            return CorpusStatistics.from_bytes(file.read_bytes())
        except ValueError as error:
            raise ModelError(f"{file} cannot be read: {error}.", "Make the folder again.") from error


def is_inside(name: str) -> bool:
    """Whether a name is that of a file in a folder or in one of its subfolders: no way up, no root, no drive.

    Example:
        >>> [is_inside(name) for name in ("model.onnx", "1_Pooling/config.json", "../x", "/x", "a//b", "C:x")]
        [True, True, False, False, False, False]
    """
    parts = name.split("/")
    return not any(part in {"", ".", ".."} or set(part) & set("\\:\0") for part in parts)


def digest(file: Path) -> str:
    """32 hexadecimal digits over the bytes of a file."""
    with file.open("rb") as stream:
        return file_digest(stream, lambda: blake2b(digest_size=16)).hexdigest()


def weight_files(home: Path) -> list[Path]:
    """The files that hold a transformer's weights: ``model.safetensors``, or its index and the parts that the index names; []: none.

    Raises:
        ModelError: The index is damaged, or a part is missing.
    """
    if (home / WEIGHTS).is_file():
        return [home / WEIGHTS]
    index = home / f"{WEIGHTS}.index.json"
    if not index.is_file():
        return []
    try:
        names = sorted({str(name) for name in json.loads(index.read_bytes())["weight_map"].values()})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError(f"{index} does not list the parts of the weights: {error}.", "Copy the model folder again.") from error
    for name in names:
        if "/" in name or not is_inside(name):
            raise ModelError(f"{index} names the file {name!r}, which is not in its folder.", "Copy the model folder again.")
        if not (home / name).is_file():
            raise ModelError(f"The model is incomplete: {home / name} is missing.", "Copy the model folder again.")
    return [index, *(home / name for name in names)]


def graph_files(graph: Path) -> list[Path]:
    """A graph's file, and the files beside it that hold its tensors (ONNX external data). ONNX Runtime refuses files elsewhere.

    Raises:
        ModelError: A file is missing.
    """
    names: set[str] = set()
    if graph.stat().st_size:
        with graph.open("rb") as stream, mmap(stream.fileno(), 0, access=ACCESS_READ) as content:
            for match in _LOCATION.finditer(content):
                size = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(match[1]))
                names.add(content[match.end() : match.end() + size].decode(errors="replace"))
    files = [graph.parent / name for name in sorted(names) if is_inside(name)]
    if missing := [file for file in files if not file.is_file()]:
        raise ModelError(f"The model is incomplete: {missing[0]} is missing.", "Copy the model folder again.")
    return [graph, *files]


def identity(file: Path) -> tuple[int, ...]:
    """Device, inode, size and times of a file, which change if the file is replaced or written to; (): there is no such file."""
    try:
        state = file.stat()
    except OSError:
        return ()
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns


def digests(path: Path) -> dict[str, str]:
    """File name -> digest, of the files in a folder that decide what the model computes."""
    names = (TOKENIZER, "config.json", *GRAPHS.values(), STATISTICS)
    return {name: digest(path / name) for name in names if (path / name).is_file()}


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Write ``termweave.json`` in one step: after a crash the file is either complete or absent."""
    atomic_files.write(path / MANIFEST, manifest.to_bytes() + b"\n")
