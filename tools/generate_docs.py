"""Write `docs/commands.md` from the help of every command, `docs/schemas` from the records that are printed, the OpenAPI document of both, and tables.

A page has a place for a table of `docs/results/NAME.json` (`benchmarks/figures.py`) between ``<!-- table: NAME NUMBER -->`` and ``<!-- end -->``; numbers of
columns may follow, as in ``<!-- table: fusion 0: 0 11 12 -->``.

`make docs` runs this; tests compare both with their sources.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from pydantic import TypeAdapter

from termweave import answers
from termweave.catalog.audit import AuditLine
from termweave.cli import VERBS, cli
from termweave.evaluation.book.store import BookGrade
from termweave.indexer.enrichment.enrichment import EnrichmentPlan
from termweave.indexer.generations.listing import Generation
from termweave.indexer.preparation.estimate import BuildEstimate
from termweave.indexer.update_plan import UpdatePlan
from termweave.learning.report import Learned, LearningPlan
from termweave.search.results.json import BatchSummary
from termweave.training.plan import TrainingPlan
from termweave.ui.api import openapi
from tools.schema_descriptions import DESCRIPTIONS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "commands.md"
_HEAD = """# Commands

`make docs` writes this page from the help of the commands. With `eval "$(_TERMWEAVE_COMPLETE=bash_source termweave)"` in ~/.bashrc (`zsh_source`
in ~/.zshrc; for fish `_TERMWEAVE_COMPLETE=fish_source termweave | source`) the Tab key completes verbs and options.
"""
SCHEMAS = ROOT / "docs" / "schemas"
RESULTS = ROOT / "docs" / "results"
#: A place for a table.
_TABLE = re.compile(r"(<!-- table: ([a-z-]+) (\d+)(?:: ([\d ]+))? -->\n).*?(<!-- end -->)", re.DOTALL)
OPENAPI = ROOT / "ui" / "static" / "openapi.json"
#: Answers that are one dataclass, or a list of them: name of the schema -> the keys around it, and the dataclass. The key of a list is named.
RECORDS: dict[str, tuple[dict[str, Any], type, str]] = {
    "plan": ({"name": str}, BuildEstimate, ""),
    "update-plan": ({}, UpdatePlan, ""),
    "enrich-plan": ({}, EnrichmentPlan, ""),
    "batch": ({}, BatchSummary, ""),
    "train-plan": ({}, TrainingPlan, ""),
    "learn": ({}, Learned, ""),
    "learn-plan": ({}, LearningPlan, ""),
    "audit": ({"name": str | None}, AuditLine, "lines"),
    "generations": ({"name": str | None}, Generation, "generations"),
    "grades": ({"index": str}, BookGrade, "grades"),
}


def commands() -> str:
    """Return the page: every verb with its help, and subcommands after their group."""
    context = click.Context(cli, info_name="termweave", max_content_width=110)
    parts = [_HEAD, _section("termweave", cli, context)]
    for verb in VERBS:
        command = cli.get_command(context, verb)
        if command is None:
            raise SystemExit(f"the verb {verb} has no command")
        below = click.Context(command, info_name=verb, parent=context, max_content_width=110)
        parts.append(_section(f"termweave {verb}", command, below))
        if isinstance(command, click.Group):
            for name in command.list_commands(below):
                inner = command.get_command(below, name)
                if inner is not None:
                    parts.append(
                        _section(
                            f"termweave {verb} {name}",
                            inner,
                            click.Context(inner, info_name=name, parent=below, max_content_width=110),
                        )
                    )
    return "\n".join(parts)


def _section(title: str, command: click.Command, context: click.Context) -> str:
    return f"## {title}\n\n```\n{command.get_help(context).rstrip()}\n```\n"


def schemas() -> dict[str, dict[str, Any]]:
    """Return the JSON schema of every answer, by its name."""
    if unknown := [
        key for key in DESCRIPTIONS if key.partition(".")[2] not in getattr(answers, key.partition(".")[0]).__annotations__
    ]:
        raise SystemExit(f"described, and not printed: {unknown}")
    made = {name: schema_of(shape) for name, shape in answers.ANSWERS.items()}
    for name, (around, record, key) in RECORDS.items():
        inner = schema_of(record)
        properties = {"schema": {}, **{each: schema_of(kind) for each, kind in around.items()}}
        properties |= {key: {"type": "array", "items": inner}} if key else inner["properties"]
        made[name] = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    for name, schema in made.items():
        schema["properties"]["schema"] = {"const": f"termweave.{name}/1"}
    return {name: {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema} for name, schema in sorted(made.items())}


def schema_of(kind: Any) -> dict[str, Any]:
    """Return the JSON schema of a type, every record of it in its place."""
    if dataclasses.is_dataclass(kind):
        import_for_type_checkers(sys.modules[kind.__module__])
    whole = TypeAdapter(kind).json_schema(mode="serialization")
    records = whole.pop("$defs", {})

    def placed(part: Any) -> Any:
        if isinstance(part, list):
            return [placed(each) for each in part]
        if not isinstance(part, dict):
            return part
        if "prefixItems" in part:  # tools that read OpenAPI 3.0, too, know no places of their own: pairs have one type
            first, *others = part["prefixItems"]
            assert all(each == first for each in others)
            return {**{key: value for key, value in part.items() if key != "prefixItems"}, "items": placed(first)}
        if "$ref" in part:
            return placed(records[part["$ref"].rpartition("/")[2]])
        title = part.get("title")
        kept = {key: value for key, value in part.items() if key not in {"title", "description", "default"}}
        if "properties" in part:
            said = described_in(part.get("description", "")) | {
                key: DESCRIPTIONS[f"{title}.{key}"] for key in part["properties"] if f"{title}.{key}" in DESCRIPTIONS
            }
            kept["properties"] = {
                key: placed(value) | ({"description": said[key]} if key in said else {})
                for key, value in part["properties"].items()
            }
            if title not in vars(answers):  # a dataclass prints all its fields, those with defaults, too
                kept["required"] = list(part["properties"])
            kept["additionalProperties"] = title in answers.OPEN
            return kept
        return {key: placed(value) for key, value in kept.items()}

    return dict(placed(whole))


def described_in(docstring: str) -> dict[str, str]:
    """Return what the section "Attributes" of a dataclass's docstring says: name of a field -> its description."""
    lines = re.sub(r"\n {4,}(?! *\w+: )", " ", inspect.cleandoc(docstring).partition("Attributes:\n")[2])
    return dict(re.findall(r"^ {4}(\w+): (.+)$", lines, re.MULTILINE))


def import_for_type_checkers(module: Any) -> None:
    """Do the imports of a module's ``if TYPE_CHECKING:`` in it, so that the annotations of its dataclasses have values."""
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for statement in node.body:
                with suppress(ImportError):  # a name that the other module has for type checkers alone
                    exec(compile(ast.Module([statement], []), module.__name__, "exec"), module.__dict__)  # noqa: S102 - its own imports


def described(made: dict[str, dict[str, Any]]) -> str:
    """Return the OpenAPI document."""
    return json.dumps(openapi.document({name: made[name] for name in openapi.SCHEMAS}), indent=1, ensure_ascii=False) + "\n"


def with_tables(page: str) -> str:
    """Return a page with the tables of `docs/results` in their places."""

    def table(place: re.Match[str]) -> str:
        whole = json.loads((RESULTS / f"{place[2]}.json").read_text(encoding="utf-8"))["tables"][int(place[3])]
        columns = [int(each) for each in place[4].split()] if place[4] else range(len(whole[0]))
        head, *rows = ([row[column] for column in columns] for row in whole)
        lines = [f"| {' | '.join(row)} |" for row in (head, *rows)]
        return "\n".join([place[1], lines[0], f"|---|{'---:|' * (len(head) - 1)}", *lines[1:], "", place[5]])

    return _TABLE.sub(table, page)


if __name__ == "__main__":
    shapes = schemas()
    made = {PAGE: commands(), OPENAPI: described(shapes)}
    made |= {SCHEMAS / f"{name}.1.json": json.dumps(shape, indent=1) + "\n" for name, shape in shapes.items()}
    pages = (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
    made |= {page: with_tables(text) for page in pages if _TABLE.search(text := page.read_text(encoding="utf-8"))}
    if "--check" in sys.argv:
        old = [path.name for path, text in made.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
        sys.exit(f"{', '.join(old)}: older than the commands' help, the schemas or the results. Run 'make docs'." if old else 0)
    for path, text in made.items():
        path.write_text(text, encoding="utf-8")
