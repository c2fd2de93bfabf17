"""The role of `termweave connect` in docs/permissions.md on a server that checks: it suffices, and without one permission the error names it."""

from __future__ import annotations

import pytest

from termweave import engine, settings
from termweave.errors import EngineError
from tests.engine.secured import server
from tests.engine.secured.conftest import roles
from tests.serving.connector.conftest import answering

pytestmark = [pytest.mark.engine, pytest.mark.nightly]
SEARCH, BUILD, LOCK, _, _, CONNECT = roles()


def through_the_pipeline(secured, *cluster):
    """Search as an application whose role has these permissions on the cluster: the number of hits."""
    reads = {"index_patterns": ["docs", "docs-*"], "allowed_actions": ["indices:data/read/search"]}
    secured.role("application", {"cluster_permissions": list(cluster), "index_permissions": [reads]})
    reached = settings.load(
        url=secured.url, user="application", password=server.PASSWORD, ca_certs=str(secured.authority.certificate)
    )
    with engine.connect(reached) as connection:
        body = {"query": {"match": {"text": "run"}}}
        answer = connection.request("POST", "/docs/_search", params={"search_pipeline": "docs-learned"}, body=body)
    return len(answer["hits"]["hits"])


def test_the_role_suffices_and_no_permission_is_too_much(secured, termweave, corpus):
    secured.role("builder", BUILD | {"index_permissions": [*BUILD["index_permissions"], LOCK]})
    code, text = termweave("builder", "index", corpus(3), "docs", "--weights", "none", "--dense", "none")
    assert code == 0, text
    needed, indices = CONNECT["cluster_permissions"], SEARCH["index_permissions"]
    unnamed = {}
    with answering(body={"query": {"match_all": {}}}) as url:
        connect = ("connect", "docs", "--model-server", url)
        full = {"cluster_permissions": [*SEARCH["cluster_permissions"], *needed], "index_permissions": indices}
        secured.role("connector", full)
        code, text = termweave("connector", *connect)
        assert code == 0, text
        assert through_the_pipeline(secured, "cluster:admin/opensearch/ml/predict") == 3
        with pytest.raises(EngineError, match="cluster:admin/opensearch/ml/predict"):
            through_the_pipeline(secured)
        answers = [termweave("connector", "connect", "docs", "--remove")]
        assert answers[0][0] == 0, answers[0][1]
        assert "removed search pipeline docs-learned" in answers[0][1]
        for missing in needed:
            for _ in range(3):  # the server takes up a role a moment after it was stored
                cluster = [*SEARCH["cluster_permissions"], *(each for each in needed if each != missing)]
                secured.role("connector", {"cluster_permissions": cluster, "index_permissions": indices})
                answers = [termweave("connector", *connect), termweave("connector", "connect", "docs", "--remove")]
                named = any(code == 1 and f"no permissions for [{missing}]" in text for code, text in answers)
                secured.role("connector", full)
                code, text = termweave("connector", "connect", "docs", "--remove")  # what was left
                assert code == 0, text
                if named:
                    break
            else:
                unnamed[missing] = answers
    assert not unnamed
