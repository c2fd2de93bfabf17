"""Generations as a user types it, as a process, on a real server: built, gated, changed, deleted."""

from __future__ import annotations

import json
import re
import time
import uuid

import pytest
from click.testing import CliRunner

from termweave.cli.verbs.generations import list_indices

from .conftest import valid

pytestmark = pytest.mark.engine


def test_standard_input_is_indexed(termweave, opensearch_engine):
    done = termweave(
        "index", "-", "cli-stdin", "--weights", "none", "--dense", "none", stdin='{"_id": "a", "text": "from a pipe"}\n'
    )
    assert "1 document in" in done.stdout
    assert "left out" in done.stderr
    opensearch_engine.request("DELETE", "/cli-stdin*")


def test_list_shows_every_index_with_what_is_live(termweave, folder, opensearch_engine):
    termweave("index", str(folder), "cli-listed", "--weights", "none", "--dense", "none")
    try:
        rows = {row["name"]: row for row in valid(termweave("list", "--json").stdout, "list")["indices"]}
        row = rows["cli-listed"]
        assert (row["documents"], row["generations"], row["signals"], row["models"]) == (6, 1, ["lexical"], {})
        assert row["generation"].startswith("cli-listed-")
        assert row["bytes"] > 0
        lines = [line for line in termweave("list").stdout.splitlines() if line.split()[:1] == ["cli-listed"]]
        assert len(lines) == 1
        assert lines[0].split()[1] == "6"
        assert lines[0].split()[-3:] == ["lexical", row["generation"], "1"]
    finally:
        opensearch_engine.request("DELETE", "/cli-listed*", params={"expand_wildcards": "all"})


def test_list_leaves_out_what_is_deleted_while_it_lists(opensearch_engine, monkeypatch):
    monkeypatch.setattr("termweave.indexer.generations.listing.names", lambda _: ["cli-deleted-just-now"])
    done = CliRunner().invoke(list_indices, ["--url", opensearch_engine.url, "--json"])
    assert json.loads(done.stdout)["indices"] == []


def test_generations_rollback_prune_and_delete(termweave, folder, tmp_path):
    small = tmp_path / "small.jsonl"
    small.write_text('{"_id": "a", "text": "x"}\n')
    options = ("--weights", "none", "--dense", "none")
    first = json.loads(termweave("index", str(small), "cli-gens", *options, "--json").stdout)["generation"]
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"_id": "a", "text": "x"}\nno JSON\n')
    assert "replaces" not in termweave("index", str(broken), "cli-gens", *options, status=1).stderr
    time.sleep(1.05)
    done = termweave("index", str(folder), "cli-gens", *options, "--json")
    second = json.loads(done.stdout)["generation"]
    assert f"'cli-gens' was made from 'small.jsonl'; this build replaces it with {folder.name!r}" in done.stderr
    listed = valid(termweave("generations", "cli-gens", "--json").stdout, "generations")["generations"]
    assert [(each["index"], each["live"]) for each in listed] == [(second, True), (first, False)]
    assert [[*each["signals"]] for each in listed] == [["lexical"], ["lexical"]]
    assert f"{first} is live; before it was {second}" in termweave("rollback", "cli-gens").stdout
    valid(termweave("promote", "cli-gens", second, "--json").stdout, "promote")
    assert "Delete it?" in termweave("prune", "cli-gens", "--keep", "1", stdin="n\n", status=1).stderr
    assert valid(termweave("prune", "cli-gens", "--keep", "1", "--yes", "--json").stdout, "prune")["deleted"] == [first]
    unanswered = termweave("delete", "cli-gens", status=2, stdin="").stderr
    assert "The question was not answered.\nAdd --yes to run the command without questions." in unanswered
    assert "deleted, 1 generation." in termweave("delete", "cli-gens", "--yes").stdout
    assert "Build one" not in termweave("rollback", "cli-gens", status=2).stderr


def test_a_generation_that_misses_its_gate_is_not_published(termweave, folder, opensearch_engine, tmp_path):
    build = ("index", str(folder), "cli-gate", "--weights", "none", "--dense", "none")
    termweave(*build, "--require", "nDCG@10>=0.1")
    before = opensearch_engine.request("GET", "/_alias/cli-gate")
    time.sleep(1.05)
    done = termweave(*build, "--require", "nDCG@10>=0.9", "--on", f"{folder}:hard", status=3)
    assert "was not published" in done.stderr
    assert "6 documents in" in done.stdout
    assert "verified and not published (lexical; " in done.stdout
    again = termweave(*build, "--require", "nDCG@10>=0.9", "--require", "MRR@10>=0", "--on", f"{folder}:hard", "--json", status=3)
    told = valid(again.stdout, "index")
    assert (told["published"], told["documents"], [gate["met"] for gate in told["gates"]]) == (False, 6, [False, True])
    assert f"termweave promote cli-gate {told['generation']}" in again.stderr
    assert done.stderr.count("does not reach 0.9") == 1, done.stderr
    assert opensearch_engine.request("GET", "/_alias/cli-gate") == before
    made = opensearch_engine.request("GET", "/cli-gate*/_alias")
    (strange := tmp_path / "strange").mkdir()
    (strange / "qrels").symlink_to(folder / "qrels")
    (strange / "corpus.jsonl").symlink_to(folder / "corpus.jsonl")
    (strange / "queries.jsonl").write_text('{"_id": "nobody judged it", "text": "json"}\n')
    for gate, on, why in (
        ("P@10>=.1", folder, "no measure 'P@10'"),
        ("nDCG@10 within .01 of no/such.trec", folder, "cannot be read"),
        (
            "hybird:nDCG@10>=.1",
            folder,
            "no system 'hybird' in the table.\nThe table has: BM25, dense, weights, hybrid, hybrid+rNN.",
        ),
        ("nDCG@10>=.1", strange, "strange has no judged queries in the split 'test'"),
    ):
        refused = termweave(*build[:2], "cli-gate-never", "--require", gate, "--on", str(on), status=1 if on == strange else 2)
        assert why in refused.stderr
    for update in ((), ("--update",)):
        refused = termweave(*build, *update, "--require", "dense:nDCG@10>=.1", status=2)
        assert "no system 'dense' in the table.\nThe table has: BM25." in refused.stderr
    assert opensearch_engine.request("GET", "/cli-gate*/_alias") == made
    assert not opensearch_engine.request("GET", "/_cat/indices/cli-gate-never*", params={"format": "json"})
    opensearch_engine.request("DELETE", "/cli-gate*")


def test_a_gate_without_judged_queries_names_the_option(termweave, tmp_path):
    corpus = tmp_path / "docs.csv"
    corpus.write_text("id,text\n1,tea\n")
    for more, reason in (
        ((), "is a corpus without queries and judgements"),
        (("--on", "nowhere"), "no file or folder 'nowhere'"),
    ):
        said = termweave("index", str(corpus), "cli-gate", "--require", "nDCG@10>=0.4", *more, status=2).stderr
        assert reason in said
        assert "\n--on DATASET names the judged queries of the gate. A data set is" in said


def test_a_generation_that_is_worse_than_the_live_one_is_not_published(termweave, folder, opensearch_engine, tmp_path):
    judged = tmp_path / "judged"
    (judged / "qrels").mkdir(parents=True)
    good = {f"d{number}": f"subject{number} with words of its own" for number in range(8)}

    def write(documents):
        lines = [json.dumps({"_id": key, "text": text}) for key, text in documents.items()]
        (judged / "corpus.jsonl").write_text("\n".join(lines) + "\n")

    (judged / "queries.jsonl").write_text("".join(json.dumps({"_id": f"q{n}", "text": f"subject{n}"}) + "\n" for n in range(8)))
    rows = "".join(f"q{number}\td{number}\t1\n" for number in range(8))
    (judged / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{rows}")
    write(good)
    build = ("index", str(judged), "cli-live", "--weights", "none", "--dense", "none", "--within", ".05")
    assert "no live generation to compare with" in termweave(*build).stderr
    before = opensearch_engine.request("GET", "/_alias/cli-live")
    write({**good, "d1": "nothing", "d2": "nothing", "d3": "nothing"})
    missed = termweave(*build, "--json", status=3)
    assert "not surely within 0.05 (8 queries)" in missed.stderr
    (judged / "qrels" / "other.tsv").write_text("query-id\tcorpus-id\tscore\nq0\tnew\t1\n")
    made = opensearch_engine.request("GET", "/cli-live*/_alias")
    refused = termweave(*build, "--analyzer", "english", "--on", f"{judged}:other", status=1).stderr
    assert re.search(r"Not one judged document of judged is in the index 'cli-live-[^']*'\.", refused), refused
    assert opensearch_engine.request("GET", "/cli-live*/_alias") == made  # nothing was built for this
    assert valid(missed.stdout, "index")["gates"][0]["gate"].startswith("nDCG@10 within 0.05 of cli-live-")
    assert opensearch_engine.request("GET", "/_alias/cli-live") == before
    assert "needs a new generation" in termweave(*build, "--update", status=2).stderr
    write({**good, "d9": "one more"})
    met = termweave(*build, "--update", "--new", "--json")
    assert "within 0.05 (8 queries)" in met.stderr
    told = valid(met.stdout, "index")
    assert (told["published"], [gate["met"] for gate in told["gates"]]) == (True, [True])
    assert opensearch_engine.request("GET", "/_alias/cli-live") != before
    opensearch_engine.request("DELETE", "/cli-live*")


def test_documents_are_deleted_by_their_ids(termweave, folder, opensearch_engine, tmp_path):
    termweave("index", str(folder), "cli-few", "--weights", "none", "--dense", "none", "--passage-size", "8")
    asked = termweave("delete", "cli-few", "--id", "timer", "--id", "nobody", stdin="n\n", status=1).stderr
    assert "Not in 'cli-few': 'nobody' (1)." in asked
    assert "Delete 1 document (2 passages) from 'cli-few'?" in asked
    ids = tmp_path / "ids.txt"
    ids.write_text("timer\njson\n\nnobody\n", encoding="utf-8-sig")  # as Windows writes it
    data = valid(termweave("delete", "cli-few", "--ids", str(ids), "--yes", "--json").stdout, "delete")
    assert (data["documents"], data["absent"]) == (["timer", "json"], ["nobody"])
    assert valid(termweave("verify", "cli-few", "--json").stdout, "verify")["documents"] == 4
    found = json.loads(termweave("search", "cli-few", "function seconds JSON document", "--json").stdout)["hits"]
    assert not {"timer", "json"} & {hit["id"] for hit in found}
    again = termweave("index", str(folder), "cli-few", "--update", "--weights", "none", "--dense", "none", "--json")
    counts = {"new": 2, "changed": 0, "unchanged": 4, "gone": 0, "refused": 0, "deleted": 0, "outdated": 0}
    assert valid(again.stdout, "index")["update"] == counts
    assert "all there, nothing twice" in termweave("verify", "cli-few", str(folder)).stdout
    assert (
        "An update cannot change --analyzer: the live generation was built with english, not german"
        in termweave("index", str(folder), "cli-few", "--update", "--analyzer", "german", status=2).stderr
    )
    assert "belong to --update" in termweave("index", str(folder), "cli-few", "--new", status=2).stderr
    opensearch_engine.request("DELETE", "/cli-few*")


def test_vectors_that_would_end_the_embedded_node_are_refused(termweave, folder, opensearch_engine, tmp_path):
    """Without a method a knn_vector is one of Faiss: the first document loads a native library, which the archive does not have."""
    if not opensearch_engine.request("GET", "/_nodes", params={"filter_path": "nodes.*.attributes.native_vectors"}):
        pytest.skip("this server is not the embedded node")
    name, mapping, source = f"test-{uuid.uuid4().hex[:10]}", tmp_path / "mapping.json", tmp_path / "corpus.jsonl"
    source.write_text('{"_id": "a", "text": "a red sofa", "picture": [0.5, 0.5]}\n')
    picture = {"type": "knn_vector", "dimension": 2}
    build = ("index", str(source), name, "--mapping", str(mapping))
    for field in (picture, picture | {"method": {"name": "hnsw", "engine": "faiss"}}):
        for whole in (
            {"properties": {"picture": field}},
            {"dynamic_templates": [{"any": {"match": "picture", "mapping": field}}]},
        ):
            mapping.write_text(json.dumps(whole))
            refused = termweave(*build, status=2).stderr
            assert ("picture" if "properties" in whole else "A field of a dynamic template") + " is a knn_vector" in refused
            assert '"engine": "lucene"' in refused
    mapping.write_text(json.dumps({"properties": {"picture": picture | {"method": {"name": "hnsw", "engine": "lucene"}}}}))
    termweave(*build)
    mapping.write_text(json.dumps({"properties": {"picture": picture}}))
    termweave(*build, "--dense", "none")  # without a vector of ours index.knn is not set, and vectors are only stored
    assert opensearch_engine.request("GET", f"/{name}/_count")["count"] == 1  # the node lives
    opensearch_engine.request("DELETE", f"/{name}*")


def test_settings_and_mapping_of_ones_own_are_merged_or_refused(termweave, folder, opensearch_engine, tmp_path):
    settings, mapping = tmp_path / "settings.json", tmp_path / "mapping.json"
    analysis = {"analysis": {"analyzer": {"mine": {"type": "custom", "tokenizer": "whitespace", "filter": ["reverse"]}}}}
    settings.write_text(json.dumps({"settings": {"index": {"max_ngram_diff": 3}, **analysis}}))
    properties = {"kind": {"type": "keyword"}, "title": {"fields": {"raw": {"type": "keyword"}}}}
    mapping.write_text(json.dumps({"properties": properties}))
    build = ("index", str(folder), "cli-own", "--weights", "none", "--dense", "none")
    termweave(*build, "--analyzer", "mine", "--settings", str(settings), "--mapping", str(mapping))
    (found,) = opensearch_engine.request("GET", "/cli-own").values()
    assert found["settings"]["index"]["max_ngram_diff"] == "3"
    assert found["mappings"]["properties"]["content"]["analyzer"] == "mine"
    own = json.loads(termweave("search", "cli-own", "os.path.join", "--json", "--filter", '{"term": {"kind": "entry"}}').stdout)
    assert [hit["id"] for hit in own["hits"]] == ["path"]
    raw = {"query": {"term": {"title.raw": "Timer threads"}}}
    assert opensearch_engine.request("POST", "/cli-own/_search", body=raw)["hits"]["hits"][0]["_id"] == "timer"
    termweave("index", str(folder), "cli-own", "--update", "--new")
    assert "all there" in termweave("verify", "cli-own", str(folder), "--deep").stdout
    mapping.write_text(json.dumps({"properties": {"id": {"type": "text"}}}))
    refused = termweave(*build, "--mapping", str(mapping), status=2).stderr
    assert "properties.id.type cannot be 'text': termweave needs 'keyword' there." in refused
    settings.write_text('{"number_of_shards": 3}')
    assert "Use --shards" in termweave(*build, "--settings", str(settings), status=2).stderr
    settings.write_text("[1]")
    assert "is not a JSON object" in termweave(*build, "--settings", str(settings), status=2).stderr
    mapping.write_text('{"dynamic": true}')
    assert "reserved for termweave" in termweave(*build, "--mapping", str(mapping), status=2).stderr
    opensearch_engine.request("DELETE", "/cli-own*")


def test_a_plan_is_printed_and_nothing_is_built(termweave, folder):
    data = valid(termweave("index", str(folder), "cli-plan", "--plan", "--json").stdout, "plan")
    assert (data["documents"], data["clauses"]["of"]) == (6, "queries")
    shown = termweave("index", str(folder), "cli-plan", "--plan")
    assert "passages   6" in shown.stdout
    assert re.search(
        r"^disk +needs .* of free space on the server during the build$", shown.stdout, re.MULTILINE
    )  # not: "... free"
    assert "1 document without any text" in shown.stderr
    termweave("generations", "cli-plan", status=2)
