"""`termweave delete`: an index with all its generations, or single documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

import click

from termweave.cli._options import CONTEXT, confirm, connection_options, output_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from termweave.cli._options import Output
    from termweave.engine import Engine
    from termweave.settings import Settings


@click.command("delete", context_settings=CONTEXT, short_help="Delete an index, or documents of it.")
@click.argument("name")
@click.option("--id", "ids", multiple=True, metavar="ID", help="Delete this document only; repeatable.")
@click.option(
    "--ids",
    "file",
    type=click.File("rb"),
    metavar="FILE",
    help="Delete the documents whose ids FILE names, one a line; '-' for standard input.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_options
@connection_options
def command(*, name: str, ids: tuple[str, ...], file: BinaryIO | None, yes: bool, settings: Settings, out: Output) -> None:
    """Delete NAME: the alias, every generation, their statistics and ledgers. There is no way back.

    With --id or --ids only these documents are deleted, with all their passages, and only from the live generation: an older one
    that is promoted brings them back.

    \b
    Examples:
      termweave delete docs
      termweave delete docs --yes
      termweave delete docs --id doc-17 --id doc-18
      termweave delete docs --ids gone.txt --yes
    """
    from termweave import engine

    server = engine.connect(settings)
    if ids or file is not None:
        named = [*ids, *(_lines(file) if file is not None else ())]
        _documents(server, name, [each for each in named if each], out, yes=yes)
    else:
        _everything(server, name, out, yes=yes)


def _lines(file: BinaryIO) -> Iterator[str]:
    """The ids of a file, one a line.

    Raises:
        InputError: A line is not UTF-8.
    """
    from termweave.corpora.fields import BadLine, text_line
    from termweave.corpora.files import BOM

    for number, line in enumerate(file, 1):
        if number == 1:
            line = line.removeprefix(BOM)  # noqa: PLW2901
        try:
            yield text_line(line, "Turn the file into UTF-8; nothing was deleted.").rstrip("\r\n")
        except BadLine as bad:
            raise bad.at(file.name, number) from None


def _everything(server: Engine, name: str, out: Output, *, yes: bool) -> None:
    from termweave.indexer import generations, removing
    from termweave.words import counted

    found = generations.of(server, name)
    if not yes:
        documents = counted(sum(each.documents or 0 for each in found), "document")
        unfinished = any(not each.complete and not each.unreadable for each in found)
        building = " (one is unfinished: perhaps it is being built now)" if unfinished else ""
        confirm(f"Delete {name!r} with {counted(len(found), 'generation')}{building} and {documents}?")
    removing.remove_all(server, name, found)
    data = {"schema": "termweave.delete/1", "name": name, "deleted": [each.index for each in found]}
    out.emit(data, f"{name}: deleted, {counted(len(found), 'generation')}.")


def _documents(server: Engine, name: str, ids: list[str], out: Output, *, yes: bool) -> None:
    from termweave.indexer import removing
    from termweave.words import counted, few

    found = removing.find(server, name, ids)
    if found.absent:
        out.say(f"Not in {name!r}: {few([repr(each) for each in found.absent])} ({len(found.absent):,}).")
    many = counted(len(found.documents), "document")
    if found.documents and not yes:
        cut = f" ({counted(len(found.passages), 'passage')})" if len(found.passages) != len(found.documents) else ""
        confirm(f"Delete {many}{cut} from {name!r}?")
    found = removing.remove_documents(server, name, found)
    many = counted(len(found.documents), "document")
    data = {
        "schema": "termweave.delete/1",
        "name": name,
        "deleted": [],
        "generation": found.index,
        "documents": found.documents,
        "absent": found.absent,
    }
    out.emit(data, f"{name}: {many} deleted from {found.index}.")
