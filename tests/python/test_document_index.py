"""`termweave.index` on a real OpenSearch: documents of a program go in, searches find them."""

import pytest

import termweave as tw
from termweave.errors import InputError, RefusedDocuments, UsageError
from termweave.indexer import LargeDeletion, UpdateMode

NOTES = [
    {"id": "boil", "title": "Boiling", "text": "Water boils at 100 degrees."},
    {"id": "green", "title": "Green tea", "text": "Steep green tea at 70 degrees.", "kind": "tea"},
]


@pytest.fixture
def connection(opensearch_engine):
    with tw.connect(opensearch_engine.url) as connection:
        yield connection


def test_a_data_frame_is_built_and_updated(connection, name):
    frame = pytest.importorskip("pandas").DataFrame(NOTES)
    stages = []

    def progress(stage, done, total):
        stages.append((stage, done, total))

    built = tw.index(frame, name, connection=connection, weights="none", dense="none", progress=progress)
    assert (built.documents, built.signals) == (2, ("lexical",))
    assert stages[-1] == ("Indexing", 2, 2)
    hits = connection.index(name).search("green tea", k=1)
    assert (hits[0].id, hits[0].fields["title"]) == ("green", "Green tea")
    more = [{"id": "pot", "text": "A warm clay pot."}, dict(NOTES[0], text="Water boils earlier on a mountain.")]
    with pytest.raises(UsageError, match="An update cannot change passages: the live generation was built with none, not 80"):
        tw.index(more, name, connection=connection, update=True, passages=80)
    updated = tw.index(more, name, connection=connection, update=True, passages=None, weights="none", vectors="float")
    assert updated.documents == 3
    assert [hit.id for hit in connection.index(name).search("mountain", k=1)] == ["boil"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"worker": 2}, r"no option 'worker'. Did you mean workers\?"),
        ({"text_field": "notes"}, r"no option 'text_field'. Did you mean text_fields\?"),
        ({"update": True, "delete_missing": True}, r"Write update=termweave\.indexer\.UpdateMode\(delete_missing=True\)\."),
        ({"text_fields": "notes"}, r"text_fields is a list of names, not the text 'notes'\. Write text_fields=\['notes'\]"),
        ({"workers": 0}, "workers must be at least 1, not 0"),
        ({"connection": "http://host:9200"}, r"not str\. Write connection=termweave\.connect\(ADDRESS\)\."),
    ],
)
def test_an_option_that_cannot_be_is_refused(options, message):
    with pytest.raises(UsageError, match=message):
        tw.index(NOTES, "x", **options)


def test_what_becomes_of_keys_missing_ids_and_sets_is_said(connection, name):
    own = {"connection": connection, "weights": "none", "dense": "none"}
    notes = tw.index(iter([*NOTES, {"id": "a", "text": "tea", "tags": {"z", "b", "k"}}]), name, **own).notes
    assert notes[0] == f"{name}: on its first item, id = 'id'; title = 'title'; text = 'text'."
    (hit,) = connection.index(name).search("tea", where="tags=k")
    assert hit.fields["metadata"]["tags"] == ["b", "k", "z"]
    frame = pytest.importorskip("pandas").DataFrame({"text": ["one", "two"], "kind": ["a", "b"]}, index=["x", "y"])
    notes = tw.index(frame, name, **own).notes
    assert notes[0] == f"{name}: on its first item, ids are the numbers of the items; text = 'text'; metadata = 'kind'."


def test_the_way_of_updating_is_what_the_caller_says(connection, name):
    own = {"connection": connection, "weights": "none", "dense": "none"}
    tw.index(NOTES, name, **own)
    with pytest.raises(LargeDeletion, match="would delete 1 of 2 documents") as refused:
        tw.index(NOTES[:1], name, connection=connection, update=UpdateMode(delete_missing=True))
    assert str(refused.value).endswith(
        "`termweave index --update --delete-missing --plan` reports what would change. If the documents are to go, add "
        "`--yes` (in Python UpdateMode(allow_deletions=0.5))."
    )
    updated = tw.index(NOTES[:1], name, connection=connection, update=UpdateMode(delete_missing=True, allow_deletions=0.5))
    assert (updated.documents, updated.deleted) == (1, 1)


def test_no_documents_at_all_are_refused_in_the_words_of_python(connection, name):
    read = iter(NOTES)
    list(read)
    for documents in ([], read):
        with pytest.raises(InputError, match=f"{name} contains no documents") as refused:
            tw.index(documents, name, connection=connection)
        assert refused.value.hint == "Pass at least one document; an iterator that was read before gives none."


def test_messages_name_items_and_not_lines(connection, name, monkeypatch):
    """The number is the same; the documents of a program have no lines."""
    monkeypatch.setattr("termweave.corpora.formats.fields.LONGEST_ID", 100_000)  # so that the server refuses one
    own = {"connection": connection, "weights": "none", "dense": "none"}
    with pytest.raises(InputError, match=f"{name}, item 3: neither a title nor a text"):
        tw.index([*NOTES, {"id": "c"}], name, **own)
    again = dict(NOTES[0], text="something else")
    with pytest.raises(InputError, match=f"{name}: item 3 has the id 'boil' of item 1, with other content"):
        tw.index([*NOTES, again], name, **own)
    built = tw.index([*NOTES, again, {"id": "c"}], name, **own, skip_bad=True)
    assert "'boil' (item 3; item 1 is kept)" in built.warnings[0]
    assert any(f"{name}, item 4: neither" in note for note in built.notes)
    long = {"id": "y" * 40_000, "text": "an id that no field can hold"}
    with pytest.raises(RefusedDocuments, match=r"\(item 3\)"):
        tw.index([*NOTES, long], name, **own)


def test_indices_are_listed_promoted_rolled_back_and_deleted(connection, name):
    built = [tw.index(NOTES[:count], name, connection=connection, weights="none", dense="none") for count in (1, 2)]
    first, second = (each.index for each in built)
    (listed,) = [each for each in connection.indices() if each["name"] == name]
    assert (listed["generation"], listed["documents"], listed["generations"]) == (second, 2, 2)
    assert [(each.index, each.live) for each in connection.generations(name)] == [(second, True), (first, False)]
    index = connection.index(name)
    assert connection.rollback(name) == first
    assert [hit.id for hit in index.search("green tea")] == []
    connection.promote(name, second)
    assert [hit.id for hit in index.search("green tea")] == ["green"]
    with pytest.raises(UsageError):
        connection.promote(name, f"{name}-20260101000000-00000000")
    assert sorted(connection.delete(name)) == sorted([first, second])
    with pytest.raises(UsageError):
        connection.generations(name)
