"""Generations as a user types it, on a real server: built, gated, changed, deleted."""

import json
import re
import time

import pytest

from .conftest import beir, valid, write_qrels

LEXICAL = ("--weights", "none", "--dense", "none")


def test_list_shows_every_index_with_what_is_live(termweave, name, monkeypatch):
    done = termweave("index", "-", name, *LEXICAL, stdin='{"_id": "a", "text": "from a pipe"}\n')
    assert ("1 document in" in done.stdout, "left out" in done.stderr) == (True, True)
    row = next(row for row in valid(termweave("list", "--json").stdout, "list")["indices"] if row["name"] == name)
    assert (row["documents"], row["generations"], row["signals"], row["models"]) == (1, 1, ["lexical"], {})
    assert (row["generation"].startswith(f"{name}-"), row["bytes"] > 0) == (True, True)
    (line,) = [line.split() for line in termweave("list").stdout.splitlines() if line.split()[:1] == [name]]
    assert (line[1], line[-3:]) == ("1", ["lexical", row["generation"], "1"])
    monkeypatch.setattr("termweave.indexer.generations.listing.names", lambda _: ["deleted-while-it-lists"])
    assert "deleted-while-it-lists" not in termweave("list", "--json").stdout


def test_generations_rollback_prune_and_delete(termweave, folder, tmp_path, name):
    small, broken = tmp_path / "small.jsonl", tmp_path / "broken.jsonl"
    small.write_text('{"_id": "a", "text": "x"}\n')
    first = json.loads(termweave("index", str(small), name, *LEXICAL, "--json").stdout)["generation"]
    broken.write_text('{"_id": "a", "text": "x"}\nno JSON\n')
    assert "replaces" not in termweave("index", str(broken), name, *LEXICAL, status=1).stderr
    time.sleep(1.05)  # names of generations have the second
    done = termweave("index", str(folder), name, *LEXICAL, "--json")
    second = json.loads(done.stdout)["generation"]
    assert f"'{name}' was made from 'small.jsonl'; this build replaces it with {folder.name!r}" in done.stderr
    listed = valid(termweave("generations", name, "--json").stdout, "generations")["generations"]
    assert [(each["index"], each["live"]) for each in listed] == [(second, True), (first, False)]
    assert f"{first} is live; before it was {second}" in termweave("rollback", name).stdout
    valid(termweave("promote", name, second, "--json").stdout, "promote")
    assert "Delete it?" in termweave("prune", name, "--keep", "1", stdin="n\n", status=1).stderr
    assert valid(termweave("prune", name, "--keep", "1", "--yes", "--json").stdout, "prune")["deleted"] == [first]
    unanswered = termweave("delete", name, status=2, stdin="").stderr
    assert "The question was not answered.\nAdd --yes to run the command without questions." in unanswered
    assert "deleted, 1 generation." in termweave("delete", name, "--yes").stdout
    assert "Build one" not in termweave("rollback", name, status=2).stderr


def test_a_generation_that_misses_its_gate_is_not_published(termweave, folder, opensearch_engine, tmp_path, name):
    build = ("index", str(folder), name, *LEXICAL)
    termweave(*build, "--require", "nDCG@10>=0.1")
    before = opensearch_engine.request("GET", f"/_alias/{name}")
    time.sleep(1.05)
    done = termweave(*build, "--require", "nDCG@10>=0.9", "--on", f"{folder}:hard", status=3)
    assert "was not published" in done.stderr
    assert done.stderr.count("does not reach 0.9") == 1, done.stderr
    assert "6 documents in" in done.stdout
    assert "verified and not published (lexical; " in done.stdout
    again = termweave(*build, "--require", "nDCG@10>=0.9", "--require", "MRR@10>=0", "--on", f"{folder}:hard", "--json", status=3)
    told = valid(again.stdout, "index")
    assert (told["published"], told["documents"], [gate["met"] for gate in told["gates"]]) == (False, 6, [False, True])
    assert f"termweave promote {name} {told['generation']}" in again.stderr
    assert opensearch_engine.request("GET", f"/_alias/{name}") == before
    built = opensearch_engine.request("GET", f"/{name}*/_alias")
    strange = beir(tmp_path / "strange", {"json": "json"}, {"nobody judged it": "json"}, {"other": "json"})
    system = "no system 'hybird' in the table.\nThe table has: BM25, dense, weights, hybrid, hybrid+rNN."
    for gate, on, why, status in (
        ("P@10>=.1", folder, "no measure 'P@10'", 2),
        ("nDCG@10 within .01 of no/such.trec", folder, "no/such.trec cannot be", 2),
        ("hybird:nDCG@10>=.1", folder, system, 2),
        ("nDCG@10>=.1", strange, "strange has no judged queries in the split 'test'", 1),
    ):
        assert why in termweave(*build[:2], f"{name}-never", "--require", gate, "--on", str(on), status=status).stderr
    for update in ((), ("--update",)):
        refused = termweave(*build, *update, "--require", "dense:nDCG@10>=.1", status=2)
        assert "no system 'dense' in the table.\nThe table has: BM25." in refused.stderr
    assert opensearch_engine.request("GET", f"/{name}*/_alias") == built


def test_a_generation_that_is_worse_than_the_live_one_is_not_published(termweave, opensearch_engine, tmp_path, name):
    good = {f"d{number}": f"subject{number} with words of its own" for number in range(8)}
    judged = tmp_path / "judged"

    def write(documents):
        beir(judged, documents, {f"q{n}": f"subject{n}" for n in range(8)}, {f"q{n}": f"d{n}" for n in range(8)})

    write(good)
    build = ("index", str(judged), name, *LEXICAL, "--within", ".05")
    assert "no live generation to compare with" in termweave(*build).stderr
    before = opensearch_engine.request("GET", f"/_alias/{name}")
    write({**good, "d1": "nothing", "d2": "nothing", "d3": "nothing"})
    missed = termweave(*build, "--json", status=3)
    assert "not surely within 0.05 (8 queries)" in missed.stderr
    assert valid(missed.stdout, "index")["gates"][0]["gate"].startswith(f"nDCG@10 within 0.05 of {name}-")
    write_qrels(judged, "other", {"q0": "new"})
    built = opensearch_engine.request("GET", f"/{name}*/_alias")
    refused = termweave(*build, "--analyzer", "english", "--on", f"{judged}:other", status=1).stderr
    assert f"Not one judged document of judged is in the index '{name}-" in refused
    assert opensearch_engine.request("GET", f"/{name}*/_alias") == built  # nothing was built for this
    assert opensearch_engine.request("GET", f"/_alias/{name}") == before
    assert "needs a new generation" in termweave(*build, "--update", status=2).stderr
    write({**good, "d9": "one more"})
    met = termweave(*build, "--update", "--new", "--json")
    assert "within 0.05 (8 queries)" in met.stderr
    told = valid(met.stdout, "index")
    assert (told["published"], [gate["met"] for gate in told["gates"]]) == (True, [True])
    assert opensearch_engine.request("GET", f"/_alias/{name}") != before


def test_documents_are_deleted_by_their_ids(termweave, folder, tmp_path, name):
    termweave("index", str(folder), name, *LEXICAL, "--passage-size", "8")
    question = termweave("delete", name, "--id", "timer", "--id", "nobody", stdin="n\n", status=1).stderr
    assert f"1 id is not in '{name}': 'nobody'." in question
    assert f"Delete 1 document (2 passages) from '{name}'?" in question
    ids = tmp_path / "ids.txt"
    ids.write_text("timer\njson\n\nnobody\n", encoding="utf-8-sig")  # as Windows writes it
    data = valid(termweave("delete", name, "--ids", str(ids), "--yes", "--json").stdout, "delete")
    assert (data["documents"], data["absent"]) == (["timer", "json"], ["nobody"])
    assert valid(termweave("verify", name, "--json").stdout, "verify")["documents"] == 4
    found = json.loads(termweave("search", name, "function seconds JSON document", "--json").stdout)["hits"]
    assert not {"timer", "json"} & {hit["id"] for hit in found}
    again = termweave("index", str(folder), name, "--update", *LEXICAL, "--json")
    counts = {"new": 2, "changed": 0, "unchanged": 4, "gone": 0, "refused": 0, "deleted": 0, "outdated": 0}
    assert valid(again.stdout, "index")["update"] == counts
    assert "all there, nothing twice" in termweave("verify", name, str(folder)).stdout
    for options, said in ((["--update", "--analyzer", "german"], "cannot change --analyzer"), (["--new"], "belong to --update")):
        assert said in termweave("index", str(folder), name, *options, status=2).stderr


def test_vectors_that_would_end_the_embedded_node_are_refused(termweave, opensearch_engine, tmp_path, name):
    """Without a method a knn_vector is one of Faiss: the first document loads a native library, which the archive does not have."""
    if not opensearch_engine.request("GET", "/_nodes", params={"filter_path": "nodes.*.attributes.native_vectors"}):
        pytest.skip("this server is not the embedded node")
    mapping, source = tmp_path / "mapping.json", tmp_path / "corpus.jsonl"
    source.write_text('{"_id": "a", "text": "a red sofa", "picture": [0.5, 0.5]}\n')
    picture = {"type": "knn_vector", "dimension": 2}
    faiss = picture | {"method": {"name": "hnsw", "engine": "faiss"}}
    build = ("index", str(source), name, "--mapping", str(mapping))
    for whole, called in (
        ({"properties": {"picture": picture}}, "picture"),
        ({"dynamic_templates": [{"any": {"match": "picture", "mapping": faiss}}]}, "A field of a dynamic template"),
    ):
        mapping.write_text(json.dumps(whole))
        assert f"{called} is a knn_vector" in termweave(*build, status=2).stderr
    mapping.write_text(json.dumps({"properties": {"picture": picture | {"method": {"name": "hnsw", "engine": "lucene"}}}}))
    termweave(*build)
    mapping.write_text(json.dumps({"properties": {"picture": picture}}))
    termweave(*build, "--dense", "none")  # without a vector of ours index.knn is not set, and vectors are only stored
    assert opensearch_engine.request("GET", f"/{name}/_count")["count"] == 1  # the node lives


def test_settings_and_mapping_of_ones_own_are_merged_or_refused(termweave, folder, opensearch_engine, tmp_path, name):
    settings, mapping = tmp_path / "settings.json", tmp_path / "mapping.json"
    analysis = {"analysis": {"analyzer": {"mine": {"type": "custom", "tokenizer": "whitespace", "filter": ["reverse"]}}}}
    settings.write_text(json.dumps({"settings": {"index": {"max_ngram_diff": 3}, **analysis}}))
    properties = {"kind": {"type": "keyword"}, "title": {"fields": {"raw": {"type": "keyword"}}}}
    mapping.write_text(json.dumps({"properties": properties}))
    build = ("index", str(folder), name, *LEXICAL)
    termweave(*build, "--analyzer", "mine", "--settings", str(settings), "--mapping", str(mapping))
    (found,) = opensearch_engine.request("GET", f"/{name}").values()
    assert found["settings"]["index"]["max_ngram_diff"] == "3"
    assert found["mappings"]["properties"]["content"]["analyzer"] == "mine"
    own = json.loads(termweave("search", name, "os.path.join", "--json", "--filter", '{"term": {"kind": "entry"}}').stdout)
    assert [hit["id"] for hit in own["hits"]] == ["path"]
    raw = {"query": {"term": {"title.raw": "Timer threads"}}}
    assert opensearch_engine.request("POST", f"/{name}/_search", body=raw)["hits"]["hits"][0]["_id"] == "timer"
    termweave("index", str(folder), name, "--update", "--new")
    assert "all there" in termweave("verify", name, str(folder), "--deep").stdout
    mapping.write_text('{"properties": {"id": {"type": "text"}}}')
    assert "properties.id.type cannot be 'text'" in termweave(*build, "--mapping", str(mapping), status=2).stderr


def test_a_plan_is_printed_and_nothing_is_built(termweave, folder):
    data = valid(termweave("index", str(folder), "cli-plan", "--plan", "--json").stdout, "plan")
    assert (data["documents"], data["clauses"]["of"]) == (6, "queries")
    shown = termweave("index", str(folder), "cli-plan", "--plan")
    assert re.search(r"^disk +needs .* of free space on the server during the build$", shown.stdout, re.MULTILINE)
    assert "1 document without any text" in shown.stderr
    termweave("generations", "cli-plan", status=2)
