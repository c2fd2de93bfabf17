"""The way in from Python: ``termweave.connect().index("docs").search("...")``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from termweave.search.index import Index

if TYPE_CHECKING:
    from pathlib import Path

    from termweave.engine import Engine


class Connection:
    """An OpenSearch and the indices in it.

    Attributes:
        engine: What talks to the server.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Connection({self.engine.url!r})"

    def close(self) -> None:
        """Give the connections to the server back."""
        self.engine.close()

    def index(
        self,
        name: str,
        *,
        weights: str | Path | None = None,
        dense: str | Path | None = None,
        dense_query: str | Path | None = None,
    ) -> Index:
        """Open an index by its alias (or a generation by its full name).

        Args:
            name: The alias.
            weights: Weights model, where the name stored with the index does not resolve on this host.
            dense: Dense model, likewise.
            dense_query: Encoder of queries, likewise, where it is another one than the dense model.

        Raises:
            UsageError: There is no such index, or it was not built by termweave.
            ModelError: The models found are not those the index was made with.
        """
        return Index.open(self.engine, name, weights=weights, dense=dense, dense_query=dense_query)


def connect(url: str | None = None, **options: Any) -> Connection:
    """Connect to an OpenSearch. Nothing is asked of it yet: whether it answers shows when an index is opened.

    Args:
        url: Its address; None: what the settings, $OPENSEARCH_URL or the running embedded node say.
        **options: As in `termweave.settings.Settings`: user, password, ca_certs, client_cert, client_key, insecure, timeout.

    Raises:
        EngineUnreachable: No address is given, and no embedded node runs.
        UsageError: A setting that does not exist or cannot be.
    """
    from termweave import engine, settings  # noqa: PLC0415 - importing termweave must stay cheap

    return Connection(engine.connect(settings.load(url=url, **options)))
