"""`termweave verify`: is everything there, and as it was sent?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from termweave.cli._options import CONTEXT, connection_options, output_options, share, source_options

if TYPE_CHECKING:
    from termweave.cli._options import Output
    from termweave.indexer.verification import Difference
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
    from contextlib import suppress

    if deep == 0.0:
        raise click.UsageError("--deep 0% reads nothing back: leave it out, or write --deep 5%.")
    from termweave import corpora, engine
    from termweave.errors import TermweaveError, VerificationFailed
    from termweave.indexer import ledgers, refusals, verify, verify_against_source
    from termweave.indexer.passages import Window, in_passages
    from termweave.search import lineage, stored_statistics
    from termweave.signals import DocumentLayout
    from termweave.words import counted

    server, updating, elsewhere = engine.connect(settings), False, False
    refused: list[str] = []
    letters = ""
    index = lineage.resolve(server, name)
    made = lineage.read(server, index)
    layout = DocumentLayout.from_meta(made.signals, made.fields)
    if source is None:
        with ledgers.existing(server, index) as ledger:
            found = verify(server, index, ledger, layout, deep=deep or 0.0)
            updating = ledger.get("state") == "updating"
            elsewhere = (ledger.get("lineage") or {}).get("updated", "") != made.updated
    else:
        opened = in_passages(corpora.open_source(source, skip_bad=skip_bad, **reading), Window.of(made.passages))
        found = verify_against_source(server, index, opened, layout, deep=deep or 0.0)
    with suppress(TermweaveError), ledgers.existing(server, index) as ledger:  # beside SOURCE nothing needs it
        refused, letters = [identity for identity, _, _ in ledger.refused()], str(refusals.file_of(ledger))
    lost = bool(made.statistics) and not stored_statistics.there(server, index)
    data = {
        "schema": "termweave.verify/1",
        "ok": found.ok and not lost,
        "generation": index,
        "deep": bool(deep),
        "read": found.read,
        "expected": found.expected,
        "counted": found.counted,
        "documents": found.documents,
        "missing": found.missing,
        "extra": found.extra,
        "altered": found.altered,
        "refused": refused,
    }

    def text() -> str:
        against = "standard input" if source == "-" else source or "its ledger"
        if found.ok:
            read = f" (content of {found.read:,} read back)" if deep else ""
            passages = f" in {counted(found.counted, 'passage')}" if found.counted != found.documents else ""
            documents = counted(found.documents, "document")
            return f"{name}: {documents}{passages}, all there, nothing twice, as in {against}{read}."
        what = ("document or passage", "documents and passages") if found.counted != found.documents else ("document",)
        lines = [f"{name}: {counted(found.counted, *what)}; {against} has {found.expected:,}."]
        for kind in ("missing", "extra", "altered"):
            ids: list[str] = getattr(found, kind)
            lines += [f"  {kind}: {identity}" for identity in ids[:_SHOWN]]
            lines += [f"  {kind}: and {len(ids) - _SHOWN:,} more (--json lists them)"] if len(ids) > _SHOWN else []
        return "\n".join(lines)

    out.emit(data, text)
    if found.ok and updating:
        out.say(f"An update of {name} is running, or was stopped and may be there in part. Repeat it where it was stopped.")
    if not found.ok:
        out.say(
            f"What is stored in {index} is not what {f'{source} holds' if source else 'was sent'}. "
            f"{_advice(found, refused, sourced=source is not None, updating=updating, elsewhere=elsewhere)}"
        )
    if refused:
        many = counted(len(refused), "document or passage was", "documents or passages were")
        out.say(f"{many} refused by the engine when {name} was built: {letters} says which, why and what to do.")
    if lost:
        out.say(
            f"{stored_statistics.companion(index)}, the statistics that its weights stand on, is gone: hosts that keep no copy cannot "
            f"search {name}. Index again to mend it."
        )
    return 0 if data["ok"] else VerificationFailed.exit_status


def _advice(found: Difference, refused: list[str], *, sourced: bool, updating: bool, elsewhere: bool) -> str:
    """What mends what was found."""
    if not (found.extra or found.inside) and {*found.missing, *found.altered} <= set(refused):
        return "The engine refused all that differs: mend these documents in the source and index again."
    if found.inside:
        return "Index again, without --update, to mend it: an update compares digests, and those of damaged content are as they were."
    if updating:
        return "Repeat the update that was stopped."
    if elsewhere:
        return "It was updated from another host, of which this host's ledger knows nothing: compare it with its source, 'termweave verify NAME SOURCE'."
    if sourced and len(found.altered) + len(found.extra) == found.counted > 0:
        return "Not one document is the same: say the --id-field, --title-field and --text-field that 'index' was given, or index again."
    extra = "; --delete-missing deletes what is extra" if found.extra else ""
    return f"Index again to mend it, or with --update{extra}."
