"""Packed and damaged files, for every reader that reads files; lines that are far too long."""

import gzip
import tracemalloc
from hashlib import sha512

import pytest

from termweave.corpora import open_source
from termweave.corpora.formats import compression
from termweave.corpora.formats import lines as files
from termweave.errors import InputError
from tests.corpora.readers.test_all_readers import jsonl, parquet, table

zstd = compression.zstd_module()

#: Digests, because what hardly shrinks is unpacked piece by piece.
DIGESTS = [sha512(bytes([number % 256, number // 256])).hexdigest() for number in range(1000)]
ROWS = [{"id": str(number), "title": f"title {number}", "text": digest} for number, digest in enumerate(DIGESTS)]


def content_of(make, rows):
    (content,) = make(rows).values()
    return content if isinstance(content, bytes) else content.encode()


def zstd_as_the_tool_packs(content):
    """With a checksum; without one, as the module packs by itself, altered bytes are nobody's to find."""
    return zstd.compress(content, options={zstd.CompressionParameter.checksum_flag: True})


PASSED_OVER = b"\x50\x2a\x4d\x18\x04\0\0\0size"  # a skippable frame, as pzstd writes it
FORMATS = pytest.mark.parametrize("make", [jsonl, table, parquet])
PACKINGS = pytest.mark.parametrize("pack", [gzip.compress, zstd_as_the_tool_packs], ids=["gzip", "zstd"])


@FORMATS
@PACKINGS
def test_every_format_is_read_packed_whatever_it_is_called(tmp_path, make, pack):
    content = content_of(make, ROWS)
    for name, packed in (("plain.gz", content), ("packed", pack(content)), ("twice.zst", pack(content))):
        path = tmp_path / name
        path.write_bytes(packed)
        source, seen = open_source(path), []
        assert [{"id": each.id, "title": each.title, "text": each.text} for each in source.documents(seen.append)] == ROWS
        assert source.name == name
        assert seen == sorted(seen)
        assert seen[-1] == source.size


@pytest.mark.parametrize(("pack", "first"), [(gzip.compress, b""), (zstd.compress, b""), (zstd.compress, PASSED_OVER)])
def test_members_and_frames_that_follow_each_other_are_all_read(tmp_path, pack, first):
    path = tmp_path / "corpus"
    path.write_bytes(first + pack(b'{"id": "a", "text": ""}\n') + pack(b'{"id": "b", "text": ""}\n'))
    assert [each.id for each in open_source(path).documents()] == ["a", "b"]


@pytest.mark.parametrize("make", [jsonl, table])
@PACKINGS
@pytest.mark.parametrize("damage", ["cut", "altered"])
def test_a_damaged_file_is_named_with_the_place(tmp_path, make, pack, damage):
    packed = bytearray(pack(content_of(make, ROWS) * 5))
    if damage == "cut":
        del packed[len(packed) * 19 // 20 :]
    else:
        middle = len(packed) // 2
        packed[middle : middle + 64] = bytes(byte ^ 0xFF for byte in packed[middle : middle + 64])
    path = tmp_path / "damaged"
    path.write_bytes(packed)
    tool = "gzip" if pack is gzip.compress else "zstd"
    said = rf"damaged is compressed, and damaged or cut short after line [\d,]+, near byte [\d,]+ of {len(packed):,}: .*{tool} -t"
    with pytest.raises(InputError, match=said):
        list(open_source(path, skip_bad=True).documents())  # what is lost with a file's end is no line to skip


@PACKINGS
@pytest.mark.parametrize("damage", ["cut", "altered"])
def test_a_damaged_packed_parquet_leaves_no_copy_behind(tmp_path, monkeypatch, pack, damage):
    path = tmp_path / "damaged"
    packed = pack(content_of(parquet, ROWS))
    path.write_bytes(packed[:-2000] if damage == "cut" else packed[:-8] + bytes(8))  # the checksums
    spool = tmp_path / "spool"
    spool.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(spool))
    with pytest.raises(InputError, match="is compressed, and damaged or cut short"):
        open_source(path)
    assert not list(spool.glob("*/*"))


def test_a_window_that_takes_too_much_memory_is_named(tmp_path):
    path = tmp_path / "long.zst"
    with zstd.open(path, "wb", options={zstd.CompressionParameter.window_log: 28}) as stream:
        stream.write(b'{"id": "a", "text": ""}\n')
    with pytest.raises(InputError, match=r"compressed with a window of more than 128 MB. Decompress it with `zstd"):
        open_source(path)


@pytest.mark.parametrize(
    ("before", "opens", "closes", "kept", "line"),
    [
        (b'{"id": "a", "text": ""}\n', b'{"id": "b", "text": "', b'"}\n{"id": "c", "text": ""}\n', [1, 3], 2),
        (b"id,text\na,\n", b'b,"', b'"\nc,\n', [2, 4], 3),
    ],
    ids=["jsonl", "csv"],
)
def test_a_line_of_100_megabytes_ends_in_a_sentence_and_takes_no_memory(tmp_path, monkeypatch, before, opens, closes, kept, line):
    monkeypatch.setattr(files, "MAX_LINE", 6_400_000)
    path = tmp_path / "long"
    with zstd.open(path, "wb", level=1) as stream:
        stream.write(before + opens)
        for _ in range(100):
            stream.write(b"x" * (1 << 20))
        stream.write(closes)
    with pytest.raises(InputError, match=rf"line {line}: longer than 6.4 MB\. Put every document on its own line"):
        list(open_source(path).documents())
    tracemalloc.start()
    assert [each.line for each in open_source(path, skip_bad=True).documents()] == kept
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * files.MAX_LINE


@FORMATS
def test_memory_does_not_grow_with_the_file(tmp_path, make):
    """Ten times the rows take no more than the bytes of some chunks: the file grows by 2 MB."""
    arrow = pytest.importorskip("pyarrow") if make is parquet else None
    path, peaks = tmp_path / "corpus", []
    for times in (1, 10):
        path.write_bytes(content_of(make, ROWS * times))
        source = open_source(path)
        tracemalloc.start()
        held = max((arrow.total_allocated_bytes() if arrow else 0) for _ in source.documents())  # Arrow's own, beside Python's
        peaks.append(tracemalloc.get_traced_memory()[1] + held)
        tracemalloc.stop()
        assert source.total == len(ROWS) * times
    assert peaks[1] < peaks[0] + 500_000


@PACKINGS
@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (compression.ReadingLimits(unpacked=20_000), "has more than 20 kB when it is decompressed"),
        (compression.ReadingLimits(lines=999), "has more than 999 lines"),
        (compression.ReadingLimits(line=100), "line 1: longer than 100 bytes"),
    ],
)
def test_limits_count_while_a_file_is_read(tmp_path, pack, limits, said):
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(pack(content_of(jsonl, ROWS)))
    with compression.limited(limits), pytest.raises(InputError, match=said):
        list(open_source(path).documents())
    assert len(list(open_source(path).documents())) == len(ROWS)
    with compression.limited(compression.ReadingLimits(200_000, 1_000, 1_000)):
        assert len(list(open_source(path).documents())) == len(ROWS)
