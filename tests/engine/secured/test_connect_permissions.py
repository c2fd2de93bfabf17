"""The role of `termweave connect` in docs/permissions.md on a server that checks: it suffices, and without one permission the error names it."""

from __future__ import annotations

import pytest

from termweave import engine
from termweave.errors import EngineError
from tests.engine.secured.conftest import BUILDER, CONNECT, SEARCH, as_settings, done, joined, without
from tests.serving.connector.conftest import answering

pytestmark = [pytest.mark.engine, pytest.mark.nightly]


def through_the_pipeline(secured, *cluster):
    """Search as an application whose role has these permissions on the cluster: the number of hits."""
    reads = {"index_patterns": ["docs", "docs-*"], "allowed_actions": ["indices:data/read/search"]}
    secured.role("application", {"cluster_permissions": list(cluster), "index_permissions": [reads]})
    with engine.connect(as_settings(secured, "application")) as connection:
        body = {"query": {"match": {"text": "run"}}}
        answer = connection.request("POST", "/docs/_search", params={"search_pipeline": "docs-learned"}, body=body)
    return len(answer["hits"]["hits"])


def test_the_role_suffices_and_no_permission_is_too_much(secured, termweave, corpus):
    secured.role("builder", BUILDER)
    done(termweave("builder", "index", corpus(3), "docs", "--weights", "none", "--dense", "none"))
    unnamed = {}
    with answering(body={"query": {"match_all": {}}}) as url:
        connect = ("connect", "docs", "--model-server", url)
        secured.role("connector", joined(SEARCH, CONNECT))
        done(termweave("connector", *connect))
        assert through_the_pipeline(secured, "cluster:admin/opensearch/ml/predict") == 3
        with pytest.raises(EngineError, match="cluster:admin/opensearch/ml/predict"):
            through_the_pipeline(secured)
        assert "removed search pipeline docs-learned" in done(termweave("connector", "connect", "docs", "--remove"))
        for missing in CONNECT["cluster_permissions"]:
            for _ in range(3):  # the server takes up a role a moment after it was stored
                secured.role("connector", joined(SEARCH, without(CONNECT, missing)))
                answers = [termweave("connector", *connect), termweave("connector", "connect", "docs", "--remove")]
                named = any(code == 1 and f"no permissions for [{missing}]" in text for code, text in answers)
                secured.role("connector", joined(SEARCH, CONNECT))
                done(termweave("connector", "connect", "docs", "--remove"))  # what was left
                if named:
                    break
            else:
                unnamed[missing] = answers
    assert not unnamed
