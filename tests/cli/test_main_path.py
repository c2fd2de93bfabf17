"""The main path as a user types it, as a process, on a real server; every JSON output against its schema."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

import jsonschema
import pytest

pytestmark = pytest.mark.engine
SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"
DOCUMENTS = {
    "timer": ("Timer threads", "A thread that runs a function after a given number of seconds has passed."),
    "json": ("JSON decoder", "Parse a JSON document from a string and return the Python object."),
    "path": ("os.path.join", "Join one or more path components; os.path.join handles separators."),
    "csv": ("csv reader", "Iterate over the lines of a CSV file as lists of strings."),
    "random": ("random choice", "Pick a random element from a sequence that is not empty."),
    "empty": ("", ""),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A BEIR folder of six documents and two judged queries."""
    root = tmp_path_factory.mktemp("beir")
    lines = [json.dumps({"_id": key, "title": title, "text": text, "kind": "entry"}) for key, (title, text) in DOCUMENTS.items()]
    (root / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    (root / "queries.jsonl").write_text(
        '{"_id": "q1", "text": "run a function later"}\n{"_id": "q2", "text": "read json text"}\n'
    )
    (root / "qrels").mkdir()
    for split, first in (("test", "timer"), ("hard", "empty")):  # no search finds a document without a word
        (root / "qrels" / f"{split}.tsv").write_text(f"query-id\tcorpus-id\tscore\nq1\t{first}\t1\nq2\tjson\t1\n")
    return root


@pytest.fixture(scope="module")
def termweave(opensearch_engine, own_places):
    """Run the command; returns the finished process."""

    def call(*arguments, stdin=None, status=0):
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("TERMWEAVE_")},
            "OPENSEARCH_URL": opensearch_engine.url,
            "XDG_STATE_HOME": str(own_places / "xdg-state"),
        }
        done = subprocess.run(
            [sys.executable, "-m", "termweave", *arguments],
            capture_output=True,
            text=True,
            input=stdin,
            env=environment,
            check=False,
        )
        assert "Traceback" not in done.stderr
        assert done.returncode == status, done.stderr
        return done

    return call


@pytest.fixture(scope="module")
def live(termweave, folder, opensearch_engine):
    """The folder, indexed."""
    name = f"test-{uuid.uuid4().hex[:10]}"
    done = termweave("index", str(folder), name, "--json")
    valid(done.stdout, "index")
    yield name
    opensearch_engine.request("DELETE", f"/{name}*")


def valid(output, schema):
    data = json.loads(output)
    jsonschema.validate(data, json.loads((SCHEMAS / f"{schema}.1.json").read_text()))
    return data


def test_verify(termweave, live, folder):
    assert valid(termweave("verify", live, "--json").stdout, "verify")["ok"]
    assert "all there, nothing twice" in termweave("verify", live, str(folder), "--deep").stdout
    assert valid(termweave("verify", "--deep", live, "--json").stdout, "verify")["read"] == len(DOCUMENTS)
    assert valid(termweave("verify", live, "--json", "--deep", "5%").stdout, "verify")["read"] == 1
    assert "is no percentage" in termweave("verify", live, "--deep=some", status=2).stderr


@pytest.mark.parametrize("mode", ["lexical", "weights", "dense", "hybrid", "weights:0.7,dense:0.3"])
@pytest.mark.parametrize("rerank", ["none", "rnn"])
def test_every_mode_finds_and_explains_to_the_last_digit(termweave, live, mode, rerank):
    done = termweave(
        "search", live, "a function that runs after some seconds", "--mode", mode, "--rerank", rerank, "--explain", "--json"
    )
    data = valid(done.stdout, "search")
    assert data["hits"][0]["id"] == "timer"
    for hit in data["hits"]:
        parts = hit["explanation"]["parts"]
        assert sum(part["share"] for part in parts) == pytest.approx(hit["score"], abs=1e-5)
        for part in parts:
            if part.get("terms"):
                assert sum(term["share"] for term in part["terms"]) == pytest.approx(part["score"], rel=1e-5)


def test_search_in_a_terminal_from_standard_input_with_filter_and_paging(termweave, live):
    all_hits = json.loads(termweave("search", live, "python", "--json", "--filter", "kind=entry").stdout)["hits"]
    assert len(all_hits) == 5  # one document has no text
    second = json.loads(termweave("search", live, "-", "--json", "--from", "1", "-k", "2", stdin="python\n").stdout)["hits"]
    assert [hit["id"] for hit in second] == [hit["id"] for hit in all_hits[1:3]]
    assert [hit["rank"] for hit in second] == [2, 3]
    assert "Nothing found." in termweave("search", live, "python", "--filter", "kind=nothing").stdout
    assert "os.path.join" in termweave("search", live, "join path components", "--explain").stdout
    shown = valid(termweave("search", live, "join path components", "--json", "--highlight", "-k", "1").stdout, "search")
    (title, text) = shown["hits"][0]["highlights"]
    assert (title["field"], [title["text"][start:end] for start, end in title["matches"]]) == ("title", ["path", "join"])
    assert {"Join", "path", "components"} <= {text["text"][start:end] for start, end in text["matches"]}
    only = json.loads(termweave("search", live, "json", "--json", "--fields", "title").stdout)["hits"][0]
    assert set(only["fields"]) == {"title"}
    shown = termweave("search", live, "json", "--fields", "title,metadata.kind,nope")
    assert "     metadata.kind: entry\n" in shown.stdout
    assert "have a field 'nope'" in shown.stderr
    assert "metadata" not in termweave("search", live, "json").stdout
    for arguments in (["search", live, "  "], ["search", live, "-"], ["explain", live, "", "json"]):
        assert "The query is empty" in termweave(*arguments, stdin="\n", status=2).stderr


@pytest.mark.parametrize(
    "query",
    ["?!", "🙂", "the of and", "a" * 5000, "word " * 3000, "\u202eשלום", "os.path.join", '"quoted" AND (x OR y) *'],
)
def test_queries_that_say_little_or_too_much_are_answered(termweave, live, query):
    done = termweave("search", live, query, "--json", "--mode", "lexical:1,weights:1,dense:1")
    valid(done.stdout, "search")


def test_show_query_prints_requests_that_the_engine_takes(termweave, live, opensearch_engine):
    data = valid(termweave("search", live, "parse json", "--show-query", "--json", "--rerank", "rnn").stdout, "requests")
    search, fetch = data["requests"]
    body = "\n".join(json.dumps(line) for line in search["body"]) + "\n"
    answers = opensearch_engine.request(search["method"], search["path"], body=body.encode())
    assert all(answer["hits"]["hits"] for answer in answers["responses"])
    best = [hit["sort"][1] for hit in answers["responses"][0]["hits"]["hits"][:2]]
    assert fetch["path"].startswith(f"/{live}/_mget?")  # not the generation's: it may be pruned when an application asks
    found = opensearch_engine.request(fetch["method"], fetch["path"], body={"ids": best})["docs"]
    assert [each["_source"]["id"] for each in found] == best
    assert termweave("search", live, "parse json", "--show-query").stdout.startswith(f"POST /{live}/_msearch\n{{}}\n")


def test_explain_one_document_and_one_that_is_no_candidate(termweave, live):
    data = valid(termweave("explain", live, "parse json", "json", "--json").stdout, "explain")
    assert data["hit"]["rank"] == 1
    assert "rank 1" in termweave("explain", live, "parse json", "json", "--rerank", "rnn").stdout
    piped = json.loads(termweave("explain", live, "-", "json", "--json", stdin="parse json\n").stdout)
    assert (piped["query"], piped["hit"]) == ("parse json", data["hit"])
    nowhere = valid(termweave("explain", live, "parse json", "csv", "--mode", "weights", "--json").stdout, "explain")
    assert nowhere["hit"]["rank"] == 0
    done = termweave("explain", live, "parse json", "no-such-id", status=2)
    assert "has no document 'no-such-id'" in done.stderr


def test_evaluate_prints_a_table_and_writes_runs(termweave, live, folder, tmp_path):
    data = valid(termweave("evaluate", live, str(folder), "--json", "--save-run", str(tmp_path / "runs")).stdout, "evaluate")
    assert {row["system"] for row in data["rows"]} == {"BM25", "weights", "dense", "hybrid", "hybrid+rNN"}
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == [
        "BM25.trec",
        "dense.trec",
        "hybrid+rNN.trec",
        "hybrid.trec",
        "weights.trec",
    ]
    reports = (
        "--html",
        str(tmp_path / "r.html"),
        "--per-query",
        str(tmp_path / "v.tsv"),
        "--latency",
        "1",
        "--baseline",
        "dense",
    )
    timed = valid(termweave("evaluate", live, str(folder), "--mode", "hybrid", *reports, "--json").stdout, "evaluate")
    assert [each["latency_ms"] is not None for each in timed["systems"]] == [True, True]
    assert (timed["baseline"], (tmp_path / "r.html").read_text()[:15]) == ("dense", "<!doctype html>")
    assert len((tmp_path / "v.tsv").read_text().splitlines()) == 1 + 2 * 2
    line = (tmp_path / "runs" / "dense.trec").read_text().splitlines()[0].split()
    assert (line[1], line[3], line[5], len(line)) == ("Q0", "1", "dense", 6)
    assert "| BM25 |" in termweave("evaluate", live, str(folder), "--markdown", "-").stdout
    assert "paired randomisation test" in termweave("evaluate", live, str(folder)).stdout


def test_evaluate_on_other_documents_says_so(termweave, live, tmp_path, folder):
    other = tmp_path / "other"
    (other / "qrels").mkdir(parents=True)
    for file in ("corpus.jsonl", "queries.jsonl"):
        (other / file).write_bytes((folder / file).read_bytes())
    (other / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\tsomething-else\t1\n")
    assert "Not one judged document" in termweave("evaluate", live, str(other), status=1).stderr


def test_another_model_is_refused(termweave, live):
    done = termweave("search", live, "x", "--weights", "no-such-model", status=2)
    assert "no-such-model" in done.stderr


def test_standard_input_is_indexed(termweave, opensearch_engine):
    done = termweave(
        "index", "-", "cli-stdin", "--weights", "none", "--dense", "none", stdin='{"_id": "a", "text": "from a pipe"}\n'
    )
    assert "1 document in" in done.stdout
    assert "left out" in done.stderr
    opensearch_engine.request("DELETE", "/cli-stdin*")


def test_verify_ends_with_4_when_a_document_is_gone(termweave, folder, opensearch_engine):
    termweave("index", str(folder), "cli-gone", "--weights", "none", "--dense", "none")
    opensearch_engine.request("DELETE", "/cli-gone/_doc/json")
    done = termweave("verify", "cli-gone", "--json", status=4)
    assert valid(done.stdout, "verify")["missing"] == ["json"]
    assert "missing: json" in termweave("verify", "cli-gone", status=4).stdout
    opensearch_engine.request("DELETE", "/cli-gone*")


def test_unknown_names_list_the_known_ones(termweave, live):
    assert "Known names: " in termweave("search", "no-such-index", "x", status=2).stderr


def test_an_index_of_somebody_else_is_said_to_be_one(termweave, opensearch_engine):
    opensearch_engine.request("PUT", "/cli-foreign")
    assert "was not made by termweave" in termweave("search", "cli-foreign", "x", status=2).stderr
    assert "was not made by termweave" in termweave("verify", "cli-foreign", status=2).stderr
    opensearch_engine.request("DELETE", "/cli-foreign")


def test_generations_rollback_prune_and_delete(termweave, folder, tmp_path):
    small = tmp_path / "small.jsonl"
    small.write_text('{"_id": "a", "text": "x"}\n')
    options = ("--weights", "none", "--dense", "none")
    first = json.loads(termweave("index", str(small), "cli-gens", *options, "--json").stdout)["generation"]
    time.sleep(1.05)
    done = termweave("index", str(folder), "cli-gens", *options, "--json")
    second = json.loads(done.stdout)["generation"]
    assert f"'cli-gens' was made from 'small.jsonl'; this build puts {folder.name!r} in its place" in done.stderr
    listed = valid(termweave("generations", "cli-gens", "--json").stdout, "generations")["generations"]
    assert [(each["index"], each["live"]) for each in listed] == [(second, True), (first, False)]
    assert f"{first} is live; before it was {second}" in termweave("rollback", "cli-gens").stdout
    valid(termweave("promote", "cli-gens", second, "--json").stdout, "promote")
    assert "Delete it?" in termweave("prune", "cli-gens", "--keep", "1", stdin="n\n", status=130).stderr
    assert valid(termweave("prune", "cli-gens", "--keep", "1", "--yes", "--json").stdout, "prune")["deleted"] == [first]
    unanswered = termweave("delete", "cli-gens", status=2, stdin="").stderr
    assert "Nobody answered.\nWhere nobody is there to ask, say --yes." in unanswered
    assert "deleted, 1 generation." in termweave("delete", "cli-gens", "--yes").stdout
    assert "Build one" not in termweave("rollback", "cli-gens", status=2).stderr


def test_gates_end_with_3_and_say_why(termweave, live, folder, tmp_path):
    met = termweave("evaluate", live, str(folder), "--require", "nDCG@10>=0.1", "--save-run", str(tmp_path), "--json")
    assert valid(met.stdout, "evaluate")["gates"][0]["met"]
    assert "Met: hybrid: nDCG@10 of" in met.stderr
    missed = termweave("evaluate", live, f"{folder}:hard", "--require", "dense:MRR@10>=0.9", "--quiet", status=3)
    assert "NOT met: dense: MRR@10 of" in missed.stderr
    assert "does not reach 0.9 (2 queries)" in missed.stderr
    against = f"nDCG@10 within .01 of {tmp_path / 'hybrid.trec'}"
    # The saved run is what lay there before, though the same folder is written to.
    (tmp_path / "hybrid.trec").write_text("q1 Q0 nobody 1 1.0 old\nq2 Q0 nobody 1 1.0 old\n")
    again = termweave("evaluate", live, str(folder), "--require", against, "--save-run", str(tmp_path), status=3)
    assert "2 queries are too few" in again.stderr
    assert "nobody" not in (tmp_path / "hybrid.trec").read_text()
    assert "is not a requirement" in termweave("evaluate", live, str(folder), "--require", "better", status=2).stderr
    assert "no system 'magic'" in termweave("evaluate", live, str(folder), "--require", "magic:nDCG@10>=0", status=2).stderr
    assert "no measure 'P@10'" in termweave("evaluate", live, str(folder), "--require", "P@10>=.1", status=2).stderr
    nowhere = tmp_path / "no" / "report.md"
    said = termweave("evaluate", live, str(folder), "--markdown", str(nowhere), status=2).stderr
    assert f"{nowhere.parent} cannot be written to: it is not there." in said


def test_a_generation_that_misses_its_gate_is_not_published(termweave, folder, opensearch_engine):
    build = ("index", str(folder), "cli-gate", "--weights", "none", "--dense", "none")
    termweave(*build, "--require", "nDCG@10>=0.1")
    before = opensearch_engine.request("GET", "/_alias/cli-gate")
    time.sleep(1.05)
    done = termweave(*build, "--require", "nDCG@10>=0.9", "--on", f"{folder}:hard", status=3)
    assert "was not published" in done.stderr
    assert done.stderr.count("does not reach 0.9") == 1, done.stderr
    assert opensearch_engine.request("GET", "/_alias/cli-gate") == before
    for gate, why in (("P@10>=.1", "no measure 'P@10'"), ("nDCG@10 within .01 of no/such.trec", "cannot be read")):
        refused = termweave(*build[:2], "cli-gate-never", "--require", gate, "--on", str(folder), status=2)
        assert why in refused.stderr
    assert not opensearch_engine.request("GET", "/_cat/indices/cli-gate-never*", params={"format": "json"})
    opensearch_engine.request("DELETE", "/cli-gate*")


def test_a_closed_pipe_is_no_error(termweave, live, opensearch_engine):
    command = f"{sys.executable} -m termweave search {live} python -k 10 --json --url {opensearch_engine.url}; echo status $? >&2"
    done = subprocess.run(["bash", "-c", f"({command}) | head -c 1"], capture_output=True, text=True, check=False)
    assert "status 0" in done.stderr
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


def test_names_with_wildcards_and_hits_out_of_reach_are_said(termweave, live):
    assert "is not the name of an index" in termweave("search", "cli-*", "x", status=2).stderr
    for extra in ([], ["--show-query"]):
        said = termweave("search", live, "x", "-k", "10000", "--from", "9999", *extra, status=2).stderr
        assert "cannot be reached" in said


@pytest.mark.parametrize("arguments", [("weights", "the cat sat"), ("node", "status"), ("doctor",), ("config", "show")])
def test_what_the_others_print_is_as_their_schemas_say(termweave, arguments):
    valid(termweave(*arguments, "--json").stdout, arguments[0])


def test_documents_are_deleted_by_their_ids(termweave, folder, opensearch_engine, tmp_path):
    termweave("index", str(folder), "cli-few", "--weights", "none", "--dense", "none", "--passage-size", "8")
    asked = termweave("delete", "cli-few", "--id", "timer", "--id", "nobody", stdin="n\n", status=130).stderr
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
        "--analyzer is english there and german here"
        in termweave("index", str(folder), "cli-few", "--update", "--analyzer", "german", status=2).stderr
    )
    assert "belong to --update" in termweave("index", str(folder), "cli-few", "--new", status=2).stderr
    opensearch_engine.request("DELETE", "/cli-few*")


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
    build = ("index", str(judged), "cli-live", "--weights", "none", "--dense", "none", "--within", ".05", "--of-live")
    assert "no live generation to compare with" in termweave(*build).stderr
    before = opensearch_engine.request("GET", "/_alias/cli-live")
    write({**good, "d1": "nothing", "d2": "nothing", "d3": "nothing"})
    missed = termweave(*build, status=3).stderr
    assert "not surely within 0.05 (8 queries)" in missed
    assert opensearch_engine.request("GET", "/_alias/cli-live") == before
    assert "needs a new generation" in termweave(*build, "--update", status=2).stderr
    write({**good, "d9": "one more"})
    assert "within 0.05 (8 queries)" in termweave(*build, "--update", "--new").stderr
    assert opensearch_engine.request("GET", "/_alias/cli-live") != before
    assert "belong together" in termweave(*build[:-1], status=2).stderr
    opensearch_engine.request("DELETE", "/cli-live*")


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
    own = json.loads(
        termweave("search", "cli-own", "os.path.join", "--json", "--filter-json", '{"term": {"kind": "entry"}}').stdout
    )
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
    assert "holds no JSON object" in termweave(*build, "--settings", str(settings), status=2).stderr
    mapping.write_text('{"dynamic": true}')
    assert "termweave's own" in termweave(*build, "--mapping", str(mapping), status=2).stderr
    opensearch_engine.request("DELETE", "/cli-own*")


def test_a_plan_is_printed_and_nothing_is_built(termweave, folder):
    data = valid(termweave("index", str(folder), "cli-plan", "--plan", "--json").stdout, "plan")
    assert (data["documents"], data["clauses"]["of"]) == (6, "queries")
    shown = termweave("index", str(folder), "cli-plan", "--plan")
    assert "passages   6" in shown.stdout
    assert "1 document without any text" in shown.stderr
    termweave("generations", "cli-plan", status=2)
