"""An enriched index whose application went on writing says how far it is behind."""

import pytest

from termweave.cli import run
from termweave.search import Index

TEXTS = {
    "Kettle": "Kettle boils water for tea", "Teapot": "Teapot brews green tea", "Grinder": "Coffee grinder grinds beans",
    "Toaster": "Toaster browns bread", "Mixer": ["Mixer stirs", "", "dough"], "Pan": None,
}  # fmt: skip


@pytest.fixture
def shop(opensearch_engine, name, termweave):
    """An application's index of six documents, enriched; and a function that says what a search printed."""
    index = f"{name}-shop"
    body = {"settings": {"index.knn": True}, "mappings": {"properties": {"title": {"type": "text"}, "text": {"type": "text"}}}}
    opensearch_engine.request("PUT", f"/{index}", body=body)
    for number, (title, text) in enumerate(TEXTS.items()):
        document = {"title": title, "text": text}
        opensearch_engine.request("PUT", f"/{index}/_doc/{number}", params={"refresh": True}, body=document)
    termweave("enrich", index, "--url", opensearch_engine.url)
    return index


def write_on(engine, index):
    """What `cases/stale.md` does."""
    now = {"refresh": True}
    engine.request("PUT", f"/{index}/_doc/0", params=now, body={"title": "Airplane", "text": "Airplane engines need kerosene"})
    engine.request("POST", f"/{index}/_update/1", params=now, body={"doc": {"text": "Submarine dives deep"}})
    engine.request("PUT", f"/{index}/_doc/99", params=now, body={"title": "Samovar", "text": "Samovar heats water for tea"})


def test_what_is_not_enriched_and_what_was_changed_is_counted_in_each_answer(shop, opensearch_engine, capsys, tmp_path):
    answer = Index.open(opensearch_engine, shop).answer("how to make tea", k=6)
    assert (len(answer.hits), answer.remarks) == (6, ())
    write_on(opensearch_engine, shop)
    index = Index.open(opensearch_engine, shop)
    remedy = f"run 'termweave enrich {shop}', or leave 'termweave enrich {shop} --watch 5' running."
    lacking = "2 of 7 documents are not enriched yet and found by lexical alone"
    found = index.answer("samovar", k=1, candidates=1)
    assert "99" not in {hit.id for hit in found.hits}
    assert found.remarks[0].startswith(lacking)
    assert "contains a word of the query" not in " ".join(found.remarks)
    answer = index.answer("how to make tea")
    assert answer.hits[0].id == "1"
    assert f"{lacking}; 1 hit was changed after it was enriched: {remedy}" in answer.remarks
    assert index.explain("tea", "99", mode="lexical").rank == 1
    judged = tmp_path / "set"
    (judged / "qrels").mkdir(parents=True)
    (judged / "corpus.jsonl").write_text('{"_id": "1", "text": "a"}\n')
    (judged / "queries.jsonl").write_text('{"_id": "q", "text": "tea"}\n')
    (judged / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\t1\t1\n")
    for command, said in (
        (["evaluate", shop, str(judged)], f"{lacking}: {remedy}"),
        (["search", shop, "--queries", str(judged), "--run", str(tmp_path / "run")], f"{lacking}: {remedy}"),
        (["enrich", shop], ""),
    ):
        assert run([*command, "--url", opensearch_engine.url]) == 0
        assert said in " ".join(capsys.readouterr().err.split())
    assert Index.open(opensearch_engine, shop).answer("samovar").remarks == ()


def test_an_alias_counts_what_it_shows(shop, opensearch_engine):
    write_on(opensearch_engine, shop)
    add = {"index": shop, "alias": f"{shop}-a", "filter": {"ids": {"values": ["0", "2"]}}}
    opensearch_engine.request("POST", "/_aliases", body={"actions": [{"add": add}]})
    (remark,) = Index.open(opensearch_engine, f"{shop}-a").answer("coffee").remarks
    assert remark.startswith(f"1 of 2 documents is not enriched yet and found by lexical alone: run 'termweave enrich {shop}'")
