"""What `termweave connect` refuses before it writes anything, on a server without ml-commons."""

from __future__ import annotations

import pytest

from termweave.cli import run


@pytest.fixture
def termweave(opensearch_engine, monkeypatch, capsys):
    if "opensearch-ml" in opensearch_engine.capabilities.plugins:
        pytest.skip("this server has ml-commons")
    monkeypatch.setenv("OPENSEARCH_URL", opensearch_engine.url)

    def call(*arguments):
        status = run(list(arguments))
        return status, capsys.readouterr().err

    return call


@pytest.mark.parametrize("options", [(), ("--plan",), ("--remove",)])
def test_a_cluster_without_ml_commons(termweave, name, options):
    status, text = termweave("connect", name, *options)
    assert status == 2
    assert "lacks the plugin ml-commons" in text
    assert "termweave node start --ml" in text


def test_options_that_contradict_each_other(termweave, name):
    status, text = termweave("connect", name, "--remove", "--fallback")
    assert status == 2
    assert "--remove" in text
