"""`ubi:` as judgements and as a click log, from files and from the cluster."""

import gzip
import json

import pytest

from termweave.corpora import open_dataset, open_source
from termweave.corpora.index import ubi_indices
from termweave.errors import InputError, UsageError
from termweave.training.data.dataset import clicks_of

from .conftest import write


def logs(count=40):
    queries, events = {}, {}
    for number in range(count):
        key, shown = f"s{number}", [f"d{(number + place) % 5}" for place in range(5)]
        queries[key] = {"query_id": key, "user_query": f"query {number % 4}", "query_response_hit_ids": shown}
        attributes = {"object": {"object_id": f"d{number % 4}"}, "position": {"ordinal": 1}}
        events[f"e{number}"] = {"query_id": key, "action_name": "click", "event_attributes": attributes}
    return queries, events


@pytest.fixture
def folder(tmp_path):
    queries, events = ([*records.values()] for records in logs())
    hits = [{"_index": "x", "_source": each} for each in events]
    (tmp_path / "ubi_queries.jsonl").write_text("\n".join(map(json.dumps, queries)))
    (tmp_path / "ubi_events.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, hits)).encode()))
    return tmp_path


def test_files_as_judgements_and_as_clicks(folder):
    dataset = open_dataset(f"ubi:{folder}")
    assert (dataset.split, dataset.splits(), dataset.relevant_from) == ("corrected", ["corrected", "raw"], 1)
    assert sorted(query.text for query in dataset.queries()) == [f"query {number}" for number in range(4)]
    grades = {query.text: dataset.qrels()[query.id] for query in dataset.queries()}
    assert grades["query 2"]["d2"] == 3
    assert grades["query 2"]["d0"] == 0
    assert any("are looked at in the proportion 1.00" in note for note in dataset.notes)
    assert open_dataset(f"ubi:{folder}:raw").split == "raw"
    place = {f"d{number}": number for number in range(5)}
    corrected = clicks_of(f"ubi:{folder}", place)
    assert corrected.counts["query 1"][1] > 10  # of ten clicks
    assert "are looked at in the proportion" in corrected.remark


def test_one_file_of_bulk_requests_holds_both_logs(tmp_path):
    """OpenSearch's sample data are such a file."""
    lines = []
    for index, records in zip(("ubi_queries", "ubi_events"), logs(), strict=True):
        for identity, record in records.items():
            lines += [{"index": {"_index": index, "_id": identity}}, record]
    lines[4:4] = [{"create": {"_index": "ecommerce"}}, {"query_id": "s0", "user_query": "not of the log"}]
    (tmp_path / "ubi_queries_events.ndjson").write_text("".join(json.dumps(line) + "\n" for line in lines))
    dataset = open_dataset(f"ubi:{tmp_path}:raw")
    assert sorted(query.text for query in dataset.queries()) == [f"query {number}" for number in range(4)]
    (tmp_path / "ubi_queries.ndjson").write_text('{"index": {"_index": "mine"}}\n{"query_id": "s1", "user_query": "one"}\n')
    texts = {query.text for query in open_dataset(f"ubi:{tmp_path}:raw").queries()}
    assert texts == {"one"}  # a file of one log is preferred; the other log has the events of all searches


def test_indices_as_judgements(opensearch_engine, name, monkeypatch, products, slowly):
    monkeypatch.setattr(ubi_indices, "QUERIES", f"{name}-queries")
    monkeypatch.setattr(ubi_indices, "EVENTS", f"{name}-events")
    for suffix, records in zip(("queries", "events"), logs(), strict=True):
        write(opensearch_engine, products({}, suffix=suffix), records)
    host = opensearch_engine.url.replace("//", "//me:secret@")
    dataset = open_dataset(f"ubi:{host}")
    assert "secret" not in dataset.name
    assert len(dataset.queries()) == 4
    for slow in (0, 1):  # a seed draws halves and held-out questions from this order
        slowly(slow)
        again = open_dataset(f"ubi:{host}")
        assert (again.queries(), again.behaviour.pairs) == (dataset.queries(), dataset.behaviour.pairs)
    assert open_dataset(f"ubi:{host}:raw").split == "raw"
    two = {"terms": {"user_query.keyword": ["query 1", "query 2"]}}
    alias = {"index": f"{name}-queries", "alias": f"{name}-two", "filter": two}
    opensearch_engine.request("POST", "/_aliases", body={"actions": [{"add": alias}]})
    monkeypatch.setattr(ubi_indices, "QUERIES", f"{name}-two")
    assert sorted(query.text for query in open_dataset(f"ubi:{host}").queries()) == ["query 1", "query 2"]


def test_what_is_missing(tmp_path):
    with pytest.raises(UsageError, match="A log of user behaviour has no documents"):
        open_source("ubi:opensearch")
    with pytest.raises(UsageError, match="has no split 'dev'"):
        open_dataset(f"ubi:{tmp_path}:dev")
    with pytest.raises(UsageError, match=r"There is no ubi_queries\.jsonl in "):
        open_dataset(f"ubi:{tmp_path}").queries()
    (tmp_path / "ubi_queries.jsonl").write_text('{"query_id": "a", "user_query": "x", "query_response_hit_ids": ["1"]}\n')
    (tmp_path / "ubi_events.jsonl").write_text("{}\n")
    with pytest.raises(InputError, match="holds no click on a document that was shown"):
        open_dataset(f"ubi:{tmp_path}").queries()
    (tmp_path / "ubi_events.jsonl").write_text("{broken\n")
    with pytest.raises(InputError, match=r"ubi_events\.jsonl, line 1: broken JSON"):
        open_dataset(f"ubi:{tmp_path}").queries()
