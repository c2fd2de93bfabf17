"""The verbs that manage indices on a server: `list`, `generations`, `promote`, `rollback`, `prune`, `delete` and `audit`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, BinaryIO

import click

from termweave import answers, engine
from termweave.catalog.audit import AuditLine, read
from termweave.cli.declared_options import IntRange, flag, option
from termweave.cli.output import Output, fitted_table
from termweave.cli.shared_options import confirm, verb, yes_option
from termweave.corpora.formats.fields import BadLine, text_line
from termweave.corpora.formats.lines import BOM
from termweave.indexer.generations import deletion, listing, publication
from termweave.indexer.ledger import storage
from termweave.support.messages import clipped, counted, few, printable, sized

if TYPE_CHECKING:
    from rich.table import Table

    from termweave.engine import Engine
    from termweave.indexer.generations.listing import Generation
    from termweave.settings import Settings

_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60))


@verb("generations", connects=True)
@click.argument("name", required=False)
def command(*, name: str | None, settings: Settings, out: Output) -> None:
    """List the generations of NAME, newest first; without NAME those of all names.

    At most one is live. To finish an unfinished generation, repeat its 'termweave index' command. A generation that its gate refused
    is complete and verified: 'termweave promote' publishes it anyway, 'termweave prune' deletes it, and --json shows the figures that
    were too low.

    \b
    Examples:
      termweave generations
      termweave generations docs
      termweave generations docs --json
    """
    server = engine.connect(settings)
    of_names = {name: listing.list_generations(server, name)} if name else listing.all_generations(server)
    listed = [generation for each in of_names.values() for generation in each]
    if not listed:
        out.say(f"No index at {server.url} was made by termweave. Make one: termweave index SOURCE NAME.")
    out.warn(*filter(None, (each.unreadable for each in listed)))
    data = {"schema": "termweave.generations/1", "name": name, "generations": [asdict(each) for each in listed]}
    out.emit(data, lambda: _table(listed, out.console().width) if listed else None)


def _table(listed: list[Generation], width: int) -> Table:
    """Format generations as a table. Names (needed for 'promote') and states are always shown; other columns appear if there is room."""
    columns = {
        "generation": [each.index for each in listed],
        "state": [listing.state_of(each) for each in listed],
        "created (UTC)": [each.created[:19].replace("T", " ") for each in listed],
        "documents": ["-" if each.documents is None else f"{each.documents:,}" for each in listed],
        "size": [sized(each.bytes) for each in listed],
        "source": [each.source for each in listed],
        "built with": [
            " ".join([", ".join(each.signals), *(f"{flag} {clipped(value, 40)}" for flag, value in each.options.items())])
            for each in listed
        ],
    }
    return fitted_table(columns, width, always={"state"}, right={"documents", "size"})


@verb("list", connects=True)
def list_indices(*, settings: Settings, out: Output) -> None:
    """List the indices that termweave made or enriched, with the generation that is live, its size, documents, signals, models and age.

    A narrow terminal shows the columns for which it has room; --json has them all.

    \b
    Examples:
      termweave list
      termweave list --json
    """
    server = engine.connect(settings)
    rows = listing.summaries(server)
    if not rows:
        out.say(f"No index at {server.url} was made or enriched by termweave. Make one: termweave index SOURCE NAME.")
    columns = {
        "name": [row["name"] for row in rows],
        "documents": ["-" if row["documents"] is None else f"{row['documents']:,}" for row in rows],
        "size": [sized(row["bytes"]) for row in rows],
        "age": [_age(row["created"]) if row["created"] else "unfinished" for row in rows],
        "signals": [", ".join(row["signals"]) for row in rows],
        "live generation": [row["generation"] or "-" for row in rows],
        "models": [", ".join(dict.fromkeys(row["models"].values())) for row in rows],
        "generations": [str(row["generations"] or "enriched") for row in rows],
    }
    right = {"documents", "size", "age", "generations"}
    data = {"schema": "termweave.list/1", "url": server.url, "indices": rows}
    out.emit(data, lambda: fitted_table(columns, out.console().width, right=right) if rows else None)


def _age(created: str) -> str:
    """The age of a generation, given when it was created: ``3 d``, ``5 h``, ``12 min``."""
    seconds = (datetime.now(UTC) - datetime.fromisoformat(created)).total_seconds()
    return next((f"{seconds / size:.0f} {unit}" for unit, size in _UNITS if seconds >= size), "now")


@verb("promote", connects=True)
@click.argument("name")
@click.argument("generation")
def promote(*, name: str, generation: str, settings: Settings, out: Output) -> None:
    """Make GENERATION live: point the alias NAME at it, in one atomic step. A generation that its gate refused is accepted, too.

    \b
    Examples:
      termweave generations docs
      termweave promote docs docs-20260101120000-1a2b3c4d
    """
    server = engine.connect(settings)
    _live(server, name, generation, publication.promote(server, name, generation), out)


def _live(server: Engine, name: str, generation: str, before: str | None, out: Output) -> None:
    """Print which generation of an index is live now and which was live before; warn if searches now use another profile."""
    if remark := publication.profile_remark(server, name, before, generation):
        out.warn(remark)
    data: answers.Promote = {"schema": "termweave.promote/1", "name": name, "live": generation, "before": before}
    out.emit(data, f"{name}: {generation} is live{f'; before it was {before}' if before and before != generation else ''}.")


@verb("rollback", connects=True)
@click.argument("name")
def rollback(*, name: str, settings: Settings, out: Output) -> None:
    """Make the previous generation live: the newest finished generation of NAME that is older than the live one.

    A generation that its gate refused, or that an earlier rollback left, is passed over; 'termweave promote' can make it live.

    \b
    Examples:
      termweave rollback docs
    """
    server = engine.connect(settings)
    generation = publication.previous(server, name)
    _live(server, name, generation, publication.promote(server, name, generation, "rollback"), out)


@verb("prune", connects=True)
@click.argument("name")
@option(
    "--keep", "Number of newest generations to keep; the live one is always kept.", type=IntRange(1), default=2, show_default=True
)
@flag("--unfinished", "Also delete unfinished generations; no build of NAME may be running.")
@yes_option
def prune(*, name: str, keep: int, unfinished: bool, yes: bool, settings: Settings, out: Output) -> None:
    """Delete generations of NAME that are neither live nor among the newest, and those that their gates refused.

    Unfinished generations are kept: repeat their 'termweave index' command to finish them, or add --fresh to it to delete them. If
    the ledger of one was lost, or is on a host that no longer exists, use --unfinished.

    \b
    Examples:
      termweave prune docs --keep 2
      termweave prune docs --keep 1 --yes --json
      termweave prune docs --unfinished
    """
    server = engine.connect(settings)
    old = deletion.prunable(server, name, keep, unfinished=unfinished)
    if old and not yes:
        for generation in old:
            state = f", {each}" if (each := listing.state_of(generation)) else ""
            documents = counted(generation.documents or 0, "document")
            click.echo(printable(f"{generation.index}  {documents}, {generation.created}{state}"), err=True)
        confirm(f"Delete {'it' if len(old) == 1 else f'these {len(old)}'}?")
    with storage.lease(server, name) if unfinished else nullcontext():
        deleted = deletion.prune(server, name, old)
    out.say(*(f"{each.index} has become live meanwhile: it is kept." for each in old if each.index not in deleted))
    data: answers.Prune = {"schema": "termweave.prune/1", "name": name, "deleted": deleted}
    out.emit(data, f"{name}: {counted(len(deleted), 'generation')} deleted.")


@verb("delete", connects=True)
@click.argument("name")
@option("--id ids", "Delete this document only; repeatable.", "ID", multiple=True)
@option(
    "--ids file",
    "Delete the documents whose ids are in FILE, one per line; '-' for standard input.",
    "FILE",
    type=click.File("rb"),
)
@yes_option
def delete(*, name: str, ids: tuple[str, ...], file: BinaryIO | None, yes: bool, settings: Settings, out: Output) -> None:
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
    server = engine.connect(settings)
    if ids or file is not None:
        listed = [*ids, *(_lines(file) if file is not None else ())]
        _delete_documents(server, name, list(filter(None, listed)), out, yes=yes)
    else:
        _delete_index(server, name, out, yes=yes)


def _lines(file: BinaryIO) -> Iterator[str]:
    """Yield the document ids in a file, one per line.

    Raises:
        InputError: A line is not UTF-8.
    """
    for number, line in enumerate(file, 1):
        try:
            yield text_line(
                line.removeprefix(BOM), "Save the file as UTF-8 and run the command again; nothing was deleted."
            ).rstrip("\r\n")
        except BadLine as bad:
            raise bad.at(file.name, number) from None


def _delete_index(server: Engine, name: str, out: Output, *, yes: bool) -> None:
    """Delete an index with all its generations, after a confirmation."""
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
    present = deletion.find(server, name, ids)
    if present.absent:
        absent = counted(len(present.absent), "id is", "ids are")
        out.say(f"{absent} not in {name!r}: {few([repr(identity) for identity in present.absent])}.")
    if present.documents and not yes:
        documents = counted(len(present.documents), "document")
        cut = f" ({counted(len(present.passages), 'passage')})" if len(present.passages) != len(present.documents) else ""
        confirm(f"Delete {documents}{cut} from {name!r}?")
    deleted = deletion.remove_documents(server, name, present)
    data: answers.Delete = {"schema": "termweave.delete/1", "name": name, "deleted": [], "generation": deleted.index}
    data["documents"], data["absent"] = deleted.documents, deleted.absent
    out.emit(data, f"{name}: {counted(len(deleted.documents), 'document')} deleted from {deleted.index}.")


@verb("audit", connects=True)
@click.argument("name", required=False)
@option("-n --lines count", "Number of lines.", type=IntRange(1, 10_000), default=20, show_default=True)
def audit(*, name: str | None, count: int, settings: Settings, out: Output) -> None:
    """Show the audit trail of NAME, or of all names, newest first.

    Every publication, promotion, rollback, update in place, enrichment, change of the profile in force and deletion by termweave leaves
    a line in the hidden index termweave-audit. --json also shows the program, its process and the version of termweave.

    \b
    Examples:
      termweave audit docs
      termweave audit -n 100 --json
    """
    lines = read(engine.connect(settings), name, count)
    data = {"schema": "termweave.audit/1", "name": name, "lines": [asdict(each) for each in lines]}
    empty = f"The audit trail has no line{f' about {name}' if name else ''}."
    columns = {
        "when (UTC)": [line.at[:19].replace("T", " ") for line in lines],
        "name": [line.name for line in lines],
        "what": [_act_in_words(line) for line in lines],
        "who": [f"{line.user} ({line.os_user})" if line.user else line.os_user for line in lines],
        "from": [line.host for line in lines],
    }
    out.emit(data, lambda: fitted_table(columns, out.console().width, always={"name", "what"}) if lines else empty)


def _act_in_words(line: AuditLine) -> str:
    """The act of a line of the audit trail in words, with the generations or profiles that it concerns."""
    if line.act == "delete generations":
        return f"{line.act}: {', '.join(line.deleted)}"
    if line.act in {"update", "delete documents", "enrich", "remove fields"}:
        return f"{line.act}: {line.documents:,} in {line.after}"
    none = "hybrid" if line.act == "profile" else "nothing"
    return f"{line.act}: {line.before or none} -> {line.after or none}"
