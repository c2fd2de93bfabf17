"""Publication: store a generation's profiles, and point the alias of a name at the generation in one atomic step, also for `promote` and `rollback`.

Profiles lie in `_meta` beside the lineage, and writing the lineage replaces the whole of it. `tune` and `profiles` write there at any
time, while a build runs for hours. So the profiles are read immediately before each write; everything else of the lineage is known.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from termweave.catalog import audit
from termweave.catalog.generations import LiveGeneration, check_free, live
from termweave.catalog.lineage import ROLLED_BACK, Lineage, read_lineage, store_lineage, unless_missing
from termweave.engine.client.connection import Engine, quote
from termweave.engine.client.resolved_name import SETTING, default_pipeline_name, stands_for
from termweave.errors import EngineError, TermweaveError, UsageError
from termweave.indexer.generations.index_setup import close_writer, is_written, no_writer
from termweave.indexer.generations.listing import closed_error, list_generations
from termweave.indexer.ledger import storage
from termweave.rerank.stored_rerankers import fitting

if TYPE_CHECKING:
    from termweave.indexer.ledger.build_lock import Lease
    from termweave.indexer.ledger.ledger import Ledger


def publish(
    engine: Engine, name: str, index: str, expected: str | None, act: audit.Act = "publish", lease: Lease | None = None
) -> None:
    """Point the alias at a generation, in one atomic step, and write a line of the audit trail. Documents that the alias hides stay hidden.

    Args:
        engine: The server.
        name: The alias.
        index: The generation.
        expected: The index that the alias pointed at when the build began; None: there was no alias.
        act: What the audit trail calls it.
        lease: The lease under which the generation was written; None: an earlier command wrote the generation.

    Raises:
        EngineError: Somebody else has moved the alias since, or has taken over the lease.
        UsageError: There is an index of that name: the server makes one if an application writes to NAME.
    """
    now = live(engine, name)
    if now is None:
        check_free(engine, name)
    if now not in {None, expected, index}:  # if the alias is gone, nobody moved it elsewhere
        message = f"While {index!r} was built, another command pointed {name!r} at {now!r}, so this build was not published."
        raise EngineError(message, "Compare both generations. Run 'termweave index' again to publish yours.")
    _, aliases = stands_for(engine, name) if now else ([], {})
    actions: list[dict[str, Any]] = [{"add": {"index": index, "alias": name, **aliases.get(name, {})}}]
    if now and now != index:
        if (pipeline := default_pipeline_name(engine, now)) and default_pipeline_name(engine, index) is None:
            engine.request("PUT", f"/{index}/_settings", body={SETTING: pipeline})  # it may hide documents
        actions.insert(0, {"remove": {"index": now, "alias": name, "must_exist": True}})
    if lease is None:
        engine.request("POST", "/_aliases", body={"actions": [*actions, no_writer(index)]})
    else:
        close_writer(engine, index, lease, *actions)
    audit.write(engine, act, name, before=now, after=index)


def was_published(engine: Engine, index: str, ledger: Ledger, live_index: str | None) -> bool:
    """Whether a generation was published although its ledger calls it unfinished, because the builder died before it could note the publication.

    If so, the ledger notes the publication now and is closed.
    """
    if index != live_index and (not read_lineage(engine, index).complete or is_written(engine, index)):
        return False
    ledger.put("state", "complete")
    ledger.close()
    return True


def promote(engine: Engine, name: str, index: str, act: audit.Act = "promote") -> str | None:
    """Point the alias at another complete generation, also at one that missed its gate.

    Args:
        engine: The server.
        name: The alias.
        index: The generation.
        act: What the audit trail calls it.

    Returns:
        The index that the alias pointed at before; None: there was no alias.

    Raises:
        UsageError: There is no such generation, it was never finished, or it is closed.
    """
    generations = {generation.index: generation for generation in list_generations(engine, name)}
    if index not in generations:
        raise UsageError(f"{name!r} has no generation {index!r}.", f"It has: {', '.join(generations)}.")
    generation = generations[index]
    if generation.unreadable:
        raise UsageError(generation.unreadable)
    if not generation.complete:
        raise UsageError(f"{index!r} was never finished and verified.", "Finish it by repeating its 'termweave index' command.")
    if generation.closed:  # searches of the name would find nothing
        raise closed_error(index)
    before = live(engine, name)
    if generation.missed:  # the user publishes it on purpose: `rollback` may return to it
        store_lineage(engine, index, replace(read_lineage(engine, index), missed=""))
        with suppress(UsageError), storage.existing(engine, index) as ledger:
            ledger.put("state", "complete")
    publish(engine, name, index, before, act)
    if act == "rollback" and before not in {None, index}:
        with suppress(TermweaveError):  # its lineage is damaged
            store_lineage(engine, before, replace(read_lineage(engine, before), missed=ROLLED_BACK))
    return before


def profile_change(engine: Engine, before: str | None, after: str) -> tuple[str, str] | None:
    """Return the names of the profiles that searches use in two generations; None: both use the same profile, or a generation is missing or unreadable."""
    if before is None:
        return None
    with suppress(TermweaveError):
        was, now = read_lineage(engine, before), read_lineage(engine, after)
        if was.profiles.get(was.profile) != now.profiles.get(now.profile):
            return was.profile or "none", f"another {now.profile}" if was.profile == now.profile else now.profile or "none"
    return None


def profile_remark(engine: Engine, name: str, before: str | None, after: str) -> str | None:
    """Return a sentence if searches use another profile in the generation `after` than in `before`; None: they use the same profile."""
    change = profile_change(engine, before, after)
    return change and (
        f"The profile in use was {change[0]} and is {change[1]}: weights, rules, pinned and hidden documents may differ. "
        f"'termweave profiles {name}' shows what this generation has."
    )


def previous(engine: Engine, name: str) -> str:
    """Return the generation to roll back to: of those older than the live one, the newest that is complete, not refused by its gate and not left by a rollback.

    Raises:
        UsageError: There is no such generation.
    """
    generations = list_generations(engine, name)
    after_live = next((place for place, generation in enumerate(generations, start=1) if generation.live), 0)
    for generation in generations[after_live:]:
        if generation.accepted:
            return generation.index
    raise UsageError(f"{name!r} has no older generation to go back to.", "'termweave generations' lists its generations.")


def write_lineage(engine: Engine, index: str, lineage: Lineage, live: LiveGeneration | None) -> list[str]:
    """Store a lineage, with the profiles that the generation should have now.

    The profiles are the live generation's if both generations have the same models and signals, else this generation's own. Rules that
    read metadata which this generation lacks, or has in another type, are removed from the profiles: with them every search would fail.

    Args:
        engine: The server.
        index: The generation.
        lineage: The lineage to store; the profiles in it are not used.
        live: The generation that was live when the build began; None: there was none.

    Returns:
        Warnings about profiles and rules that are left behind.
    """
    profiles: dict[str, Any] = _stored_profiles(engine, index) or {}
    warnings: list[str] = []
    if live is not None and live.index != index and (tuned := _stored_profiles(engine, live.index)) is not None:
        if live.lineage.models == lineage.models and live.lineage.signals.keys() == lineage.signals.keys():
            profiles, warnings = fitting(replace(live.lineage, **{"profiles": {}, "profile": "", **tuned}), lineage.layout)
        elif names := [each for each in tuned.get("profiles", ()) if each not in profiles.get("profiles", ())]:  # a copy has them
            warnings = [f"Profiles left behind ({', '.join(names)}): they were tuned for other models or signals. Tune again."]
    store_lineage(engine, index, replace(lineage, **{"profiles": {}, "profile": "", **profiles}))
    return warnings


def _stored_profiles(engine: Engine, index: str) -> dict[str, Any] | None:
    """Read `Lineage.profiles` and `Lineage.profile` of an index; None: the index was deleted meanwhile."""
    params = {"filter_path": "*.mappings._meta.termweave.profile,*.mappings._meta.termweave.profiles"}
    answer = unless_missing(lambda: engine.request("GET", f"/{quote(index)}/_mapping", params=params))
    return None if answer is None else dict(answer.get(index, {}).get("mappings", {}).get("_meta", {}).get("termweave", {}))
