"""`index --update`: which options it takes, and what it says."""

from __future__ import annotations

import json

import orjson
import pytest

from .builds import numbered

ANALYSIS = '{"analyzer": {"own": {"type": "custom", "tokenizer": "standard", "filter": ["lowercase"]}}}'


@pytest.mark.engine
def test_an_update_takes_the_options_of_its_build_and_no_others(index, tmp_path):
    mapping, settings = tmp_path / "mapping.json", tmp_path / "settings.json"

    def files(kind, interval):
        mapping.write_text(f'{{"properties": {{"year": {{"type": "{kind}"}}}}}}')
        settings.write_text(f'{{"refresh_interval": "{interval}", "number_of_routing_shards": 4, "analysis": {ANALYSIS}}}')
        return ["--mapping", str(mapping), "--settings", str(settings)]

    same = ["--passage-size", "50", "--signals", "lexical", "--analyzer", "german", "--shards", "2", "--replicas", "0"]
    same += files("integer", "5s")
    index(numbered(2), *same)
    assert "1 new" in index(numbered(3), "--update", *same).out
    for option, value, held in (
        ("--passage-size", "60", "50"),
        ("--analyzer", "english", "german"),
        ("--shards", "1", "2"),
        ("--prune", "0.1", "none"),
    ):
        told = index(numbered(4), "--update", option, value, status=2).err
        assert f"An update cannot change {option}: the live generation was built with {held}, not {value}" in told
        assert f"remove {option}; to build anew, remove --update" in told
    assert '"index.refresh_interval":"5s"' in index(numbered(4), "--update", *files("integer", "6s"), status=2).err
    assert '"type":"keyword"' in index(numbered(4), "--update", *files("keyword", "5s"), status=2).err


@pytest.mark.engine
def test_an_update_takes_the_models_of_its_build_and_no_others(index):
    """Another model, one that the index has no signal for, and none where there is one; a plan says the same."""
    same = ("--weights", "fast", "--dense", "none")
    index(numbered(2), *same)
    assert "1 new" in index(numbered(3), "--update", *same).out
    for flag, value in (("--weights", "bm25-german"), ("--dense", "fast"), ("--weights", "none")):
        for plan in ([], ["--plan"]):
            told = index(numbered(4), "--update", *same, flag, value, *plan, status=2).err
            assert f"An update cannot change {flag}: the live generation was built with" in told
            assert f"remove {flag}; to build anew with this model, remove --update" in told


@pytest.mark.engine
def test_an_update_knows_its_mapping_again_however_the_engine_tells_it(index, tmp_path):
    mapping = tmp_path / "mapping.json"

    def write(**changed):
        owner = {"type": "object", "dynamic": False, "properties": {"city": {"type": "keyword", "doc_values": True, **changed}}}
        seen = {"type": "date", "format": "strict_date_optional_time||epoch_millis"}
        raw = {"type": "text", "index": "true", "fields": {"raw": {"type": "keyword", "ignore_above": 2147483647}}}
        mapping.write_text(json.dumps({"properties": {"owner": owner, "seen": seen, "kind": raw}}))

    write()
    index(numbered(2), "--signals", "lexical", "--mapping", str(mapping))
    assert "1 new" in index(numbered(3), "--update", "--mapping", str(mapping)).out
    for other in ({"doc_values": False}, {"ignore_above": 5}, {"fields": {"raw": {"type": "keyword"}}}, {"type": "integer"}):
        write(**other)
        assert "to build anew, remove --update" in index(numbered(3), "--update", "--mapping", str(mapping), status=2).err


@pytest.mark.engine
def test_an_update_says_documents_as_documents_and_passages_as_passages(index):
    long = {"_id": "long", "text": "This is a sentence of a text. " * 40}
    index([*numbered(3), long], "--passage-size", "20")
    changed = index([*numbered(2), {**long, "text": "Short now."}], "--update").out
    assert "Documents: 0 new, 1 changed, 2 unchanged, 1 no longer in the source (kept; --delete-missing deletes it)" in changed
    assert "1 deleted" not in changed
    assert "that changed documents have no longer were deleted" in changed
    found = orjson.loads(index(numbered(2), "--update", "--delete-missing", "--yes", "--json").out)["update"]
    assert (found["gone"], found["deleted"], found["outdated"]) == (2, 2, 0)
