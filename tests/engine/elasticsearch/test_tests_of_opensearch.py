"""The tests that were written for OpenSearch hold on Elasticsearch, except for what docs/engines.md says, and it ranks alike."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.nightly]
ROOT = Path(__file__).parents[3]
FILES = (
    "tests/cli/test_main_path.py",
    "tests/indexer/enrichment/test_followed_names.py",
    "tests/indexer/enrichment/test_owners_limits.py::test_a_search_says_that_an_enrichment_did_not_end",
    "tests/cli/test_profiles.py",
    "tests/search/test_index.py",
    "tests/search/results",
    "tests/search/retrieval",
    "tests/ui/test_api.py",
)
#: Parts of names of tests that do not hold there, and why.
OTHERWISE = {
    "server_fuses": "there is no query `hybrid`",
    "term_frequenc": "there is no token filter `delimited_term_freq`",
    "matched and lexical": "the archive has no stemmer",
    "overlap_are_shown_once": "the archive has no analyzer `cjk`",
}


@pytest.fixture
def english(elasticsearch_engine):
    """The analyzer `english`, which the archive lacks, without its stemmer; and patterns that delete indices."""
    analyzer = {"english": {"type": "standard", "stopwords": "_english_"}}
    body = {"index_patterns": ["*"], "priority": 1, "template": {"settings": {"analysis": {"analyzer": analyzer}}}}
    deleting = {"action.destructive_requires_name": False}
    elasticsearch_engine.request("PUT", "/_cluster/settings", body={"persistent": deleting})
    elasticsearch_engine.request("PUT", "/_index_template/english", body=body)
    yield
    elasticsearch_engine.request("DELETE", "/_index_template/english")
    elasticsearch_engine.request("PUT", "/_cluster/settings", body={"persistent": dict.fromkeys(deleting)})


def run(command, folder, **environment):
    """Run Python in a folder; it must succeed. Returns what it printed."""
    options = {"cwd": folder, "env": os.environ | environment, "capture_output": True, "text": True}
    ended = subprocess.run([sys.executable, *command], check=False, **options)
    assert ended.returncode == 0, ended.stdout[-5000:] + ended.stderr[-2000:]
    return ended.stdout


def test_they_hold(elasticsearch_engine, english):
    newest = elasticsearch_engine.capabilities.version.startswith("9.")
    files = FILES if newest else FILES[:1]  # all of them on both versions takes four minutes more
    chosen = f"not ({' or '.join(f'({name})' for name in OTHERWISE)})"
    command = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "engine and not slow", "-k", chosen, *files)
    assert " passed" in run(command, ROOT, OPENSEARCH_URL=elasticsearch_engine.url)


def test_three_sets_are_ranked_alike(opensearch_engine, elasticsearch_engine, elastic_name, shared, own_places):
    sets = [str(shared / "data" / name) for name in ("stackfaq", "cranfield", "vaswani")]
    arguments = ["--elasticsearch", elasticsearch_engine.url, "--documents", "50", "--queries", "12", "--name", elastic_name]
    places = {"OPENSEARCH_URL": opensearch_engine.url, "XDG_STATE_HOME": str(own_places / "xdg-state")}
    try:
        printed = run(["engines.py", *sets, *arguments], ROOT / "benchmarks", **places)
    finally:
        opensearch_engine.request("DELETE", f"/{elastic_name}*", params={"expand_wildcards": "all"})
    rows = re.findall(r"^\| \w+ \| 50 \| 12 \| (\S+) \| 12 of 12 \| (\S+) \|$", printed, re.MULTILINE)
    assert [system for system, _ in rows] == ["lexical", "weights", "dense", "hybrid", "hybrid+rNN"] * 3, printed
    assert all(float(difference) < 1e-5 for _, difference in rows)
