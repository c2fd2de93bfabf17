"""Types of options whose value is a number within bounds."""

from __future__ import annotations

import math
from typing import Any

import click

_LARGEST = 2**31 - 1


class IntRange(click.IntRange):
    """A whole number within bounds; its name makes click complain about 1.5 as "not a valid integer"."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Convert the value, and refuse numbers that do not fit into 32 bits: Java and orjson would refuse them later, or not at all."""
        number: int = super().convert(value, param, ctx)
        if number > _LARGEST:
            self.fail(f"{number} is larger than {_LARGEST}.", param, ctx)
        return number


class FloatRange(click.FloatRange):
    """A number within bounds; NaN and infinity are refused."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Convert the value, and refuse what passes checks of bounds: NaN, because every comparison with it is false, and infinity."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{number} is not a finite number.", param, ctx)
        return number
