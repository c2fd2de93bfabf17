"""Settings that are declared by annotations: parsed from texts, checked in Python, inherited, and made into options of the command line."""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import click
import pytest
from annotated_types import Ge, Gt, Le
from click.testing import CliRunner

from termweave.cli.declared_options import click_options
from termweave.declared_settings import Setting, check, parse, settings_of
from termweave.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Sending:
    heading: ClassVar[str] = "Sending"

    workers: Annotated[int, Setting("Connections."), Ge(1), Le(64)] = 4
    wait: Annotated[float, Setting("Seconds.", metavar="SECONDS"), Gt(0)] = 1.5
    loading: Annotated[bool, Setting("Send without refresh.")] = True

    def __post_init__(self):
        check(self)


@dataclass(frozen=True, kw_only=True)
class Building(Sending):
    heading: ClassVar[str] = "Models"

    vectors: Annotated[Literal["float", "byte"], Setting("Type.")] = "float"
    blocks: Annotated[tuple[Annotated[int, Ge(2)], ...], Setting("Sizes.")] = (16, 8)
    replicas: Annotated[int | None, Setting("Copies.", default_text="one a node"), Ge(0)] = None
    fresh: Annotated[bool, Setting("Begin anew.")] = False
    workers: int = 8  # another default alone


def test_texts_are_parsed_and_a_subclass_changes_a_default():
    given = {"workers": "12", "wait": "2", "loading": "off", "vectors": "byte", "blocks": "8, 4", "replicas": "0"}
    assert parse(Building, given) == Building(workers=12, wait=2.0, loading=False, vectors="byte", blocks=(8, 4), replicas=0)
    assert parse(Building, {"blocks": [9, 3], "wait": 2}).blocks == (9, 3)  # as TOML has them
    assert (Sending().workers, Building().workers) == (4, 8)
    settings = settings_of(Building)
    assert list(settings) == ["vectors", "blocks", "replicas", "fresh", "workers", "wait", "loading"]
    assert [each.heading for each in settings.values()] == ["Models"] * 4 + ["Sending"] * 3
    assert [each.default for each in settings.values()] == ["float", (16, 8), None, False, 8, 1.5, True]
    assert [each.type_name for each in settings.values()] == ["str", "list", "int", "bool", "int", "float", "bool"]
    assert settings["vectors"].choices == ("float", "byte")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("workers", "0", "workers must be at least 1, not 0."),
        ("workers", "65", "workers must be at most 64, not 65."),
        ("workers", True, "workers must be a whole number, not true."),
        ("workers", 1.0, "workers must be a whole number, not 1.0."),
        ("wait", "0", "wait must be above 0, not 0."),
        ("wait", "nan", "wait must be a number, not nan."),
        ("wait", "", "wait must be a number, not empty."),
        ("loading", "perhaps", "loading must be true or false, not perhaps."),
        ("vectors", "half", "vectors must be float or byte, not half."),
        ("blocks", "8,1", "blocks must be at least 2, not 8,1."),
    ],
)
def test_a_wrong_value_is_one_plain_sentence(name, value, message):
    with pytest.raises(UsageError) as error:
        parse(Building, {name: value})
    assert error.value.message == message
    assert error.value.hint == settings_of(Building)[name].setting.help


@pytest.mark.parametrize(("name", "value"), [("workers", "4"), ("loading", 1), ("vectors", "half"), ("wait", float("inf"))])
def test_python_gets_no_conversion(name, value):
    with pytest.raises(UsageError, match=name):
        replace(Building(), **{name: value})


def test_a_name_that_does_not_exist():
    with pytest.raises(UsageError, match=r"index\(\) has no option 'worker'. Did you mean workers?"):
        parse(Building, {"worker": "4"}, "index() has")


@click.command()
@click_options(Building, "build")
def command(*, build):
    click.echo(repr(build))


def test_options_have_the_help_and_the_values_of_the_record():
    shown = CliRunner().invoke(command, ["--help"]).output
    options = ("--loading / --no-loading", "--fresh", "--vectors [float|byte]", "--wait SECONDS")
    for text in (*options, "[default: 16,8]", "[default: one a node]"):
        assert text in shown
    result = CliRunner().invoke(command, ["--workers", "3", "--no-loading", "--blocks", "9,3"])
    assert result.output == "{'blocks': (9, 3), 'workers': 3, 'loading': False}\n"
    with pytest.raises(UsageError, match="workers must be at least 1, not 0"):
        CliRunner().invoke(command, ["--workers", "0"], catch_exceptions=False)
