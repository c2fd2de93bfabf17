"""What the tests of shards share: a corpus with everything that is hard, blocks that are small, and encoding as a command."""

import json
import random

import orjson
import pytest

from termweave.cli import run
from termweave.indexer.preparation import corpus_pass
from termweave.indexer.shards import corpus_encoding

#: A weights model without a graph: words and idf, so that a shard is encoded in milliseconds.
QUICK = ("--weights", "bm25-german", "--dense", "none")
WORDS = ["haus", "baum", "garten", "wasser", "feuer", "stadt", "fluss", "berg", "wolke", "regen", "sonne", "mond", "stern"]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Shards of 16 documents, so that a small corpus has many, and without a cluster, which takes seconds to start."""
    monkeypatch.setattr(corpus_encoding, "encode_on_ray", lambda encoder, files: map(encoder.encoding(), files))
    monkeypatch.setattr(corpus_pass, "_BLOCK_DOCUMENTS", 8)
    monkeypatch.setattr(corpus_encoding, "_SHARD", 16)


def texts(count, *, seed=0):
    chance = random.Random(seed)
    return [
        {
            "_id": f"d{number}",
            "title": f"Titel {number}",
            "text": " ".join(chance.choices(WORDS, k=30)),
            "year": 1990 + number % 30,
        }
        for number in range(count)
    ]


@pytest.fixture
def write(tmp_path):
    """Write documents as JSON lines."""

    def file(documents, name="corpus.jsonl"):
        path = tmp_path / name
        path.write_bytes(b"\n".join(orjson.dumps(each) for each in documents) + b"\n")
        return path

    return file


@pytest.fixture
def encode(capsys):
    """`termweave encode`; returns its JSON, or what it said if it is to fail."""

    def call(source, folder, *options, status=0, quick=True):
        arguments = ["encode", str(source), "--out", str(folder), *(QUICK if quick else ()), *options]
        assert run([*arguments, "--json"]) == status, capsys.readouterr().err
        said = capsys.readouterr()
        return json.loads(said.out) if status == 0 else said.err

    return call
