"""Several addresses of one cluster, written with commas between: ``http://one:9200,http://two:9200``."""

from __future__ import annotations


def each_address(given: str) -> list[str]:
    """The addresses in a text, as they are written. A comma within a user name or a password is written ``%2C``.

    Example:
        >>> each_address("http://one:9200, http://two:9200")
        ['http://one:9200', 'http://two:9200']
    """
    return [part.strip() for part in given.split(",")]
