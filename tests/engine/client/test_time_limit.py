"""The time-out counts for all attempts of a request together, and a build says how long it waited for the server."""

from __future__ import annotations

import socket
import time

import pytest

from termweave import engine, settings
from termweave.cli import run
from termweave.engine.client.retries import Retries
from termweave.errors import EngineUnreachable
from termweave.indexer.builder import waits


def test_a_server_that_never_answers_ends_within_the_time_out(capsys):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        assert run(["list", "--url", f"http://127.0.0.1:{silent.getsockname()[1]}", "--timeout", "1"]) == 5
        assert time.monotonic() - began < 3.5  # it was four attempts for each request
    assert "did not answer" in capsys.readouterr().err


def test_what_a_build_waited_is_counted_and_said():
    calls = []

    def call(_):
        calls.append(1)
        if len(calls) < 3:
            raise EngineUnreachable("away")
        return "here"

    patient = Retries(30)
    assert patient.run(call, repeatable=True) == "here"
    assert 0 < patient.waited < 5
    server = engine.connect(settings.load(url="http://127.0.0.1:9")).patient(60)
    assert waits(server) == []
    server.add_wait(61.2)
    assert waits(server)[0].startswith("Waited 61 s for the server")


def test_without_patience_attempts_end_with_the_limit():
    calls = []

    def call(_):
        calls.append(1)
        time.sleep(0.06)
        raise EngineUnreachable("slow")

    with pytest.raises(EngineUnreachable):
        Retries().run(call, repeatable=True, limit=0.05)
    assert len(calls) == 1
