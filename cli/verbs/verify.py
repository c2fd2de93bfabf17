"""`termweave verify`: is everything there, and as it was sent?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from termweave.cli._options import CONTEXT, check_together, connection_options, output_options, share, source_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from termweave.cli._options import Output
    from termweave.engine import Engine
    from termweave.indexer.verification import Difference
    from termweave.search.lineage import Lineage
    from termweave.settings import Settings

_SHOWN = 20


class _Command(click.Command):
    """`--deep` with or without a share behind it: click would take any word that follows for its value, NAME too."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        followed = [*args[1:], ""]
        args = [
            f"{each}=100%" if each == "--deep" and not after.endswith("%") else each
            for each, after in zip(args, followed, strict=True)
        ]
        return super().parse_args(ctx, args)


@click.command("verify", cls=_Command, context_settings=CONTEXT, short_help="Is everything there, as it was sent?")
@click.argument("name")
@click.argument("source", required=False)
@click.option(
    "--deep",
    callback=share,
    metavar="[SHARE]",
    help="Read text, weights and vectors back and compute their digests again; '--deep 5%': of a random sample.",
)
@click.option("--skip-bad", is_flag=True, help="SOURCE was indexed with --skip-bad.")
@source_options
@output_options
@connection_options
def command(
    *,
    name: str,
    source: str | None,
    deep: float | None,
    skip_bad: bool,
    reading: dict[str, Any],
    settings: Settings,
    out: Output,
) -> int:
    """Compare the index NAME with its ledger, or with SOURCE itself.

    Every document carries digests of its source and of its encoding; one request compares counts and sums of 1,024 buckets,
    and only what differs is read id by id. Exit status 4 when something is missing, extra or altered.

    \b
    Examples:
      termweave verify docs
      termweave verify docs ./nfcorpus
      termweave verify docs --deep --json
      termweave verify docs --deep 5%
    """
    if deep == 0.0:
        raise click.UsageError("--deep 0% reads nothing back: leave it out, or write --deep 5%.")
    said = "--skip-bad, --id-field, --title-field and --text-field say how SOURCE is read, and there is none"
    check_together((said, source is None and (skip_bad or any(reading.values()))))
    from termweave import corpora, engine
    from termweave.errors import VerificationFailed
    from termweave.indexer import ledgers, verify, verify_against_source
    from termweave.search import lineage

    server = engine.connect(settings)
    index = lineage.resolve(server, name)
    made = lineage.read(server, index)  # first: an index of another program has no ledger anywhere
    if source is None:
        with ledgers.existing(server, index) as ledger:
            found = verify(server, index, ledger, deep=deep or 0.0)
    else:
        opened = corpora.open_source(source, skip_bad=skip_bad, **reading)
        found = verify_against_source(server, index, opened, deep=deep or 0.0)
    beside = _beside(server, index, made)
    data = {
        "schema": "termweave.verify/1",
        "ok": found.ok,
        "generation": index,
        "deep": bool(deep),
        "read": found.read,
        "expected": found.expected,
        "counted": found.counted,
        "documents": found.documents,
        "missing": found.missing,
        "extra": found.extra,
        "altered": found.altered,
        "lost": found.lost,
        "refused": list(beside.refused),
    }
    out.emit(data, lambda: _result(name, "standard input" if source == "-" else source or "its ledger", found, deep))
    for remark in _remarks(name, index, source, found, beside):
        out.say(remark)
    return 0 if found.ok else VerificationFailed.exit_status


@dataclass(frozen=True)
class _Beside:
    """What else this host's ledger says; nothing where there is none that can be read.

    Attributes:
        refused: Ids of documents and passages that the engine refused.
        letters: The file that says why.
        updating: An update is running, or was stopped.
        elsewhere: The last update came from another host.
    """

    refused: Sequence[str] = ()
    letters: str = ""
    updating: bool = False
    elsewhere: bool = False


def _beside(server: Engine, index: str, made: Lineage) -> _Beside:
    from termweave.errors import TermweaveError
    from termweave.indexer import ledgers, refusals

    try:
        with ledgers.existing(server, index) as ledger:
            return _Beside(
                refused=[identity for identity, _, _ in ledger.refused()],
                letters=str(refusals.file_of(ledger)),
                updating=ledger.get("state") == "updating",
                elsewhere=(ledger.get("lineage") or {}).get("updated", "") != made.updated,
            )
    except TermweaveError:
        return _Beside()


def _result(name: str, against: str, found: Difference, deep: float | None) -> str:
    """What is there and what is not, for people."""
    from termweave.words import counted

    cut = found.counted != found.documents
    if found.same:
        read = f" (content of {found.read:,} read back)" if deep else ""
        passages = f" in {counted(found.counted, 'passage')}" if cut else ""
        return f"{name}: {counted(found.documents, 'document')}{passages}, all there, nothing twice, as in {against}{read}."
    what = ("document or passage", "documents and passages") if cut else ("document",)
    lines = [f"{name}: {counted(found.counted, *what)}; {against} has {found.expected:,}."]
    for kind in ("missing", "extra", "altered"):
        ids: list[str] = getattr(found, kind)
        # An id may hold line feeds, or what commands a terminal.
        lines += [f"  {kind}: {identity if identity.isprintable() else repr(identity)}" for identity in ids[:_SHOWN]]
        lines += [f"  {kind}: and {len(ids) - _SHOWN:,} more (--json lists them)"] if len(ids) > _SHOWN else []
    return "\n".join(lines)


def _remarks(name: str, index: str, source: str | None, found: Difference, beside: _Beside) -> Iterator[str]:
    """What a user should know beside the result, and what to do."""
    from termweave.words import counted

    if found.ok and beside.updating:
        yield f"An update of {name} is running, or was stopped and may be there in part. Repeat it where it was stopped."
    if not found.same:
        sent = f"{source} holds" if source else "was sent"
        advice = _advice(found, beside, by_ledger=source is None)
        yield f"What is stored in {index} is not what {sent}. {advice}"
    if beside.refused:
        many = counted(len(beside.refused), "document or passage was", "documents or passages were")
        yield f"{many} refused by the engine when {name} was built: {beside.letters} says which, why and what to do."
    if found.lost:
        yield (
            f"{found.lost}, the statistics that its weights stand on, is gone: hosts that keep no copy cannot search {name}. "
            "Index again to mend it, or with --update from a host that keeps one."
        )


def _advice(found: Difference, beside: _Beside, *, by_ledger: bool) -> str:
    """What mends what was found."""
    if not (found.extra or found.inside) and {*found.missing, *found.altered} <= set(beside.refused):
        return "The engine refused all that differs: mend these documents in the source and index again."
    if found.inside:
        return "Index again, without --update, to mend it: an update compares digests, and those of damaged content are as they were."
    if by_ledger and beside.updating:
        return "Repeat the update that was stopped."
    if by_ledger and beside.elsewhere:
        return "It was updated from another host, of which this host's ledger knows nothing: compare it with its source, 'termweave verify NAME SOURCE'."
    if not by_ledger and len(found.altered) + len(found.extra) == found.counted > 0:
        return "Not one document is the same: say the --id-field, --title-field and --text-field that 'index' was given, or index again."
    extra = "; --delete-missing deletes what is extra" if found.extra else ""
    return f"Index again to mend it, or with --update{extra}."
