"""`termweave node` and `termweave doctor` where no node runs, and what doctor says of one that does."""

import json

from click.testing import CliRunner

from termweave.cli.verbs import doctor, node
from termweave.errors import UsageError


def run(command, *arguments, **options):
    return CliRunner().invoke(command, list(arguments), **options)


def test_without_a_node_status_says_how_to_start_one():
    found = json.loads(run(node.command, "status", "--json").stdout)
    assert found == {"schema": "termweave.node/1", "url": None, "version": None, "nodes": [], "state": "none"}
    assert "termweave node start" in run(node.command, "status").stdout
    assert run(node.command, "stop").stdout == "It was not running.\n"
    assert isinstance(run(node.command, "logs").exception, UsageError)


def test_doctor_names_everything_and_says_what_the_places_hold(monkeypatch, tmp_path):
    monkeypatch.delenv("OPENSEARCH_URL", raising=False)
    monkeypatch.setattr("termweave.support.paths.state", lambda: tmp_path)
    (tmp_path / "file").write_bytes(bytes(1_900_000))  # 1.8 of 1024 * 1024 bytes
    text = run(doctor.command).stdout
    for word in ("Python", "Java", "Memory", "Disk", "OpenSearch", "ONNX Runtime", "Shipped models", "Chosen model", "Folders"):
        assert word in text
    (line,) = [each for each in text.splitlines() if each.split()[:1] == ["state"]]
    assert line.endswith(" 1.9 MB")
    assert "hold" in text.splitlines()[-1]
    assert "termweave node start" in text
    answer = json.loads(run(doctor.command, "--json").stdout)
    assert {"state", "cache", "config", "models"} <= {each["name"] for each in answer["places"]}
    assert answer["ok"] == all(each["ok"] for each in answer["findings"])


def test_doctor_says_what_an_old_elasticsearch_cannot_store(scripted):
    scripted.answers = {"/": (200, {"version": {"number": "8.13.0"}}), "*": (400, {"error": "no such thing"})}
    done = run(doctor.command, "--url", scripted.url, "--json")
    (found,) = [each for each in json.loads(done.stdout)["findings"] if each["name"] == "Elasticsearch"]
    assert found["text"].startswith("elasticsearch 8.13.0 at ")
    assert found["advice"].startswith("No term weights can be stored: this Elasticsearch is older than 8.19")


def test_doctor_fails_where_the_named_server_does_not_answer(closed_port):
    done = run(doctor.command, "--json", "--url", f"http://127.0.0.1:{closed_port}")
    found = {each["name"]: each for each in json.loads(done.stdout)["findings"]}["OpenSearch"]
    assert done.exit_code == 1
    assert not found["ok"]
    assert str(closed_port) in found["text"]


def test_doctor_says_what_the_server_can(opensearch_node):
    findings = json.loads(run(doctor.command, "--json", "--url", opensearch_node).stdout)["findings"]
    (server,) = [each for each in findings if each["name"] == "OpenSearch"]
    assert server["ok"]
    assert server["capabilities"]["version"] in server["text"]
