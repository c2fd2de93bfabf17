"""Graphs are checked before ONNX Runtime opens them: no files from elsewhere, no operators of others, no endless work."""

import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from termweave.encoders import load
from termweave.encoders.layouts import read_folder
from termweave.encoders.manifest import GRAPHS, digests, write_manifest
from termweave.encoders.model_lookup import resolve
from termweave.encoders.onnx import graph_check
from termweave.encoders.onnx.runtime import OnnxModel
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
    identity = make.make_node("Identity", ["w"], ["y"])
    constant = make.make_node("Constant", [], ["y"], value=tensor)
    graph = make.make_graph([identity], "g", [], [output])
    functions = []
    if kind == "initializer":
        graph.initializer.append(tensor)
    elif kind == "sparse initializer":
        graph.sparse_initializer.append(sparse)
    elif kind == "constant":
        graph = make.make_graph([constant], "g", [], [output])
    elif kind == "sparse constant":
        graph = make.make_graph([make.make_node("Constant", [], ["y"], sparse_value=sparse)], "g", [], [output])
    elif kind == "subgraph":
        inner = make.make_graph([constant], "inner", [], [output])
        truth = make.make_node("Constant", [], ["c"], value=make.make_tensor("c", proto.BOOL, [], [True]))
        branches = make.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
        graph = make.make_graph([truth, branches], "g", [], [output])
    elif kind == "function":
        functions.append(make.make_function("", "Own", [], ["y"], [constant], [make.make_opsetid("", 17)]))
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], functions=functions)
    model.ir_version = 8
    return model


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
        with pytest.raises(ModelError, match="not a file of its folder"):
            graph_check.check(file)
    (folder / "beside").write_bytes(b"12345678")
    file.write_bytes(external(onnx, kind, "beside").SerializeToString())
    graph_check.check(file)


def test_a_model_folder_with_such_a_graph_is_not_opened(onnx, tmp_path):
    """The whole way: digests are those of the folder, which its maker writes."""
    folder = Path(shutil.copytree(SHIPPED, tmp_path / "copy"))
    model = onnx.load(folder / GRAPHS["int8"])
    (tmp_path / "secret").write_bytes(b"SECRETSS")
    model.graph.initializer.extend(external(onnx, "initializer", "../secret").graph.initializer)
    (folder / GRAPHS["int8"]).write_bytes(model.SerializeToString())
    write_manifest(folder, replace(read_folder(folder, check=False).manifest, files=digests(folder)))
    with pytest.raises(ModelError, match=r"keeps tensors in '\.\./secret', which is not a file of its folder"):
        load(str(folder)).encode(["a"], kind="query")


@pytest.mark.parametrize("inside", [False, True], ids=["node", "subgraph"])
def test_operators_of_others_are_refused(onnx, tmp_path, inside):
    model = external(onnx, "subgraph" if inside else "constant", "model.onnx")
    node = model.graph.node[-1].attribute[0].g.node[0] if inside else model.graph.node[0]
    node.domain = "somebody.else"
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match=r"operators of 'somebody\.else'"):
        graph_check.check(tmp_path / "model.onnx")


@pytest.mark.parametrize("name", sorted(file.name for file in SHIPPED.glob("*.onnx")))
def test_what_is_read_is_what_onnx_reads(onnx, name):
    data = (SHIPPED / name).read_bytes()
    model = onnx.load(SHIPPED / name, load_external_data=False)
    expected = [each.value for tensor in model.graph.initializer for each in tensor.external_data if each.key == "location"]
    texts = list(graph_check._texts(data))
    assert sorted(text.decode() for kind, text in texts if kind == "location") == sorted(expected)
    domains = [node.domain for node in model.graph.node if node.domain]
    assert sorted(text.decode() for kind, text in texts if kind == "domain" and text) == sorted(domains)


def test_a_graph_in_the_hubs_cache_finds_its_data(tmp_path):
    """There the folder holds links into another one, in which the files lie side by side."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "commit"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    for file in (each for each in SHIPPED.iterdir() if each.is_file()):
        shutil.copy(file, blobs / f"blob-of-{file.name}")
        (snapshot / file.name).symlink_to(f"../../blobs/blob-of-{file.name}")
    graph_check.check(snapshot / GRAPHS["dequantised"])
    assert OnnxModel(read_folder(snapshot), threads=1, precision="int8").outputs


def test_bytes_that_only_some_readers_take_for_a_field(onnx, tmp_path):
    """A tag with bits above the 32nd, which a reader of 32 bits drops: it would see a graph where others see nothing."""
    graph = external(onnx, "initializer", "../secret").graph.SerializeToString()
    length = bytes([len(graph) & 0x7F | 0x80, len(graph) >> 7])
    wide = bytes([7 << 3 | 2 | 0x80, 0x80, 0x80, 0x80, 0x10])  # field 7, and bit 32
    (tmp_path / "model.onnx").write_bytes(wide + length + graph)
    with pytest.raises(ModelError, match="is not an ONNX graph"):
        graph_check.check(tmp_path / "model.onnx")


@pytest.mark.parametrize(
    "data",
    [b"", b"no graph", b"\x3a\xff\xff\xff\xff\x0f", b"\x3b\x3c", b"\x80" * 20, b"\x02\x00", b"\x39\x00"],
    ids=["empty", "text", "longer than the file", "group", "endless number", "field 0", "cut short"],
)
def test_what_is_no_graph(tmp_path, data):
    (tmp_path / "model.onnx").write_bytes(data)
    with pytest.raises(ModelError, match="cannot be run: it is not an ONNX graph"):
        graph_check.check(tmp_path / "model.onnx")


def nested(depth):
    """Graphs within attributes of nodes of graphs, each of a few bytes: as deep as wanted."""
    data = b""
    for number in [6, 5, 1] * depth + [7]:  # attribute.g, node.attribute, graph.node, model.graph
        size, length = len(data), b""
        while size > 0x7F:
            length, size = length + bytes([size & 0x7F | 0x80]), size >> 7
        data = bytes([number << 3 | 2]) + length + bytes([size]) + data
    return data


def test_hostile_files_end_soon(tmp_path):
    """Depth does not recurse and is not read again at each level; many fields end at the limit."""
    file = tmp_path / "model.onnx"
    file.write_bytes(nested(5_000))
    graph_check.check(file)
    file.write_bytes(b"\x08\x01" * 20_000_000)
    started = time.process_time()
    with pytest.raises(ModelError, match="is not an ONNX graph"):
        graph_check.check(file)
    assert time.process_time() - started < 30
