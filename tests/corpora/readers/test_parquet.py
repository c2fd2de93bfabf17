"""Parquet: what values become, which columns are what, damage, and pyarrow that is not there."""

import math
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest

from termweave.corpora import open_source
from termweave.errors import InputError, UsageError
from tests.corpora.files import read

pa = pytest.importorskip("pyarrow", reason="the extra 'parquet' is not installed")
pq = pytest.importorskip("pyarrow.parquet")


def write(folder, columns, name="table.parquet", **options):
    pq.write_table(columns if isinstance(columns, pa.Table) else pa.table(columns), folder / name, **options)
    return folder / name


def test_ids_titles_and_texts(tmp_path):
    path = write(tmp_path, {"docid": [7, 2**63 - 1], "title": ["T", None], "body": ["a", "nul \0"], "year": [2020, None]})
    assert read(path) == [("7", "T", "a", {"year": 2020}), (str(2**63 - 1), "", "nul \0", {"year": None})]
    assert open_source(path).remarks == [f"{path}: id = 'docid'; title = 'title'; text = 'body'; metadata = 'year'."]
    assert read(path, id_field="year", text_fields=["title", "body"], skip_bad=True) == [("2020", "", "T\na", {"docid": 7})]
    assert read(write(tmp_path, {"text": ["a", "b"]})) == [("1", "", "a", {}), ("2", "", "b", {})]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (pa.array([datetime(2020, 1, 2, 3, 4, tzinfo=UTC)]), "2020-01-02T03:04:00+00:00"),
        (pa.array(["1066-10-14"]).cast(pa.timestamp("s")), "1066-10-14T00:00:00"),
        (pa.array([0], pa.timestamp("us", "America/New_York")), "1970-01-01T00:00:00+00:00"),
        (pa.array([1_577_934_240_000_000_999], pa.timestamp("ns")), "2020-01-02T03:04:00"),
        (pa.array([1001], pa.time64("ns")), "00:00:00.000001"),
        (pa.array([1_500_000_001], pa.duration("ns")), 1.5),
        (pa.array([date(2020, 1, 2)]), "2020-01-02"),
        (pa.array([timedelta(minutes=1)]), 60.0),
        (pa.array([Decimal("1.50")]), "1.50"),
        (pa.array([math.nan]), None),
        (pa.array([2**64 - 1], pa.uint64()), 2**64 - 1),
        (pa.array(["x"]).dictionary_encode(), "x"),
        (pa.array([["a", None]]), ["a", None]),
        (pa.array([{"a": {"b": [date(2020, 1, 2)]}}]), {"a": {"b": ["2020-01-02"]}}),
        (pa.array([[("k", 1), ("l", 2)]], pa.map_(pa.string(), pa.int32())), {"k": 1, "l": 2}),
    ],
)
def test_values_become_those_of_json(tmp_path, value, expected):
    ((_, _, _, metadata),) = read(write(tmp_path, {"id": ["1"], "text": ["x"], "value": value}))
    assert metadata == {"value": expected}


def test_binary_columns(tmp_path):
    columns = {"id": pa.array([b"1"]), "text": pa.array(["Größe".encode()]), "image": pa.array([{"bytes": b"\xff", "path": "p"}])}
    columns |= {"raw": [b"\xff"], "packed": pa.array([b"\xff"]).dictionary_encode(), "many": [[b"\xff"]]}
    path = write(tmp_path, columns | {"view": pa.array([b"x"], pa.binary_view())})
    assert read(path) == [("1", "", "Größe", {})]
    _, remark = open_source(path).remarks
    assert "binary columns are left out of the metadata ('image', 'many', 'packed', 'raw', 'view')" in remark


def test_bad_rows_are_named_or_left_out(tmp_path):
    broken = pa.StringArray.from_buffers(3, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0"), pa.py_buffer(b"a\xffc"))
    path = write(tmp_path, {"id": ["1", "2", "3"], "text": broken})
    with pytest.raises(InputError, match=r"table\.parquet, row 2: byte 0xff in a string is not UTF-8"):
        read(path)
    assert [id_ for id_, *_ in read(path, skip_bad=True)] == ["1", "3"]
    path = write(tmp_path, {"id": ["1", "2"], "text": ["a", "b"], "day": pa.array([10**8, 0], pa.date32())})
    assert [id_ for id_, *_ in read(path, skip_bad=True)] == ["2"]
    path = write(tmp_path, {"id": ["1", None, ""], "text": ["a", "b", "c"]})
    source = open_source(path, skip_bad=True)
    assert [each.line for each in source.documents()] == [1]
    assert [str(each).rpartition("parquet, ")[2][:16] for each in source.skipped] == ["row 2: 'id' is n", "row 3: 'id' is e"]


TWICE = pa.Table.from_arrays([pa.array(["1"]), pa.array(["a"]), pa.array(["b"])], names=["id", "text", "text"])


@pytest.mark.parametrize(
    ("columns", "options", "reason"),
    [
        (TWICE, {}, "two columns called 'text'"),
        ({"id": ["1"], "text": [3]}, {}, "row 1: 'text' is 3 where a string should be"),
        ({"name": ["a"], "about": ["b"]}, {}, "has a usual name for the text.*text_fields; columns: 'name', 'about'"),
        ({"id": ["a"], "text": ["b"]}, {"title_field": "name"}, "no column 'name'. Columns: 'id', 'text'"),
    ],
)
def test_columns_that_cannot_be_meant(tmp_path, columns, options, reason):
    with pytest.raises((UsageError, InputError), match=reason):
        read(write(tmp_path, columns), **options)


@pytest.fixture
def small(tmp_path):
    return write(tmp_path, {"id": ["1"], "text": ["a"]})


@pytest.mark.parametrize("keep", [4, 100, -1])
def test_a_file_cut_short_is_named(small, keep):
    small.write_bytes(small.read_bytes()[:keep])
    with pytest.raises(InputError, match=r"table\.parquet is damaged or cut short: .*Write or download the file again"):
        open_source(small)


def test_damage_in_the_middle_is_named_with_the_row(tmp_path):
    texts = [f"text {number * number}" for number in range(4000)]
    path = write(tmp_path, {"id": range(4000), "text": texts}, row_group_size=1000, use_dictionary=False)
    content = bytearray(path.read_bytes())
    start = pq.ParquetFile(path).metadata.row_group(2).column(1).data_page_offset
    content[start : start + 2000] = bytes(2000)
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"table\.parquet is damaged after row 2,000: "):
        read(path, skip_bad=True)


@pytest.mark.parametrize("place", [0, None])
def test_the_name_of_a_column_that_is_not_utf8_is_said(small, place):
    """Found by fuzzing: pyarrow decodes the names as it opens the file."""
    before, between, behind = small.read_bytes().split(b"\x04text")
    first, second = (b"\x04t\xeext" if place in (number, None) else b"\x04text" for number in (0, 1))
    small.write_bytes(before + first + between + second + behind)
    with pytest.raises(InputError, match=r"table\.parquet is damaged"):
        read(small)


def test_without_pyarrow_the_command_that_brings_it_is_said(small, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(UsageError, match=r"pyarrow is not installed\. Run `pip install '.*\[parquet\]'`"):
        open_source(small)


_READS = """
import sys
from termweave.corpora import open_source
from termweave.errors import InputError
try:
    print(*open_source(sys.argv[1]).documents())
except InputError as error:
    print(error)
"""


def test_a_file_at_which_pyarrow_aborts_does_not_end_the_process(tmp_path):
    """Found by Atheris: the histogram in the statistics of a column does not fit its schema. pyarrow 26 aborts where it is asked for them."""
    # Field of a column in a Parquet footer (Thrift, compact): type BYTE_ARRAY, optional or required, its name.
    optional, required = b"\x15\x0c\x25\x02\x18\x04text", b"\x15\x0c\x25\x00\x18\x04text"
    path = write(tmp_path, {"id": ["a", "b"], "text": ["first", "second"]}, "histogram.parquet")
    before, behind = path.read_bytes().split(optional)
    path.write_bytes(before + required + behind)
    done = subprocess.run([sys.executable, "-c", _READS, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr)
    assert f"{path} is damaged after row 0: " in done.stdout
