"""What is called from Python with arguments of another kind: refused at the door, with what to write."""

from __future__ import annotations

import pytest

from termweave import connect, indexer
from termweave.errors import UsageError
from termweave.evaluation import evaluate, tune
from termweave.search import Index
from tests.indexer.builds import LEXICAL, numbered


@pytest.mark.engine
def test_arguments_of_another_kind_are_refused_at_the_door(opensearch_engine, name, corpus):
    engine, source = opensearch_engine, corpus(numbered(3))
    generation = indexer.build(engine, source, name, LEXICAL).index
    index, connection = Index.open(engine, name), connect(engine.url)
    for said, calls in {
        "source must be an open source, not str. Write termweave.corpora.open_source(PATH).": [
            lambda: indexer.build(engine, "./docs", "docs", LEXICAL),
            lambda: indexer.update(engine, "./docs", name, LEXICAL),
            lambda: indexer.plan("./docs", engine.capabilities, LEXICAL),
            lambda: indexer.verify_against_source(engine, generation, "./docs"),
        ],
        "engine must be an Engine, not Connection. Write termweave.connect().engine.": [
            lambda: indexer.build(connection, source, "docs", LEXICAL),
            lambda: indexer.update(connection, source, name, LEXICAL),
            lambda: indexer.up_to_date(connection, source, name, LEXICAL),
            lambda: Index.open(connection, name),
            lambda: Index.pinned(connection, name),
        ],
        "options must be BuildOptions, not dict.": [
            lambda: indexer.build(engine, source, "docs", {"weights": "none"}),
            lambda: indexer.update(engine, source, name, {}),
        ],
        "dataset must be an open data set, not str. Write termweave.corpora.open_dataset(PATH).": [
            lambda: evaluate(index, "./docs"),
            lambda: tune(index, "./docs"),
        ],
        "index must be an open Index, not str. Write termweave.connect().index(NAME).": [
            lambda: evaluate(name, source),
            lambda: tune(name, source),
        ],
        "5 cannot be the name of an index.": [lambda: indexer.build(engine, source, 5, LEXICAL)],
        "5 is not the name of an index.": [lambda: connection.index(5)],
    }.items():
        for call in calls:
            with pytest.raises(UsageError) as caught:
                call()
            assert str(caught.value).startswith(said)
