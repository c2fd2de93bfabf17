"""TLS, users and roles of a genuine Elasticsearch: the roles of docs/engines.md suffice, and a missing privilege is named.

The server has no index for native users, so users and roles are those of its files (the file realm).
"""

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.engine.certificates import Authority
from tests.engine.elasticsearch import server
from tests.engine.secured.conftest import done, termweave  # noqa: F401 - the fixture
from tests.engine.secured.server import PASSWORD

pytestmark = [pytest.mark.engine, pytest.mark.nightly]
_PAGE = (Path(__file__).parents[3] / "docs" / "engines.md").read_text(encoding="utf-8")
SEARCH, BUILD = (json.loads(block) for block in re.findall(r"```json\n(.*?)```", _PAGE.replace("NAME", "docs"), re.DOTALL))
_SETTINGS = """\
xpack.security.enabled: true
xpack.security.http.ssl: {enabled: true, certificate: node.pem, key: node.key}
xpack.security.transport.ssl.enabled: false
xpack.security.authc.realms.file.users: {order: 0}
"""
_QUERY = ("search", "docs", "run a function")
_BUILD = ("index", "{corpus}", "docs", "--fresh")
#: Privilege -> what cannot be done without it.
COMMANDS = {"read": _QUERY, "view_index_metadata": _QUERY, "write": _BUILD, "manage": _BUILD}


def without(role, privilege):
    """A role that lacks one privilege on the indices of the name."""
    first, *others = role["indices"]
    return role | {"indices": [first | {"privileges": [each for each in first["privileges"] if each != privilege]}, *others]}


#: User -> role.
USERS = {
    "searcher": SEARCH,
    "builder": BUILD,
    **{f"searcher-without-{each}": without(SEARCH, each) for each in SEARCH["indices"][0]["privileges"]},
    **{f"builder-without-{each}": without(BUILD, each) for each in BUILD["indices"][0]["privileges"]},
}


@pytest.fixture(scope="module", params=server.VERSIONS)
def secured(request, tmp_path_factory):
    authority = Authority(tmp_path_factory.mktemp("authority") / "files", "Ours")

    def prepare(started):
        for source, name in zip(authority.issue("node"), ("node.pem", "node.key"), strict=True):
            shutil.copy(source, started.conf / name)
        started.tool("elasticsearch-users", "useradd", "searcher", "-p", PASSWORD)
        hashed = (started.conf / "users").read_text().strip().partition(":")[2]
        (started.conf / "users").write_text("".join(f"{user}:{hashed}\n" for user in USERS))
        (started.conf / "users_roles").write_text("".join(f"{user}:{user}\n" for user in USERS))
        (started.conf / "roles.yml").write_text("".join(f"{user}: {json.dumps(role)}\n" for user, role in USERS.items()))

    started = server.start(request.param, _SETTINGS, prepare, scheme="https")
    started.authority = authority
    yield started
    started.close()


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.jsonl"
    texts = {"timer": "A thread that runs a function later.", "json": "Parse a document from a string."}
    path.write_text("".join(json.dumps({"_id": key, "text": text}) + "\n" for key, text in texts.items()))
    return path


def test_the_least_roles_suffice_and_one_privilege_less_is_named(termweave, corpus):  # noqa: F811
    done(termweave("builder", "index", corpus, "docs", "--analyzer", "standard"))
    for user in ("searcher", "builder"):
        assert "timer" in done(termweave(user, *_QUERY, "--rerank", "rnn", "--explain"))
        assert "rank 1" in done(termweave(user, "explain", "docs", "run a function", "timer"))
    assert "all there" in done(termweave("builder", "verify", "docs", "--deep"))
    assert "docs" in done(termweave("builder", "generations", "docs"))
    corpus.write_text(corpus.read_text().replace("later", "later on"))
    done(termweave("builder", "index", corpus, "docs", "--update"))
    done(termweave("builder", "index", corpus, "docs", "--analyzer", "standard", "--fresh"))
    done(termweave("builder", "rollback", "docs"))
    for name, role in (("searcher", SEARCH), ("builder", BUILD)):
        for privilege in role["indices"][0]["privileges"]:
            command = [each.format(corpus=corpus) for each in COMMANDS[privilege]]
            command += ["--analyzer", "standard"] if command[0] == "index" else []
            code, text = termweave(f"{name}-without-{privilege}", *command)
            assert code == 1, (name, privilege, text)
            assert re.search(rf"is unauthorized for user \[{name}-without-{privilege}\]", text), text
            assert re.search(rf"index privileges \[[^]]*\b{privilege}\b", text), text
            assert "The role of this user lacks a permission" in text
    done(termweave("builder", "prune", "docs", "--keep", "1", "--yes"))
    done(termweave("builder", "delete", "docs", "--yes"))


def test_a_wrong_password_has_its_sentence(termweave, monkeypatch):  # noqa: F811
    monkeypatch.setattr("tests.engine.secured.server.PASSWORD", "wrong")
    code, text = termweave("searcher", "list")
    assert (code, "401" in text, "--password" in text) == (1, True, True)
