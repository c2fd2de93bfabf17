"""Numbers within bounds, as options take them."""

from __future__ import annotations

import click


class IntRange(click.IntRange):
    """A whole number within bounds; click says of 1.5 that it is no "integer range"."""

    name = "integer"


class FloatRange(click.FloatRange):
    """A number within bounds, likewise."""

    name = "number"
