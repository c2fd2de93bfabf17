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
    engine, source, connection = opensearch_engine, corpus(numbered(3)), connect(opensearch_engine.url)
    indexer.build(engine, source, name, LEXICAL)
    for said, call, *arguments in (
        ("source must be an open source, not str. Write ", indexer.build, engine, "./docs", "docs", LEXICAL),
        ("source must be an open source", indexer.plan, "./docs", engine.capabilities, LEXICAL),
        (
            "engine must be an Engine, not Connection. Write termweave.connect().",
            indexer.build,
            connection,
            source,
            "docs",
            LEXICAL,
        ),
        ("engine must be an Engine", Index.open, connection, name),
        ("options must be BuildOptions, not dict.", indexer.update, engine, source, name, {}),
        ("dataset must be an open data set, not str. Write ", evaluate, Index.open(engine, name), "./docs"),
        ("index must be an open Index, not str. Write termweave.connect().index(NAME).", tune, name, source),
        ("5 cannot be the name of an index.", indexer.build, engine, source, 5, LEXICAL),
        ("5 is not the name of an index.", connection.index, 5),
    ):
        with pytest.raises(UsageError) as caught:
            call(*arguments)
        assert str(caught.value).startswith(said)
