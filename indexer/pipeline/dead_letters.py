"""Dead letters: the documents that the server refused, each with the reason and advice. One JSON object per line, beside the ledger."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

from termweave.corpora.sources import LINE
from termweave.errors import RefusedDocuments
from termweave.support import private_files
from termweave.support.messages import clipped, counted, few

if TYPE_CHECKING:
    from termweave.indexer.ledger.ledger import Ledger

#: Number of refusals that a message names; the file that it mentions lists all.
_NAMED = 5
#: A run ends early after this many refusals if less than this share of the documents was accepted: the mapping must be wrong.
_HOPELESS, _TAKEN = 1000, 0.1
_SPLIT = "Split the document, index with --passage-size 160, or raise"
#: A part of the server's reason -> what to do. The first match wins.
_ADVICE = (
    ("immense term", "Shorten the field that the reason names: a term has at most 32,766 bytes."),
    (
        "too many tokens for field",
        "Split the document, or index with --passage-size 160: a document can hold about 60,000 weighted terms.",
    ),
    ("http.max_content_length", f"{_SPLIT} http.max_content_length on the server (client_max_body_size on nginx)."),
    ("indexing_pressure.memory.limit", f"{_SPLIT} indexing_pressure.memory.limit on the server."),
    ("dimension", "Index with the model that the index was built with."),
    ("depth", "Flatten the metadata."),
    ("within [_doc] is not allowed", "The mapping of the index was changed: index again with --fresh."),
    ("mapping set to strict", 'Name all fields of that object in --mapping, or set "dynamic": false there.'),
    ("failed to parse", 'Correct the value in the source, or set "ignore_malformed": true for its field in --mapping.'),
)
_USUAL = "Correct the document in the source, or remove it."


def advice(reason: str) -> str:
    """Return what to do about a document that the server refused for a reason."""
    return next((advice for part, advice in _ADVICE if part in reason), _USUAL)


def file_of(ledger: Ledger) -> Path:
    """Return the path of the file with the dead letters of a generation."""
    return ledger.path.with_suffix(".refused.jsonl")


def write(ledger: Ledger) -> Path:
    """Write the dead letters of a generation, replacing the file: id, line in the source, the server's reason, advice."""
    path = file_of(ledger)
    private_files.make_file(path)
    with path.open("w", encoding="utf-8") as file:
        for identity, line, reason in ledger.refused():
            letter = {"id": identity, "line": line, "reason": reason, "advice": advice(reason)}
            file.write(json.dumps(letter, ensure_ascii=False) + "\n")
    return path


def check_early(ledger: Ledger, allowed: float, *, refused: int, taken: int) -> None:
    """End a run early if the server refuses nearly everything, for example because of a mapping that fits no document.

    Args:
        ledger: Ledger of the generation.
        allowed: Share of the documents, 0 to 1, that may be refused; the run continues while it is not exceeded.
        refused: Number of documents that the server refused in this run.
        taken: Number of documents that the server accepted in this run.

    Raises:
        RefusedDocuments: Nearly all of the first thousand or more documents were refused.
    """
    settled = refused + taken
    if refused < _HOPELESS or taken >= _TAKEN * settled or not _too_many(refused, allowed, ledger.total):
        return
    documents = ledger.refused_documents()
    noun = "passages" if ledger.most_passages else "documents"
    raise RefusedDocuments(
        f"The server refused {refused:,} of the first {settled:,} {noun}, so the build was stopped: {_listed(documents, ledger)}.",
        f"{advice(documents[0][2])} All refusals, with advice: {write(ledger)}. Correct the source or the "
        "mapping and index again, or continue in spite of them with --allow-refused 100%.",
    )


def check_share(ledger: Ledger, index: str, allowed: float) -> list[str]:
    """Check after sending that the server refused no more documents than are allowed, and not all of them.

    Args:
        ledger: Ledger of the generation.
        index: The generation.
        allowed: Share of the documents, 0 to 1, that may be refused. A document counts once if any of its passages was refused.

    Returns:
        A sentence about the refused documents; [] if there are none.

    Raises:
        RefusedDocuments: More documents were refused, or all.
    """
    refused = ledger.refused_documents()
    if not refused:
        return []
    total = ledger.entered
    sentence = f"The server refused {len(refused):,} of {counted(total, 'document')}: {_listed(refused, ledger)}."
    file = write(ledger)
    first = advice(refused[0][2])
    whole = len(ledger.refused()) == ledger.total  # nobody wants an empty index
    if _too_many(len(refused), allowed, total) or whole:
        state = "The other documents are live" if ledger.get("state") == "updating" else f"{index} was not published"
        share = math.ceil(1000 * len(refused) / total) / 10  # rounded up, so that this share is enough
        tolerate = "" if whole else f" Or accept that they are missing with --allow-refused {share:g}%."
        raise RefusedDocuments(sentence, f"{state}. {first} All refusals, with advice: {file}. Then index again.{tolerate}")
    return [f"{sentence} {first} All refusals: {file}."]


def _too_many(refused: int, allowed: float, total: int) -> bool:
    return refused > allowed * total + 1e-6  # 0.7 / 100 * 1000 is below 7


def _listed(refused: list[tuple[str, int | None, str]], ledger: Ledger) -> str:
    """List the first refused documents with their reasons, for a message."""
    entry = ledger.get("entry") or LINE  # ledgers of version 0.1 do not say it
    letters = [
        f"{clipped(identity, 60)!r}{f' ({entry} {line})' if line else ''}: {reason}"
        for identity, line, reason in refused[:_NAMED]
    ]
    return few(letters, _NAMED, total=len(refused), between="; ")
