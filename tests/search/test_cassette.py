"""Every way to search, with the recorded answers of a server: the same requests, results, explanations and remarks as when they were recorded."""

import orjson
import pytest
from backports import zstd

from tests.search.cassette import FILE, INDICES, Cassette, cases, differences, played, tables


@pytest.fixture(scope="module")
def recording():
    return orjson.loads(zstd.decompress(FILE.read_bytes()))


@pytest.mark.parametrize("index", INDICES)
def test_all_options_together_give_what_was_recorded(recording, index, tmp_path):
    assert differences(recording["indices"][index], played(index, Cassette(recording["answers"]), tables(tmp_path)))[:20] == []


def test_the_recording_has_many_answers_and_few_refusals(recording):
    for index in INDICES:
        results = [each["result"] for each in recording["indices"][index]]
        assert len(results) > 3 * len(cases(index))
        assert sum("error" in each for each in results) < 0.3 * len(results)
