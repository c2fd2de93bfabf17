"""How a parameter of a training method is declared: one setting, and a group of settings with the rules between them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from termweave.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_TRUTH = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_TYPE_NAMES = {"bool": "true or false", "int": "a whole number", "float": "a finite number", "str": "a text"}

Value = bool | int | float | str
#: Nobody has more documents, questions or steps, and torch and numpy count no further than some powers of two.
LARGEST = 10**9


@dataclass(frozen=True)
class TrainingParameter:
    """One setting of a training method.

    Attributes:
        name: As in ``--set name=value``.
        default: The value where none is given; its type is the parameter's type.
        help: One sentence.
        choices: The only values that are allowed; () allows any.
        least: The smallest number that is allowed; None: no such bound.
        above: A number that the value must exceed; None: no such bound.
        most: The largest number that is allowed; without one, a whole number is at most `LARGEST`.
    """

    name: str
    default: Value
    help: str
    choices: tuple[str, ...] = ()
    least: float | None = None
    above: float | None = None
    most: float | None = None

    @property
    def type(self) -> str:
        """The name of the type: bool, int, float or str."""
        return type(self.default).__name__

    def parse(self, given: object) -> Value:
        """Convert a value from the command line or from a file to the type of the parameter.

        Raises:
            UsageError: The value has the wrong type, is outside the bounds, or is none of the choices.
        """
        try:
            value = self._parsed(given)
        except (ValueError, KeyError):
            raise UsageError(f"{self.name}={given} is not {_TYPE_NAMES[self.type]}.", f"{self.name}: {self.help}") from None
        if self.choices and value not in self.choices:
            raise UsageError(f"{self.name}={given} is not known.", f"Choose one of: {', '.join(self.choices)}.")
        if not isinstance(value, str):
            self._check_bounds(given, value)
        return value

    def _check_bounds(self, given: object, value: float) -> None:
        most = LARGEST if self.most is None and self.type == "int" else self.most
        if self.least is not None and value < self.least:
            raise UsageError(f"{self.name}={given} is too small.", f"It must be at least {self.least:g}.")
        if self.above is not None and value <= self.above:
            raise UsageError(f"{self.name}={given} is too small.", f"It must be above {self.above:g}.")
        if most is not None and value > most:
            raise UsageError(f"{self.name}={given} is too large.", f"It must be at most {most:,.10g}.")

    def _parsed(self, given: object) -> Value:
        if isinstance(given, list) and self.type == "str" and all(isinstance(item, str) for item in given):
            given = ",".join(given)  # TOML has lists where a command line has commas
        if isinstance(given, list | dict):
            raise ValueError  # noqa: TRY004 - caught above, with the others
        text = str(given).strip()
        if isinstance(self.default, bool):
            return given if isinstance(given, bool) else _TRUTH[text.lower()]
        if isinstance(given, bool):
            raise ValueError  # noqa: TRY004 - caught above, with the others
        if isinstance(self.default, int):
            return int(text)
        if isinstance(self.default, float):
            if not math.isfinite(number := float(text)):
                raise ValueError
            return number
        return text


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters that belong together, with the rules between them.

    Attributes:
        title: Heading in ``termweave methods``.
        parameters: In the order of the help.
        check: Raises `UsageError` for values that do not go together; gets all settings of a method.
        defaults: Defaults that follow from what was given, name -> value.
    """

    title: str
    parameters: tuple[TrainingParameter, ...]
    check: Callable[[Mapping[str, Any]], None] = lambda _: None
    defaults: Callable[[Mapping[str, object]], Mapping[str, object]] = lambda _: {}
