"""`termweave enrich --watch`: what the application writes is enriched, and a watch goes on after a kill."""

import json
import os
import signal
import subprocess
import sys
import time
from itertools import count
from types import SimpleNamespace

import pytest

from termweave.engine import Engine
from termweave.indexer.enrichment import index_passes
from termweave.indexer.enrichment.index_passes import Watch
from termweave.search import Index
from tests.indexer.builds import sources
from tests.indexer.conftest import before

from .conftest import WEIGHTS, put, write


def until(holds):
    end = time.monotonic() + 180
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.1)


def is_enriched(engine, index, *keys):
    """Whether these documents have the fields of the text that they hold now."""
    found, stored = Index.open(engine, index), sources(engine, index)
    return all("termweave" in stored[key] and found.search(stored[key]["name"], k=1)[0].id == key for key in keys)


@pytest.fixture
def watching(opensearch_engine, own_places):
    """A function that starts `termweave enrich --watch` as a process, and returns it when it watches."""
    started = []

    def start(index):
        line = [sys.executable, "-m", "termweave", "enrich", index, "--text-field", "name", "--watch", "0.2", "--json"]
        environment = {**os.environ, "OPENSEARCH_URL": opensearch_engine.url, "XDG_STATE_HOME": str(own_places / "xdg-state")}
        process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        started.append(process)
        while "watched every 0.2 s" not in (said := process.stderr.readline()):
            assert said or process.poll() is None
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_a_watch_enriches_what_the_application_writes_and_goes_on_after_a_kill(shop, enrich, opensearch_engine, watching):
    index = shop()
    watch = watching(index)
    put(opensearch_engine, index, p3="a hammock for the garden", new="an umbrella")
    opensearch_engine.request("DELETE", f"/{index}/_doc/p7")
    until(lambda: is_enriched(opensearch_engine, index, "p3", "new"))
    assert "Another build" in enrich(index, "--watch", "1", status=1)  # one writer
    put(opensearch_engine, index, p4="a trampoline")
    watch.kill()  # perhaps before that was written
    watch.wait()
    put(opensearch_engine, index, late="a garden gnome")
    watch = watching(index)
    until(lambda: is_enriched(opensearch_engine, index, "p3", "p4", "new", "late"))
    put(opensearch_engine, index, p4="a telescope")
    until(lambda: is_enriched(opensearch_engine, index, "p4"))
    watch.send_signal(signal.SIGTERM)
    said, _ = watch.communicate(timeout=180)
    assert watch.returncode == 0
    assert json.loads(said)["written"] >= 2
    done = enrich(index)
    assert (done["documents"], done["written"]) == (31, 0)


def test_a_watch_keeps_the_newest_text_and_reads_only_what_was_written(shop, opensearch_engine, enrich, watch, monkeypatch):
    index = shop()
    enrich(index, *WEIGHTS)
    read, pages, counts = [], index_passes.pages, []

    def meanwhile(engine, index, writes):
        if writes:
            read.append(sorted(hit["_id"] for hit, _ in writes))
        if read == [["p1", "p2"]]:
            put(engine, index, p1="a second text")  # after the watch has read the first one

    monkeypatch.setattr(index_passes, "pages", lambda *asked: (counts.append(len(page)) or page for page in pages(*asked)))
    steps = [
        lambda: put(opensearch_engine, index, p1="a first text", p2="another text"),
        lambda: opensearch_engine.request("DELETE", f"/{index}/_doc/p9", params={"refresh": True}),
    ]
    with before(index_passes, "send", meanwhile):
        done, _ = watch(index, *steps, lambda: None, lambda: None, options=())
    stored = sources(opensearch_engine, index)
    assert (stored["p1"]["name"], stored["p2"]["name"]) == ("a second text", "another text")
    assert is_enriched(opensearch_engine, index, "p1", "p2")
    assert read == [["p1", "p2"], ["p1"]]
    assert (done["documents"], done["written"], done["conflicts"]) == (29, 2, 1)
    assert sum(counts[1:]) < 30  # the whole index was read once


def test_a_watch_starts_beside_a_steady_writer(shop, opensearch_engine, enrich, watch):
    index, number = shop(), count()

    def meanwhile(engine, index, writes):
        if writes and (text := next(number)) < 20:  # after the documents were read
            put(engine, index, p1=f"a text of minute {text}", p2="another text")

    with before(index_passes, "send", meanwhile):
        done, _ = watch(index, *[lambda: None] * 30)
    assert done["conflicts"] > 6
    assert done["documents"] == 30
    assert is_enriched(opensearch_engine, index, *(f"p{number}" for number in range(30)))
    assert enrich(index)["written"] == 0


def test_a_watch_leaves_out_what_it_cannot_read_and_names_it(shop, opensearch_engine, enrich, watch):
    index = shop({"about": {"type": "object", "enabled": False}})

    def odd(key, **fields):
        write(opensearch_engine, index, {key: {"name": "a drum", **fields}})

    def late():
        put(opensearch_engine, index, late="a telescope")

    fields = ("--title-field", "about", "--text-field", "name")
    enrich(index, *WEIGHTS, fields=fields)
    odd("early", about={"of": "wood"})
    assert "'early'" in enrich(index, fields=fields, status=1)
    steps = (lambda: odd("odd", about=[{"of": 7}]), late, lambda: odd("odd", about={"of": "tin"}, stock=5), lambda: None)
    done, said = watch(index, *steps, options=(), fields=fields)
    for key in ("early", "odd"):
        assert sum(text.startswith("Left out:") and f"document '{key}':" in text for text in said) == 1
    assert done["documents"] == 31
    assert sources(opensearch_engine, index)["odd"] == {"name": "a drum", "about": {"of": "tin"}, "stock": 5}
    assert is_enriched(opensearch_engine, index, "late")


def test_a_watch_goes_on_while_a_shard_is_not_open_yet(shop, watch, opensearch_engine, monkeypatch):
    """A node that starts answers before it has opened all of its shards, and then leaves `seq_no` out of their statistics."""
    index = shop()
    request, looks = Engine.request, []

    def starting(self, method, path, **options):
        answer = request(self, method, path, **options)
        if path.endswith("/_stats/docs") and len(looks) < 2:
            looks.append([copy.pop("seq_no") for copy in answer["indices"][index]["shards"]["0"]])
        return answer

    texts = {f"p{number}": f"a telescope {number}" for number in range(9)}
    monkeypatch.setattr(Engine, "request", starting)
    done, _ = watch(index, lambda: put(opensearch_engine, index, **texts), lambda: None)
    assert done["written"] == 39
    assert len(looks) == 2
    assert is_enriched(opensearch_engine, index, "p0", "p1", "p8")


@pytest.mark.parametrize(("hidden", "reads"), [(1, 2), (3, 4), (10_000, 10)], ids=["once", "thrice", "deletions"])
def test_writes_that_a_copy_does_not_show_are_read_again(monkeypatch, hidden, reads):
    """A copy that is cut off answers without the last writes; deletions leave nothing to read, which is believed after ten looks."""
    monkeypatch.setattr(index_passes, "checkpoints", lambda *_: {"uuid/0": 7})
    looks = []

    def run(after):
        looks.append(dict(after))
        return SimpleNamespace(last={"uuid/0": -1 if len(looks) <= hidden else 7})

    watch = Watch(SimpleNamespace(engine=None, index="docs", run=run), {"uuid/0": 4})
    for _ in range(20):
        watch.look()
    assert looks == [{"uuid/0": 4}] * reads
