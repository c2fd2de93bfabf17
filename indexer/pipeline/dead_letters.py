"""Dead letters: what the engine refused, why, and what to do about it; one JSON object a line beside the ledger."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

from termweave.errors import RefusedDocuments
from termweave.words import clipped, counted, few

if TYPE_CHECKING:
    from pathlib import Path

    from termweave.indexer.ledger import Ledger

#: Refusals named in a message; all of them are in the file it names.
_NAMED = 5
#: When so many are refused and not one in ten is taken, single documents are not what is wrong: a run ends there.
_HOPELESS, _TAKEN = 1000, 0.1
#: What the engine's reason holds -> what to do. First match wins.
_ADVICE = (
    ("immense term", "Shorten the field it names: a term has at most 32,766 bytes."),
    (
        "too many tokens for field",
        "Cut it in parts, or index with --passage-size 160: a document holds some 60,000 weighted terms.",
    ),
    *(
        (limit, f"Cut the document in parts, index with --passage-size 160, or raise {limit} on the server.")
        for limit in ("http.max_content_length", "indexing_pressure.memory.limit")
    ),
    ("dimension", "Index with the model that the index was made for."),
    ("depth", "Flatten the metadata."),
    ("within [_doc] is not allowed", "Something changed the mapping of the index: index again with --fresh."),
    ("mapping set to strict", 'Name all entries of that object in --mapping, or give it "dynamic": false there.'),
    ("failed to parse", 'Mend the value in the source, or give its field in --mapping "ignore_malformed": true.'),
)
_USUAL = "Mend the document in the source, or leave it out."


def advice(reason: str) -> str:
    """What to do about a document that was refused for this reason."""
    return next((advice for part, advice in _ADVICE if part in reason), _USUAL)


def file_of(ledger: Ledger) -> Path:
    """Where the dead letters of a generation lie."""
    return ledger.path.with_suffix(".refused.jsonl")


def write(ledger: Ledger) -> Path:
    """Write the dead letters of a generation afresh: id, line in the source, the engine's reason, what to do."""
    path = file_of(ledger)
    with path.open("w", encoding="utf-8") as file:
        for identity, line, reason in ledger.refused():
            letter = {"id": identity, "line": line, "reason": reason, "advice": advice(reason)}
            file.write(json.dumps(letter, ensure_ascii=False) + "\n")
    return path


def check_early(ledger: Ledger, allowed: float, *, refused: int, taken: int) -> None:
    """End a run that goes wrong from its beginning: a mapping that fits no document, say, and a million of them to come.

    Args:
        ledger: Of the generation.
        allowed: Share of the documents, 0 to 1, that may be refused: while it is not exceeded, the run goes on.
        refused: Documents that the engine refused in this run.
        taken: Those that it took.

    Raises:
        RefusedDocuments: Nearly all of the first thousand or more were refused.
    """
    settled = refused + taken
    if refused < _HOPELESS or taken >= _TAKEN * settled or not _too_many(refused, allowed, ledger.total):
        return
    named = ledger.refused_documents()
    what = "passages" if ledger.most_passages else "documents"
    raise RefusedDocuments(
        f"The engine refused {refused:,} of the first {settled:,} {what}: {_named(named)}.",
        f"It was stopped there. {advice(named[0][2])} All refusals, and what to do: {write(ledger)}. Mend the source or the "
        "mapping and index again, or go on to the end with --allow-refused 100%.",
    )


def check(ledger: Ledger, index: str, allowed: float) -> list[str]:
    """Refuse to go on where the engine refused more documents than are allowed, or all of them.

    Args:
        ledger: Of the generation.
        index: The generation.
        allowed: Share of the documents, 0 to 1; one in passages counts once, whatever part of it was refused.

    Returns:
        What a user should know: how many were refused, within what is allowed.

    Raises:
        RefusedDocuments: There are more.
    """
    refused = ledger.refused_documents()
    if not refused:
        return []
    total = ledger.entered
    sentence = f"The engine refused {len(refused):,} of {counted(total, 'document')}: {_named(refused)}."
    file = write(ledger)
    first = advice(refused[0][2])
    whole = ledger.refusals == ledger.total  # an index of nothing is never meant
    if _too_many(len(refused), allowed, total) or whole:
        kept = "The others are live" if ledger.get("state") == "updating" else f"{index} was not published"
        share = math.ceil(1000 * len(refused) / total) / 10  # rounded up: this much would be enough
        few = "" if whole else f" Or let them go with --allow-refused {share:g}%."
        raise RefusedDocuments(sentence, f"{kept}. {first} All refusals, and what to do: {file}. Then index again.{few}")
    return [f"{sentence} {first} All of them: {file}."]


def _too_many(refused: int, allowed: float, total: int) -> bool:
    return refused > allowed * total + 1e-6  # 0.7 / 100 * 1000 is below 7


def _named(refused: list[tuple[str, int | None, str]]) -> str:
    """The first of them, for a message."""
    named = [
        f"{clipped(identity, 60)!r}{f' (line {line})' if line else ''}: {reason}" for identity, line, reason in refused[:_NAMED]
    ]
    return few(named, _NAMED, total=len(refused), between="; ")
