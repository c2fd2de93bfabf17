"""Numbers within bounds, as options take them."""

from __future__ import annotations

import math
from typing import Any

import click

_LARGEST = 2**31 - 1


class IntRange(click.IntRange):
    """A whole number within bounds; click says of 1.5 that it is no "integer range"."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Where there is no upper bound, what Java and orjson take: beyond it the number is refused far from here, or not at all."""
        number: int = super().convert(value, param, ctx)
        if number > _LARGEST:
            self.fail(f"{number} is larger than {_LARGEST}.", param, ctx)
        return number


class FloatRange(click.FloatRange):
    """A number within bounds, likewise."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """NaN lies within all bounds, as no comparison with it holds; what it would do comes out far from here."""
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail("nan is no number.", param, ctx)
        return number
