"""How a build option is declared: its values, its flags on the command line, and its part in fingerprints and updates."""

from __future__ import annotations

from dataclasses import Field, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from termweave.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from termweave.indexer.option_values import Values
    from termweave.search.catalog.lineage import Lineage

#: Whether a generation that is built with another value of an option is another one. "model": its model's hash says so.
InFingerprint = Literal["always", "if set", "model", "never"]


@dataclass(frozen=True)
class Flag:
    """One flag of the command line.

    Attributes:
        name: "--workers".
        help: What `--help` says.
        values: What it takes; None: what its option takes.
        default: What `--help` says of the default; None: the option's default; "": nothing.
        metavar: The placeholder of its value.
        example: A value, as the command line takes it; "" for a switch.
        describe: How a value is written in messages and in the ledger. A build is resumed by comparing these texts.
        compare: What an update compares of the option's value with what the generation has.
        of_generation: What a lineage says of this flag; None: the index is asked.
        noted: Whether a build without this flag says that the live generation was made with it.
    """

    name: str
    help: str
    values: Values | None = None
    default: str | None = None
    metavar: str | None = None
    example: str = ""
    describe: Callable[[Any], str] = str
    compare: Callable[[Any], Any] = str
    of_generation: Callable[[Lineage], Any] | None = None
    noted: bool = False

    @property
    def argument(self) -> str:
        """Name of the argument in which click passes the value: "passage_size"."""
        return self.name.partition("/")[0].removeprefix("--").replace("-", "_")


@dataclass(frozen=True)
class BuildOption:
    """One build option.

    Attributes:
        values: What it takes.
        flags: Its flags on the command line; most options have one.
        heading: The heading under which `--help` lists it.
        optional: Whether it may be None.
        in_fingerprint: Whether a build with another value makes another generation.
        plain: Its value as JSON, for the fingerprint.
        kept_by_update: Whether an update keeps what the generation was made with, and refuses another value.
        combine: Makes the value of several flags.
        check: Refuses values of the right type that cannot be meant.
    """

    values: Values
    flags: tuple[Flag, ...]
    heading: str
    optional: bool = False
    in_fingerprint: InFingerprint = "never"
    plain: Callable[[Any], Any] = lambda value: value
    kept_by_update: bool = False
    combine: Callable[..., Any] = lambda value: value
    check: Callable[[Any], None] = lambda _: None

    def refuse_unless_allowed(self, name: str, value: object) -> None:
        """Check a value.

        Raises:
            UsageError: The option does not take it.
        """
        if value is None and self.optional:
            return
        if not self.values.allow(value):
            raise refusal(name, value, self.values, self.flags)
        self.check(value)


def refusal(name: str, value: object, values: Values, flags: tuple[Flag, ...]) -> UsageError:
    """The error for a value that an option does not take: the same from Python and on the command line."""
    written = " ".join(f"{flag.name} {flag.example}".rstrip() for flag in flags)
    return UsageError(f"{name} must be {values}, not {value!r}.", f"Write {written} (in Python: {name}={values.example}).")


def option(default: Any, values: Values, *flags: Flag, heading: str, **declared: Any) -> Any:
    """Declare a field of `BuildOptions`.

    Args:
        default: The default; a function makes a new one for each record.
        values: What the option takes.
        flags: Its flags.
        heading: The heading in `--help`.
        declared: Further attributes of `BuildOption`.
    """
    metadata = {"option": BuildOption(values, flags, heading, **declared)}
    return field(default_factory=default, metadata=metadata) if callable(default) else field(default=default, metadata=metadata)


def declared(made: Field[Any]) -> BuildOption:
    """The declaration of a field of `BuildOptions`."""
    declaration: BuildOption = made.metadata["option"]
    return declaration
