"""Checks an ONNX graph before ONNX Runtime opens it: which files the graph names, and whose operators it calls.

A graph may keep tensors in other files ("external data") and name them by a path that ONNX Runtime reads. ONNX Runtime before 1.27
follows paths out of the model's folder for some kinds of tensor. This check reads only the fields that matter, for every version
and before anything is allocated. The base install has no package `onnx`, and a full parse would copy every tensor.

Every byte belongs to one message and is read at most once, so the time is linear in the size of the file; the number of fields is
limited, too. If a field can be read in two ways, the check considers both.
"""

from __future__ import annotations

from mmap import ACCESS_READ, mmap
from typing import TYPE_CHECKING

from termweave.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Message of onnx.proto -> field number -> the message in that field; only messages that can contain nodes or tensors.
_MESSAGES = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 15: "sparse tensor"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse tensor", 23: "sparse tensor"},
    "sparse tensor": {1: "tensor", 2: "tensor"},
    "tensor": {13: "external data"},
    "external data": {},
}
#: Message -> field number -> the meaning of the text in that field.
_TEXTS = {"node": {7: "domain"}, "external data": {1: "key", 2: "value"}}
#: Domains of the operators that ONNX Runtime brings itself; int8 graphs use com.microsoft.
_DOMAINS = {b"", b"ai.onnx", b"com.microsoft"}
#: The most fields that are read of one file; the shipped graphs have some thousands.
_MOST_FIELDS = 2_000_000
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class _NotAGraph(Exception):
    """The bytes are not an ONNX model."""


def check(graph: Path) -> None:
    """Refuse a graph that names files outside its folder, or operators that ONNX Runtime does not bring.

    Raises:
        ModelError: The graph names such a file or operator, or is not an ONNX graph; the message says which.
    """
    try:
        with graph.open("rb") as stream, mmap(stream.fileno(), 0, access=ACCESS_READ) as data:
            for kind, text in _texts(data):
                if kind == "domain" and text not in _DOMAINS:
                    raise ModelError(
                        f"{graph} calls operators of {_shown(text)}, which ONNX Runtime does not bring.",
                        "Export the model again with `termweave export`, which writes standard operators only.",
                    )
                if kind == "location" and not _beside(graph, text):
                    raise ModelError(
                        f"{graph} keeps tensors in {_shown(text)}, which is not a file of its folder.",
                        "Take the model from somebody you trust; a model has all of its files in one folder.",
                    )
    except (_NotAGraph, ValueError) as error:  # ValueError: an empty file
        raise ModelError(
            f"{graph} cannot be run: it is not an ONNX graph.", "Export it again with `termweave export`."
        ) from error


def _beside(graph: Path, location: bytes) -> bool:
    """Whether external data lies beside the graph: under a plain name, in a file that is not a link to another folder.

    In the hub's cache graph and data are both links into one folder of blobs, so the data may also lie beside the graph's target.
    Requiring a plain name also excludes the markers by which ONNX Runtime addresses memory: these contain slashes.
    """
    try:
        name = location.decode()
    except UnicodeDecodeError:
        return False
    if not name or name in {".", ".."} or set(name) & set("/\\:\0"):
        return False
    file = (graph.parent / name).resolve()
    return file.is_file() and file.parent in {graph.parent.resolve(), graph.resolve().parent}


def _texts(data: mmap) -> Iterator[tuple[str, bytes]]:
    """The domains of all nodes and the locations of all external data, including subgraphs, functions and sparse tensors."""
    waiting = [("model", 0, len(data))]
    fields = 0
    while waiting:
        message, start, end = waiting.pop()
        texts: list[tuple[str, bytes]] = []
        for number, first, last in _fields(data, start, end):
            fields += 1
            if fields > _MOST_FIELDS:
                raise _NotAGraph
            if (inner := _MESSAGES[message].get(number)) is not None:
                waiting.append((inner, first, last))
            elif (kind := _TEXTS.get(message, {}).get(number)) is not None:
                texts.append((kind, data[first:last]))
        if message == "external data":  # readers take the last of two keys; here one "location" is enough
            if ("key", b"location") in texts:
                yield from (("location", text) for kind, text in texts if kind == "value")
        else:
            yield from texts


def _fields(data: mmap, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """The fields of one protobuf message: the field number, and where its content begins and ends (empty for a number).

    Raises:
        _NotAGraph: The message is malformed, or written as no protobuf library writes it.
    """
    while start < end:
        tag, start = _varint(data, start, end)
        if tag > 0xFFFFFFFF or tag < 8:  # some readers would drop the upper bits and see another field
            raise _NotAGraph
        number, kind = tag >> 3, tag & 7
        first = start
        if kind == _VARINT:
            _, start = _varint(data, start, end)
            first = start
        elif kind == _BYTES:
            length, first = _varint(data, start, end)
            start = first + length
        elif kind in {_FIXED64, _FIXED32}:
            first = start = start + (8 if kind == _FIXED64 else 4)
        else:  # a group: onnx.proto has none
            raise _NotAGraph
        if start > end:
            raise _NotAGraph
        yield number, first, start


def _varint(data: mmap, start: int, end: int) -> tuple[int, int]:
    """The variable-length number at a position, and the position behind it."""
    value = 0
    for place in range(start, min(end, start + 10)):
        byte = data[place]
        value |= (byte & 0x7F) << 7 * (place - start)
        if byte < 0x80:
            return value, place + 1
    raise _NotAGraph


def _shown(text: bytes) -> str:
    """A text of the graph for an error message: on one line and short."""
    return repr(text[:100].decode(errors="replace"))
