"""The role of `termweave connect` in docs/permissions.md on a server that checks: it suffices, and without one permission the error names it."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from pathlib import Path

import pytest

from tests.engine.secured import server
from tests.ui.connector.conftest import answering

pytestmark = [pytest.mark.engine, pytest.mark.nightly]
_PAGE = (Path(__file__).parents[3] / "docs" / "permissions.md").read_text(encoding="utf-8").replace("NAME", "docs")
SEARCH, BUILD, LOCK, _, _, CONNECT = (json.loads(block) for block in re.findall(r"```json\n(.*?)```", _PAGE, re.DOTALL))


@pytest.fixture(scope="module")
def secured(own_places):
    """A server with the security plugin and ml-commons."""
    root = Path(tempfile.mkdtemp(prefix="termweave-secured-"))
    root.chmod(0o711)
    started = server.start(root, ml=True)
    yield started
    started.close()
    shutil.rmtree(root, ignore_errors=True)


def test_the_role_suffices_and_no_permission_is_too_much(secured, termweave, corpus):
    secured.role("builder", BUILD | {"index_permissions": [*BUILD["index_permissions"], LOCK]})
    code, text = termweave("builder", "index", corpus(3), "docs", "--weights", "none", "--dense", "none")
    assert code == 0, text
    needed, indices = CONNECT["cluster_permissions"], SEARCH["index_permissions"]
    unnamed = {}
    with answering(body={"query": {"match_all": {}}}) as url:
        connect = ("connect", "docs", "--model-server", url)
        for missing in (None, *needed):
            cluster = [*SEARCH["cluster_permissions"], *(each for each in needed if each != missing)]
            secured.role("connector", {"cluster_permissions": cluster, "index_permissions": indices})
            answers = [termweave("connector", *connect), termweave("connector", "connect", "docs", "--remove")]
            if missing is None:
                assert [code for code, _ in answers] == [0, 0], "".join(text for _, text in answers)
                assert "removed search pipeline docs-learned" in answers[1][1]
            elif not any(code == 1 and f"no permissions for [{missing}]" in text for code, text in answers):
                unnamed[missing] = answers
            if missing is not None:  # what a refused --remove left
                secured.role(
                    "connector", {"cluster_permissions": [*SEARCH["cluster_permissions"], *needed], "index_permissions": indices}
                )
                code, text = termweave("connector", "connect", "docs", "--remove")
                assert code == 0, text
    assert not unnamed
