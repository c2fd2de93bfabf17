"""Write `docs/commands.md` from the help of the commands, `docs/schemas` from the printed records, the API's OpenAPI document, and tables in pages.

A page shows a table of `docs/results/NAME.json` (`benchmarks/figures.py`) between ``<!-- table: NAME NUMBER -->`` and ``<!-- end -->``. The comment
may also give numbers of columns, as in ``<!-- table: fusion 0: 0 11 12 -->``, and behind a semicolon a regular expression that selects rows.

`make docs` runs this module; tests compare the written files with their sources.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from pydantic import TypeAdapter

from termweave import __version__, answers
from termweave.catalog.audit import AuditLine
from termweave.cli import cli
from termweave.cli.declared_options import CONNECTION, OUTPUT, heading_of
from termweave.evaluation.book.store import BookGrade
from termweave.indexer.enrichment.enrichment import EnrichmentPlan
from termweave.indexer.generations.listing import Generation
from termweave.indexer.preparation.estimate import BuildEstimate
from termweave.indexer.update_plan import UpdatePlan
from termweave.learning.report import Learned, LearningPlan
from termweave.search.results.json import BatchSummary
from termweave.training.run import TrainingPlan
from termweave.ui.api import ENDPOINTS, Endpoint
from termweave.ui.parameters import MOST_TEXTS, Parameter

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "commands.md"
_HEAD = """# Commands

`make docs` writes this page from the help of the commands. With `eval "$(_TERMWEAVE_COMPLETE=bash_source termweave)"` in ~/.bashrc (`zsh_source`
in ~/.zshrc; for fish `_TERMWEAVE_COMPLETE=fish_source termweave | source`) the Tab key completes verbs and options.
"""
_SHARED = """## Options that verbs share

Every verb takes those of "Output". Those of another heading belong to the verbs whose help names it at the end.
"""
#: The heading of options of one verb alone, and characters of a line of help.
_NO_HEADING, _WIDTH = "Options", 110
SCHEMAS = ROOT / "docs" / "schemas"
RESULTS = ROOT / "docs" / "results"
#: A place for a table.
_TABLE = re.compile(r"(<!-- table: ([a-z-]+) (\d+)(?:: ([\d ]+))?(?:; ([^\n]+?))? -->\n).*?(<!-- end -->)", re.DOTALL)
OPENAPI = ROOT / "ui" / "static" / "openapi.json"
#: Shape of `termweave/answers.py` -> what its keys mean.
DESCRIPTIONS: dict[str, dict[str, str]] = tomllib.loads((ROOT / "tools" / "schema_descriptions.toml").read_text(encoding="utf-8"))
#: Status of an answer of the API -> what it says.
_FAILURES = {
    "400": "The request cannot be understood, or asks for something that does not exist.",
    "401": "The token is missing or wrong.",
    "429": "Too many requests.",
    "502": "The OpenSearch server responded with an error.",
    "503": "The OpenSearch server cannot be reached, or this server has too much to do.",
    "504": "The answer took too long.",
}
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
    """Return the text of `docs/commands.md`: the options that verbs share, then the help of every verb, with subcommands after their group."""
    contexts = list(_contexts(cli, "termweave", None))
    counts = Counter(each for context in contexts for each in _options(context).values())
    headings = Counter(heading for context in contexts for heading in {heading for heading, *_ in _options(context).values()})
    shared = [each for each, count in counts.items() if each[0] != _NO_HEADING and count > max(4, headings[each[0]] / 2)]
    formatter = contexts[0].make_formatter()
    for heading in sorted(dict.fromkeys(of for of, *_ in shared), key=lambda each: [OUTPUT, CONNECTION, each].index(each)):
        with formatter.section(heading):
            formatter.write_dl([(names, about) for of, names, about in shared if of == heading])
    listed = f"{_SHARED}\n```\n{formatter.getvalue().strip()}\n```\n"
    return "\n".join((_HEAD, listed, *(_section(context, shared) for context in contexts)))


def _contexts(command: click.Command, name: str, group: click.Context | None) -> Iterator[click.Context]:
    """Yield the click context of a command, and the contexts of its subcommands."""
    yield (context := click.Context(command, info_name=name, parent=group, max_content_width=_WIDTH))
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            below = command.get_command(context, inner)
            assert below is not None
            yield from _contexts(below, inner, context)


def _options(context: click.Context) -> dict[click.Option, tuple[str, str, str]]:
    """Return the options of a command: option -> its heading, names and help text."""
    options = [each for each in context.command.get_params(context) if isinstance(each, click.Option)]
    records = [(each, each.get_help_record(context)) for each in options]
    return {each: (heading_of(each), *record) for each, record in records if record is not None}


def _section(context: click.Context, shared: Sequence[tuple[str, str, str]]) -> str:
    """Return the section of a command: its help without the options that verbs share, and the headings of the shared options that the command takes."""
    options = _options(context)
    headings = dict.fromkeys(record[0] for record in options.values() if record in shared and record[0] != OUTPUT)
    for option, record in options.items():
        option.hidden = record in shared
    text = context.command.get_help(context).rstrip()
    also = f"\n\nShared options: {', '.join(headings)}" if headings else ""
    return f"## {context.command_path}\n\n```\n{text}{also}\n```\n"


def schemas() -> dict[str, dict[str, Any]]:
    """Return name -> JSON schema of every answer that a command or the API gives."""
    for shape, described in DESCRIPTIONS.items():
        if unknown := described.keys() - getattr(answers, shape).__annotations__.keys():
            raise SystemExit(f"described, and not printed: {shape} {unknown}")
    answered = {name: schema_of(shape) for name, shape in answers.ANSWERS.items()}
    for name, (around, record, key) in RECORDS.items():
        inner = schema_of(record)
        properties = {"schema": {}, **{each: schema_of(kind) for each, kind in around.items()}}
        properties |= {key: {"type": "array", "items": inner}} if key else inner["properties"]
        answered[name] = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    for name, schema in answered.items():
        schema["properties"]["schema"] = {"const": f"termweave.{name}/1"}
    return {
        name: {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema} for name, schema in sorted(answered.items())
    }


def schema_of(kind: Any) -> dict[str, Any]:
    """Return the JSON schema of a type, with the schemas of inner records written in place, not as references."""
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
        title = str(part.get("title"))
        others = {key: value for key, value in part.items() if key not in {"title", "description", "default"}}
        if "properties" in part:
            texts = described_in(part.get("description", "")) | DESCRIPTIONS.get(title, {})
            others["properties"] = {
                key: placed(value) | ({"description": texts[key]} if key in texts else {})
                for key, value in part["properties"].items()
            }
            if title not in vars(answers):  # a dataclass prints all its fields, those with defaults, too
                others["required"] = list(part["properties"])
            others["additionalProperties"] = title in answers.OPEN
            return others
        return {key: placed(value) for key, value in others.items()}

    return dict(placed(whole))


def described_in(docstring: str) -> dict[str, str]:
    """Parse the section "Attributes" of a dataclass's docstring: name of a field -> its description."""
    lines = re.sub(r"\n {4,}(?! *\w+: )", " ", inspect.cleandoc(docstring).partition("Attributes:\n")[2])
    return dict(re.findall(r"^ {4}(\w+): (.+)$", lines, re.MULTILINE))


def import_for_type_checkers(module: Any) -> None:
    """Run the imports under ``if TYPE_CHECKING:`` of a module inside the module, so that the annotations of its dataclasses can be evaluated."""
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for statement in node.body:
                with suppress(ImportError):  # a name that the other module has for type checkers alone
                    exec(compile(ast.Module([statement], []), module.__name__, "exec"), module.__dict__)  # noqa: S102 - its own imports


def openapi(shapes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the OpenAPI document of the API, given the JSON schemas of all answers (name -> schema), of which it contains the needed ones."""
    answered = sorted({*(each.schema for each in ENDPOINTS.values()), "error"})
    return {
        "openapi": "3.1.0",
        "info": {"title": "termweave", "version": __version__, "description": "The JSON API of 'termweave serve'."},
        "paths": {f"/api/{name}": _operations(name, each) for name, each in ENDPOINTS.items()},
        "components": {
            "schemas": {name: {key: value for key, value in shapes[name].items() if key != "$schema"} for name in answered},
            "responses": {status: _answer(about, "error") for status, about in _FAILURES.items()},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _operations(name: str, endpoint: Endpoint) -> dict[str, Any]:
    """Return the OpenAPI description of an address: GET, and where a body is allowed POST with the parameters as fields of the body."""
    failed = {status: {"$ref": f"#/components/responses/{status}"} for status in _FAILURES}
    about = {"summary": inspect.getdoc(endpoint.answer), "responses": {"200": _answer("The answer.", endpoint.schema), **failed}}
    parameters = [
        {"name": one.name, "in": "query", "required": one.required, "description": one.about, "schema": _schema(one, body=False)}
        for one in endpoint.parameters
    ]
    methods: dict[str, Any] = {"get": {"operationId": name, **about, "parameters": parameters}}
    if endpoint.takes_body:
        fields = {each.name: {**_schema(each, body=True), "description": each.about} for each in endpoint.parameters}
        required = [each.name for each in endpoint.parameters if each.required]
        schema = {"type": "object", "properties": fields, "required": required, "additionalProperties": False}
        body = {"required": True, "content": {"application/json": {"schema": schema}}}
        methods["post"] = {"operationId": f"{name}_post", **about, "requestBody": body}
    return methods


def _answer(about: str, schema: str) -> dict[str, Any]:
    return {"description": about, "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}}


def _schema(parameter: Parameter, *, body: bool) -> dict[str, Any]:
    """Return the JSON schema of a parameter: of its value in an address, or with `body` of a field in a JSON body."""
    if parameter.kind == "text":
        return {"type": ["string", "number"] if body and parameter.numbers else "string"}
    if parameter.kind == "texts":
        return {"type": ["string", "array"] if body else "array", "items": {"type": "string"}, "maxItems": MOST_TEXTS}
    if parameter.kind == "flag":
        return {"type": "boolean"} if body else {"enum": ["0", "1"]}
    kind = "integer" if parameter.kind == "count" else "number"
    default = {} if parameter.default is None else {"default": parameter.default}
    return {"type": kind, "minimum": parameter.least, "maximum": parameter.most, **default}


def with_tables(page: str) -> str:
    """Return the text of a page with the current tables of `docs/results` in the marked places."""

    def table(place: re.Match[str]) -> str:
        whole = json.loads((RESULTS / f"{place[2]}.json").read_text(encoding="utf-8"))["tables"][int(place[3])]
        columns = [int(each) for each in place[4].split()] if place[4] else range(len(whole[0]))
        shown = [whole[0], *(row for row in whole[1:] if re.search(place[5] or "", " ".join(row)))]
        head, *rows = ([row[column] for column in columns] for row in shown)
        lines = [f"| {' | '.join(row)} |" for row in (head, *rows)]
        return "\n".join([place[1], lines[0], f"|---|{'---:|' * (len(head) - 1)}", *lines[1:], "", place[6]])

    return _TABLE.sub(table, page)


if __name__ == "__main__":
    shapes = schemas()
    pages_and_shapes = {PAGE: commands(), OPENAPI: json.dumps(openapi(shapes), indent=1, ensure_ascii=False) + "\n"}
    pages_and_shapes |= {SCHEMAS / f"{name}.1.json": json.dumps(shape, indent=1) + "\n" for name, shape in shapes.items()}
    pages = (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
    pages_and_shapes |= {page: with_tables(text) for page in pages if _TABLE.search(text := page.read_text(encoding="utf-8"))}
    if "--check" in sys.argv:
        old = [
            path.name for path, text in pages_and_shapes.items() if not path.exists() or path.read_text(encoding="utf-8") != text
        ]
        sys.exit(f"{', '.join(old)}: older than the commands' help, the schemas or the results. Run 'make docs'." if old else 0)
    for path, text in pages_and_shapes.items():
        path.write_text(text, encoding="utf-8")
