"""What the tests of shards share: a corpus with everything that is hard, blocks that are small, and encoding as a command."""

import json
import random

import pytest

from termweave.cli import run
from termweave.indexer.preparation import corpus_pass
from termweave.indexer.shards import corpus_encoding
from tests.indexer.conftest import write_lines

#: A weights model without a graph: words and idf, so that a shard is encoded in milliseconds.
QUICK = ("--weights", "bm25-german", "--dense", "none")
WORDS = ["haus", "baum", "garten", "wasser", "feuer", "stadt", "fluss", "berg", "wolke", "regen", "sonne", "mond", "stern"]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Shards of 16 documents, so that a small corpus has many, and without a cluster, which takes seconds to start."""
    monkeypatch.setattr(corpus_encoding, "encode_on_ray", lambda encoder, files: map(encoder.encoding(), files))
    monkeypatch.setattr(corpus_pass, "_BLOCK_DOCUMENTS", 8)
    monkeypatch.setattr(corpus_encoding, "_SHARD", 16)


def texts(count):
    chance = random.Random(0)
    return [
        {"_id": f"d{each}", "title": f"Titel {each}", "text": " ".join(chance.choices(WORDS, k=30)), "year": 1990 + each % 30}
        for each in range(count)
    ]


@pytest.fixture
def write(tmp_path):
    """Write documents as JSON lines."""
    return lambda documents, name="corpus.jsonl": write_lines(tmp_path / name, documents)


@pytest.fixture
def encode(capsys):
    """`termweave encode`; returns its JSON, or what it said if it is to fail."""

    def call(source, folder, *options, status=0, quick=True):
        arguments = ["encode", str(source), "--out", str(folder), *(QUICK if quick else ()), *options]
        assert run([*arguments, "--json"]) == status, capsys.readouterr().err
        said = capsys.readouterr()
        return json.loads(said.out) if status == 0 else said.err

    return call
