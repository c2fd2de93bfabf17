"""Hostile graphs are refused, by every ONNX Runtime that pyproject.toml permits: no files from elsewhere, no operators of others."""

import shutil
import time
from dataclasses import replace

import numpy as np
import pytest

from termweave.encoders.kinds import read_folder
from termweave.encoders.model_lookup import resolve
from termweave.encoders.onnx.runtime import GraphInput, OnnxModel, open_session
from termweave.errors import ModelError

SHIPPED = resolve("shipped")


@pytest.fixture
def onnx():
    return pytest.importorskip("onnx", reason="making graphs needs the extra [train]")


def external(onnx, kind, location):
    """A model whose output is read from an external file, by one of the ways in which a graph can say so."""
    proto, make = onnx.TensorProto, onnx.helper
    tensor = make.make_tensor("w", proto.FLOAT, [2], b"12345678", raw=True)
    tensor.ClearField("raw_data")
    tensor.data_location = proto.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", "8")):
        tensor.external_data.add(key=key, value=value)
    sparse = make.make_sparse_tensor(tensor, make.make_tensor("i", proto.INT64, [2], [0, 1]), [2])
    output = make.make_tensor_value_info("y", proto.FLOAT, [2])
    constant = make.make_node("Constant", [], ["y"], value=tensor)
    inner = make.make_graph([constant], "inner", [], [output])
    truth = make.make_node("Constant", [], ["c"], value=make.make_tensor("c", proto.BOOL, [], [True]))
    nodes = {
        "constant": [constant],
        "sparse constant": [make.make_node("Constant", [], ["y"], sparse_value=sparse)],
        "subgraph": [truth, make.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)],
    }
    graph = make.make_graph(nodes.get(kind, [make.make_node("Identity", ["w"], ["y"])]), "g", [], [output])
    if kind == "initializer":
        graph.initializer.append(tensor)
    elif kind == "sparse initializer":
        graph.sparse_initializer.append(sparse)
    opsets = [make.make_opsetid("", 17)]
    functions = [make.make_function("", "Own", [], ["y"], [constant], opsets)] if kind == "function" else []
    return make.make_model(graph, opset_imports=opsets, functions=functions, ir_version=8)


KINDS = ["initializer", "sparse initializer", "constant", "sparse constant", "subgraph", "function"]


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_in_files_elsewhere_are_refused(onnx, tmp_path, kind):
    (tmp_path / "secret").write_bytes(b"SECRETSS")
    folder = tmp_path / "model"
    (folder / "*" / "_ORT_MEM_ADDR_").mkdir(parents=True)
    (folder / "*" / "_ORT_MEM_ADDR_" / "*").write_bytes(b"12345678")
    (folder / "link").symlink_to("../secret")
    (folder / "up").symlink_to("..")
    file = folder / "model.onnx"
    for location in ("../secret", str(tmp_path / "secret"), "link", "up/secret", "*/_ORT_MEM_ADDR_/*", "", "..", "gone"):
        file.write_bytes(external(onnx, kind, location).SerializeToString())
        with pytest.raises(ModelError, match=r"model\.onnx cannot be run"):
            open_session(file)
    (folder / "beside").write_bytes(b"12345678")
    file.write_bytes(external(onnx, kind, "beside").SerializeToString())
    if kind in {"initializer", "constant", "subgraph"}:
        (result,) = open_session(file).run(None, {})
        assert result.tobytes() == b"12345678"


def test_operators_of_others_are_refused(onnx, tmp_path):
    (tmp_path / "beside").write_bytes(b"12345678")
    model = external(onnx, "initializer", "beside")
    model.graph.node[0].domain = "somebody.else"
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match=r"cannot be run: .*somebody\.else"):
        open_session(tmp_path / "model.onnx")


def test_a_graph_in_the_hubs_cache_finds_its_data(tmp_path):
    """There the folder holds links into another one, in which the files lie side by side."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "commit"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    for file in (each for each in SHIPPED.iterdir() if each.is_file()):
        shutil.copy(file, blobs / f"blob-of-{file.name}")
        (snapshot / file.name).symlink_to(f"../../blobs/blob-of-{file.name}")
    for precision in ("dequantised", "int8"):
        assert OnnxModel(read_folder(snapshot), threads=1, precision=precision).outputs


#: Nodes from "s", the states of the tokens, to what a graph gives instead of them.
_OTHERS = {
    "one number": lambda make: [make("ReduceMean", ["s"], ["y"], keepdims=0)],
    "twice as many tokens": lambda make: [make("Concat", ["s", "s"], ["y"], axis=1)],
    "texts": lambda make: [make("Cast", ["s"], ["y"], to=8)],
    "a list": lambda make: [make("SequenceConstruct", ["s"], ["y"])],
}


@pytest.mark.parametrize("other", _OTHERS)
def test_a_graph_that_gives_something_else_is_refused(onnx, tmp_path, other):
    """A number and an empty list ended in a traceback, and another number of tokens in a wrong vector."""
    make, proto = onnx.helper, onnx.TensorProto
    states = [make.make_node("Cast", ["input_ids"], ["f"], to=proto.FLOAT), make.make_node("Unsqueeze", ["f", "axis"], ["s"])]
    describe = make.make_tensor_sequence_value_info if other == "a list" else make.make_tensor_value_info
    output = describe("y", proto.STRING if other == "texts" else proto.FLOAT, None)
    ids = make.make_tensor_value_info("input_ids", proto.INT64, ["texts", "tokens"])
    axis = make.make_tensor("axis", proto.INT64, [1], [2])
    graph = make.make_graph([*states, *_OTHERS[other](make.make_node)], "g", [ids], [output], [axis])
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    opened = OnnxModel(replace(read_folder(SHIPPED, check=False), graphs={"fp32": tmp_path / "model.onnx"}), precision="fp32")
    for texts in (1, 2):
        with pytest.raises(ModelError, match=r"gives 'y' as .*, where numbers \[1, 4\] should be"):
            opened.start([GraphInput(np.array([2, 5, 7, 3]))] * texts, ["y"])()


def nested(depth):
    """Graphs within attributes of nodes of graphs, each of a few bytes: as deep as wanted."""
    data = b""
    for number in [6, 5, 1] * depth + [7]:  # attribute.g, node.attribute, graph.node, model.graph
        size, length = len(data), b""
        while size > 0x7F:
            length, size = length + bytes([size & 0x7F | 0x80]), size >> 7
        data = bytes([number << 3 | 2]) + length + bytes([size]) + data
    return data


def test_what_is_no_graph_is_refused_soon(tmp_path):
    file = tmp_path / "model.onnx"
    for content in (nested(5_000), b"\x08\x01" * 20_000_000, b"", b"no graph", b"\x3a\xff\xff\xff\xff\x0f"):
        file.write_bytes(content)
        started = time.process_time()
        with pytest.raises(ModelError, match="cannot be run"):
            open_session(file)
        assert time.process_time() - started < 30
