"""`termweave verify`: check that an index holds every document as it was sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import click

from termweave import corpora, engine, indexer
from termweave.catalog.lineage import Lineage, read_lineage, refuse_enriched, resolve_name
from termweave.cli.declared_options import GroupedCommand, option
from termweave.cli.shared_options import check_together, verb
from termweave.cli.source_options import for_build, source_options
from termweave.declared_settings import share
from termweave.errors import TermweaveError, UsageError, VerificationFailed
from termweave.indexer.ledger import storage
from termweave.indexer.pipeline import dead_letters
from termweave.support.messages import counted

if TYPE_CHECKING:
    from termweave.cli.output import Output
    from termweave.engine import Engine
    from termweave.indexer.verification import Difference
    from termweave.settings import Settings

_SHOWN = 20


class _Command(GroupedCommand):
    """A command whose option `--deep` may be given without a value; click alone would take the next word, even NAME, as the value."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        pairs = pairwise([*args, ""])
        whole = [f"{word}=100%" if word == "--deep" and not behind.endswith("%") else word for word, behind in pairs]
        return super().parse_args(ctx, whole)


@verb("verify", long=True, cls=_Command, connects=True)
@click.argument("name")
@click.argument("source", required=False)
@option(
    "--deep",
    "Also read text, weights and vectors back and check their digests; '--deep 5%' does so for a random sample.",
    "[SHARE]",
    callback=lambda _context, _option, text: share(text),
)
@source_options(folders=True, index=True)
def command(
    *, name: str, source: str | None, deep: float | None, reading: dict[str, Any], settings: Settings, out: Output
) -> int:
    """Compare the index NAME with its ledger, or with SOURCE itself.

    Every document is stored with a digest of its source and one of its encoding. One request compares the counts and sums of
    1,024 buckets; only buckets that differ are read id by id. The exit status is 4 if a document is missing, extra or altered.

    \b
    Examples:
      termweave verify docs
      termweave verify docs ./nfcorpus
      termweave verify docs --deep --json
      termweave verify docs --deep 5%
    """
    problem = "--skip-bad, --id-field, --title-field and --text-field need a SOURCE, because they say how it is read"
    check_together((problem, source is None and any(reading.values())))

    server = engine.connect(settings)
    shown = resolve_name(server, name)
    index = shown.index
    record = read_lineage(server, index)  # before the ledger is opened, because the index may belong to another program
    refuse_enriched(record)
    if shown.partial and name not in {index, record.name}:
        raise UsageError(f"{name!r} shows only some of the documents of {record.name!r}.", f"Give the name {record.name!r}.")
    if source is None:
        with storage.existing(server, index) as ledger:
            difference = indexer.verify(server, index, ledger, deep=deep or 0.0, lineage=record)
    else:
        corpus = corpora.open_source(source, **for_build(reading, "", whole="kept" in record.source))
        difference = indexer.verify_against_source(server, index, corpus, deep=deep or 0.0, lineage=record)
    state = _ledger_state(server, index, record)
    figures = {name: value for name, value in vars(difference).items() if name != "inside"}
    data = {"schema": "termweave.verify/1", "ok": difference.ok, "generation": index, "deep": bool(deep), **figures}
    data["refused"] = list(state.refused)
    out.emit(data, lambda: _result(name, "standard input" if source == "-" else source or "its ledger", difference, deep))
    out.say(*_remarks(name, index, source, difference, state))
    return 0 if difference.ok else VerificationFailed.exit_status


@dataclass(frozen=True)
class _LedgerState:
    """The state of an index that the ledger on this host records; without a readable ledger all fields have their defaults.

    Attributes:
        refused: Ids of documents and passages that the server refused.
        letters: Path of the file that lists these refused documents with reasons.
        updating: Whether an update is running, or was stopped.
        elsewhere: Whether the last update came from another host.
    """

    refused: Sequence[str] = ()
    letters: str = ""
    updating: bool = False
    elsewhere: bool = False


def _ledger_state(server: Engine, index: str, record: Lineage) -> _LedgerState:
    """Read the state of an index from its ledger on this host."""
    try:
        with storage.existing(server, index) as ledger:
            return _LedgerState(
                refused=[identity for identity, _, _ in ledger.refused()],
                letters=str(dead_letters.file_of(ledger)),
                updating=ledger.get("state") == "updating",
                elsewhere=(ledger.get("lineage") or {}).get("updated", "") != record.updated,
            )
    except TermweaveError:
        return _LedgerState()


def _result(name: str, against: str, difference: Difference, deep: float | None) -> str:
    """The result of a verification as text, with the ids that differ."""
    cut = difference.counted != difference.documents
    if difference.same:
        read = f" (content of {difference.read:,} read back)" if deep else " (compared by digests)"
        passages = f" in {counted(difference.counted, 'passage')}" if cut else ""
        return f"{name}: {counted(difference.documents, 'document')}{passages}, all there, nothing twice, as in {against}{read}."
    nouns = ("document or passage", "documents and passages") if cut else ("document",)
    lines = [f"{name}: {counted(difference.counted, *nouns)}; {against} has {difference.expected:,}."]
    for kind in ("missing", "extra", "altered"):
        ids: list[str] = getattr(difference, kind)
        # An id may contain line feeds or control characters of the terminal.
        lines += [f"  {kind}: {identity if identity.isprintable() else repr(identity)}" for identity in ids[:_SHOWN]]
        lines += [f"  {kind}: and {len(ids) - _SHOWN:,} more (--json lists them)"] if len(ids) > _SHOWN else []
    return "\n".join(lines)


def _remarks(name: str, index: str, source: str | None, difference: Difference, state: _LedgerState) -> Iterator[str]:
    """Yield sentences that explain the result of a verification and say what to do."""
    if difference.ok and state.updating:
        yield f"An update of {name} is running, or was stopped and may be incomplete. If it was stopped, repeat it."
    if not difference.same:
        expected = source or "the documents that were sent"
        advice = _advice(difference, state, by_ledger=source is None)
        yield f"The content of {index} differs from {expected}. {advice}"
    if state.refused:
        many = counted(len(state.refused), "document or passage was", "documents or passages were")
        yield f"{many} refused by the server when {name} was built: {state.letters} lists them with reasons and advice."
    if difference.lost:
        yield (
            f"{difference.lost}, the index with the statistics of the weights, was deleted: only hosts that have a copy can search {name}. "
            "To restore it, index again, or index with --update from a host that has a copy."
        )


def _advice(difference: Difference, state: _LedgerState, *, by_ledger: bool) -> str:
    """A sentence that names the most likely cause why an index differs from its ledger or source, and how to repair the index."""
    if not (difference.extra or difference.inside) and {*difference.missing, *difference.altered} <= set(state.refused):
        return "The server refused all documents that differ: correct them in the source and index again."
    if difference.inside:
        return "Index again without --update: an update compares digests only, and those of damaged documents have not changed."
    if by_ledger and state.updating:
        return "Repeat the update that was stopped."
    if by_ledger and state.elsewhere:
        advice = "compare the index with its source: 'termweave verify NAME SOURCE'"
        return f"The index was updated from another host, so this host's ledger is out of date: {advice}."
    if not by_ledger and len(difference.altered) + len(difference.extra) == difference.counted > 0:
        return "No document is the same: give --id-field, --title-field and --text-field as 'index' got them, or index again."
    extra = "; --delete-missing deletes extra documents" if difference.extra else ""
    return f"To repair it, index again, or index with --update{extra}."
