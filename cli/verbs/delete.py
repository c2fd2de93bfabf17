"""`termweave delete`: delete an index with all its generations, or single documents of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

import click

from termweave.cli.options.shared_options import confirm, verb, yes_option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from termweave import answers
    from termweave.cli.common.output import Output
    from termweave.engine import Engine
    from termweave.settings import Settings


@verb("delete", connects=True)
@click.argument("name")
@click.option("--id", "ids", multiple=True, metavar="ID", help="Delete this document only; repeatable.")
@click.option(
    "--ids",
    "file",
    type=click.File("rb"),
    metavar="FILE",
    help="Delete the documents whose ids are in FILE, one per line; '-' for standard input.",
)
@yes_option
def command(*, name: str, ids: tuple[str, ...], file: BinaryIO | None, yes: bool, settings: Settings, out: Output) -> None:
    """Delete NAME: the alias, all generations, their statistics and ledgers. This cannot be undone.

    What 'termweave connect' registered stays until 'termweave connect NAME --remove'.
    With --id or --ids only these documents are deleted, with all their passages, and only from the live generation: promoting an older
    generation brings them back.

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
        wanted = [*ids, *(_lines(file) if file is not None else ())]
        _delete_documents(server, name, [identity for identity in wanted if identity], out, yes=yes)
    else:
        _delete_index(server, name, out, yes=yes)


def _lines(file: BinaryIO) -> Iterator[str]:
    """Read ids from a file, one per line.

    Raises:
        InputError: A line is not UTF-8.
    """
    from termweave.corpora.formats.fields import BadLine, text_line
    from termweave.corpora.formats.lines import BOM

    for number, line in enumerate(file, 1):
        if number == 1:
            line = line.removeprefix(BOM)  # noqa: PLW2901
        try:
            yield text_line(line, "Save the file as UTF-8 and run the command again; nothing was deleted.").rstrip("\r\n")
        except BadLine as bad:
            raise bad.at(file.name, number) from None


def _delete_index(server: Engine, name: str, out: Output, *, yes: bool) -> None:
    """Delete an index with all its generations, after a confirmation."""
    from termweave.indexer.generations import deletion, listing
    from termweave.support.messages import counted

    listed = listing.list_generations(server, name)
    if not yes:
        documents = counted(sum(each.documents or 0 for each in listed), "document")
        unfinished = any(not each.complete and not each.unreadable for each in listed)
        building = " (one is unfinished: a build may be running)" if unfinished else ""
        confirm(f"Delete {name!r} with {counted(len(listed), 'generation')}{building} and {documents}?")
    deletion.remove_all(server, name, listed)
    data: answers.Delete = {"schema": "termweave.delete/1", "name": name, "deleted": [each.index for each in listed]}
    out.emit(data, f"{name}: deleted, {counted(len(listed), 'generation')}.")


def _delete_documents(server: Engine, name: str, ids: list[str], out: Output, *, yes: bool) -> None:
    """Delete single documents from the live generation, after a confirmation."""
    from termweave.indexer.generations import deletion
    from termweave.support.messages import counted, few

    present = deletion.find(server, name, ids)
    if present.absent:
        out.say(f"Not in {name!r}: {few([repr(identity) for identity in present.absent])} ({len(present.absent):,}).")
    if present.documents and not yes:
        documents = counted(len(present.documents), "document")
        cut = f" ({counted(len(present.passages), 'passage')})" if len(present.passages) != len(present.documents) else ""
        confirm(f"Delete {documents}{cut} from {name!r}?")
    deleted = deletion.remove_documents(server, name, present)
    data: answers.Delete = {
        "schema": "termweave.delete/1",
        "name": name,
        "deleted": [],
        "generation": deleted.index,
        "documents": deleted.documents,
        "absent": deleted.absent,
    }
    out.emit(data, f"{name}: {counted(len(deleted.documents), 'document')} deleted from {deleted.index}.")
