"""Damaged input of every kind ends in documents that can be stored, in entries left out, or in a sentence."""

import os
import random

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from termweave.catalog.layout import source_digest
from termweave.corpora import open_source
from termweave.corpora.formats.fields import MAX_DEPTH
from termweave.errors import InputError
from tests.corpora.readers import fuzz_readers

#: Examples for each reader; the environment asks for more.
EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "60"))


@pytest.mark.parametrize("kind", fuzz_readers.SEEDS)
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(damage=st.integers(0, 2**32) | st.binary(max_size=200), skip_bad=st.booleans())
def test_a_damaged_file_and_one_of_any_bytes(tmp_path, kind, damage, skip_bad):
    files = {**fuzz_readers.SEEDS[kind], next(iter(fuzz_readers.SEEDS[kind])): damage}
    if isinstance(damage, int):
        files = fuzz_readers.damaged(kind, random.Random(damage))
    assert fuzz_readers.read(files, tmp_path / kind, skip_bad=skip_bad) in {"documents", "skipped", "refused"}


@pytest.mark.parametrize("opening", ["[", '{"a":'])
@pytest.mark.parametrize("where", ["m", "metadata", "id", "title"])
def test_an_entry_nested_900_deep_is_refused_by_its_line(tmp_path, opening, where):
    closing = "]" if opening == "[" else "}"
    deep = opening * 900 + "1" + closing * 900
    path = tmp_path / "corpus.jsonl"
    own = "" if where == "id" else '"id": "b", '
    path.write_text(f'{{"id": "a", "text": "x"}}\n{{{own}"{where}": {deep}, "text": "y"}}\n')
    with pytest.raises(InputError, match=r"line 2: .*nested"):
        list(open_source(path).documents())
    assert [each.id for each in open_source(path, skip_bad=True).documents()] == ["a"]


def test_metadata_of_the_allowed_depth_can_be_stored(tmp_path):
    value = 1
    for _ in range(MAX_DEPTH):
        value = [value]
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(orjson.dumps({"id": "a", "text": "x", "m": value}))
    (document,) = open_source(path).documents()
    assert source_digest(document)
