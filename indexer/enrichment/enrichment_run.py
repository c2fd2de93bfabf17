"""A run of an enrichment: every index that a name stands for gets the same fields, and a watch enriches indices that the name stands for later."""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Self

import orjson

from termweave.catalog import audit, generations, statistics_store
from termweave.catalog.lineage import check_alike, read_lineage, store_lineage
from termweave.corpora.sources import Skips
from termweave.encoders.recorded_models import encoder_of, remember
from termweave.engine.client.connection import quote
from termweave.engine.client.resolved_name import uuids_of
from termweave.engine.client.server_errors import EngineResponseError
from termweave.errors import InputError, TermweaveError, UsageError
from termweave.indexer.build_plan import BuildPlan, plan
from termweave.indexer.enrichment import enriched_mapping, index_passes
from termweave.indexer.enrichment.index_passes import IndexPasses, Watch
from termweave.indexer.ledger import storage
from termweave.indexer.ledger.ledger import temporary_ledger
from termweave.indexer.preparation.corpus_pass import BuildProgress, read_corpus
from termweave.support.messages import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from termweave.catalog.lineage import Lineage
    from termweave.corpora.index.source import IndexSource
    from termweave.encoders import TextEncoder
    from termweave.engine import Engine
    from termweave.indexer.ledger.build_lock import Lease
    from termweave.indexer.options import BuildOptions
    from termweave.signals.lexical import Lexical
    from termweave.statistics import CorpusStatistics

#: The stage of the progress while the application's writes are awaited.
_STAGE = "Watching"


@dataclass(frozen=True)
class Recipe:
    """The models, statistics and fields that each index of the name gets.

    Attributes:
        lineage: The lineage of an index that is enriched already, or the lineage for the first index to be enriched.
        encoder: The models.
        statistics: The collection statistics that term weights depend on; None: there is no weights model.
    """

    lineage: Lineage
    encoder: TextEncoder
    statistics: CorpusStatistics | None


@dataclass
class IndexInRun:
    """One index that the run has enriched. Closing `end` gives the lease of the index back and writes a line of the audit trail."""

    watch: Watch
    lease: Lease
    end: ExitStack


@dataclass
class EnrichmentRun:
    """The enrichment of a name.

    Attributes:
        engine: The server.
        source: Reads the indices that the name stood for when it was resolved last.
        options: Models, signals and `skip_bad` are used.
        lexical: Text fields that the signal lexical searches -> their weights; {}: those of title and text.
        close: Whether an index may be closed for a moment, which the signal learned needs.
        watched: Whether a watch follows, so that one pass suffices.
        progress: Called with (stage, done, total, detail).
        say: Called with each sentence for the user.
        recipe: What an index gets that is not enriched yet; None: that is not decided yet.
        indices: UUID of each index -> the index.
        passes: The passes over every index that was enriched.
        left_out: Documents that cannot be read.
        notes: What a user should know.
    """

    engine: Engine
    source: IndexSource
    options: BuildOptions
    lexical: Mapping[str, float]
    close: bool
    watched: bool
    progress: BuildProgress
    say: Callable[[str], None]
    recipe: Recipe | None = None
    indices: dict[str, IndexInRun] = field(default_factory=dict)
    passes: list[IndexPasses] = field(default_factory=list)
    left_out: Skips = field(default_factory=Skips)
    notes: list[str] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.indices.values():
            one.end.close()

    def begin(self) -> Recipe:
        """Count the statistics, check that the indices can take the fields, and return the recipe: what each index gets."""
        source, options = self.source, self.options
        planned = plan_first(self.engine, source, options)
        words = enriched_mapping.lexical(source, self.lexical)
        remember(planned.encoder.models.values())
        with temporary_ledger() as ledger:
            corpus = read_corpus(source, planned.encoder, ledger, skip_bad=options.skip_bad, progress=self.progress)
        sample = planned.encoder.encode([each.content for each in corpus.sample], kind="document", statistics=corpus.statistics)
        written = planned.layout(self.engine.capabilities, sample, corpus.statistics)
        inside = [replace(signal, prefix=f"{enriched_mapping.OBJECT}.") for signal in written.signals]
        layout = replace(written, signals=[*([words] if words else []), *inside])
        fields = orjson.dumps(asdict(source.reading.fields)).decode()  # for later commands
        origin = {"name": source.name, "fingerprint": "", "enriched": enriched_mapping.OBJECT, "fields": fields}
        self.notes += [*planned.notes, *corpus.notes, about(words)]
        lineage = planned.lineage(self.engine, max(source.mappings), layout, corpus.statistics, origin)
        return Recipe(lineage, planned.encoder, corpus.statistics)

    def resume(self, lineage: Lineage, index: str) -> Recipe:
        """Return the recipe with the models and statistics of an earlier enrichment, to go on with it."""
        encoder = encoder_of(lineage, index, {"weights_otherwise": self.options.weights, "dense_otherwise": self.options.dense})
        remember(encoder.models.values())
        return Recipe(lineage, encoder, statistics_store.load(self.engine, index, lineage))

    def add(self, index: str) -> None:
        """Enrich an index that the name stands for.

        Raises:
            UsageError: The mapping or settings of the index do not allow it, or the index is enriched otherwise than the others.
            TermweaveError: Another run has the lease of the index; or as `IndexPasses.repeat`.
        """
        one = self.source.of_index(index)
        with ExitStack() as end:
            lease = end.enter_context(storage.lease(self.engine, index))
            before = enriched_mapping.lineages(one).get(index)
            if before is not None and self.recipe and (words := self.recipe.lineage.signals.get("lexical")):
                before = replace(before, signals={**before.signals, "lexical": words})  # nothing is written for it
            if before is not None and (self.recipe is None or before.differences(self.recipe.lineage)):
                check_alike(enriched_mapping.lineages(self.source))
                self.recipe = self.resume(before, index)
            recipe = self.recipe = self.recipe or self.begin()
            lineage = self._give_fields(one, index, before, recipe)
            stale_writes = partial(index_passes.stale_writes, one, lineage.layout, recipe.encoder, recipe.statistics)
            passes = IndexPasses(self.engine, one, index, stale_writes, enriched_mapping.digest_field(lineage.layout))
            self.passes.append(passes)
            end.callback(self._log, passes)
            seen = index_passes.checkpoints(self.engine, index) if self.watched else {}
            first = passes.repeat(self.progress, "differ", once=self.watched)  # the watch goes on where this pass began
            if before is not None:
                share = f"{first.unchanged:,} of {counted(first.documents, 'document')}"
                self.notes.append(f"{share} had the fields already, with the same content: they were not written again.")
            now = read_lineage(self.engine, index)  # a profile may have been adopted meanwhile
            lineage = replace(
                lineage, complete=True, documents=passes.total.documents, profiles=now.profiles, profile=now.profile
            )
            store_lineage(self.engine, index, lineage)
            self.recipe = replace(recipe, lineage=lineage)
            uuid = uuids_of(self.engine, index).get(index, "")
            self.indices[uuid] = IndexInRun(Watch(passes, seen), lease, end.pop_all())
            self._name_left_out(one, aloud=self.watched)

    def _give_fields(self, one: IndexSource, index: str, before: Lineage | None, recipe: Recipe) -> Lineage:
        """Give an index the mapping, the statistics and the lineage of the recipe; returns the lineage.

        Indices of one name share their statistics. An index that the name stands for alone has a copy, because the owner may delete the earlier index.
        """
        created = generations.creation_time(self.engine, index)
        lineage = before or replace(recipe.lineage, created=created, complete=False, documents=0, name=self.source.address.index)
        if before is None:
            lineage = enriched_mapping.with_object(lineage)
            if any(not each.layout.prefix for each in enriched_mapping.lineages(self.source).values()):
                raise UsageError(
                    f"{index!r} cannot be searched together with indices that an earlier version enriched, whose fields lie elsewhere.",
                    f"Run 'termweave enrich {lineage.name} --remove', and enrich all of them anew.",
                )
            for each in reversed(self.passes):  # what was adopted since
                with suppress(TermweaveError):
                    now = read_lineage(self.engine, each.index)
                    lineage = replace(lineage, profiles=now.profiles, profile=now.profile)
                    break
            enriched_mapping.check_index(self.engine, one, index, tuple(lineage.signals))
            fields = enriched_mapping.fields_of(self.engine, one, index, lineage.layout)
            enriched_mapping.add_settings(self.engine, index, lineage.layout, close=self.close)
            # Before statistics and lineage: a refusal leaves nothing behind.
            properties = {enriched_mapping.OBJECT: {"properties": fields}}
            self.engine.request("PUT", f"/{quote(index)}/_mapping", body={"properties": properties})
        if recipe.statistics is not None:
            home = statistics_store.home(index, lineage)
            if home not in self.source.mappings or not statistics_store.is_complete(self.engine, home):
                home = index
                settings = {"index.auto_expand_replicas": "0-1", **({"index.hidden": True} if index.startswith(".") else {})}
                statistics_store.save(self.engine, index, recipe.statistics, settings)
            lineage = replace(lineage, statistics={**lineage.statistics, "index": home})
        store_lineage(self.engine, index, lineage)
        return lineage

    def _log(self, passes: IndexPasses) -> None:
        index, written = passes.index, passes.total.written
        if written:
            audit.write(self.engine, "enrich", index, before=index, after=index, documents=written)

    def _name_left_out(self, one: IndexSource, *, aloud: bool) -> None:
        for skipped in one.skipped:
            if skipped not in self.left_out.kept:
                self.left_out.add(skipped)
                if aloud:
                    self.say(f"Left out: {skipped}.")

    @property
    def written(self) -> int:
        """Number of documents that all passes wrote."""
        return sum(each.total.written for each in self.passes)

    def watch(self, every: float) -> None:
        """Enrich the documents that the application writes, and each index that the name stands for later, until a KeyboardInterrupt.

        Args:
            every: Seconds between two looks.

        Raises:
            TermweaveError: A lease was lost, or the server is away for longer than the engine is patient.
        """
        name, refused = self.source.address.index, ""
        self.say(f"{name} is enriched and watched every {every:g} s. Ctrl-C ends the watch.")
        self.progress(_STAGE, self.written, None)
        with suppress(KeyboardInterrupt):
            while True:
                now = uuids_of(self.engine, name)
                if {*now.values()} != {*self.indices}:
                    refused = self._follow(now, refused)
                for uuid, one in list(self.indices.items()):
                    one.lease.check()
                    try:
                        if (counts := one.watch.look()) and counts.written:
                            self.progress(_STAGE, self.written, None, f"last written {time.strftime('%H:%M:%S')}")
                    except (InputError, EngineResponseError):
                        if uuids_of(self.engine, one.watch.passes.index).get(one.watch.passes.index) == uuid:
                            raise  # else it was deleted meanwhile
                    self._name_left_out(one.watch.passes.source, aloud=True)
                time.sleep(every)

    def _follow(self, now: Mapping[str, str], refused: str) -> str:
        """Enrich the indices that the name stands for now; returns the problem that keeps an index from being enriched, or "".

        Args:
            now: Index -> UUID of the indices that the name stands for.
            refused: The problem that the look before returned, which is not said again.
        """
        name, earlier = self.source.address.index, {one.watch.passes.index for one in self.indices.values()}
        for uuid in self.indices.keys() - now.values():
            self.indices.pop(uuid).end.close()
        problem = "" if now else f"There is no index {name!r} now."
        try:
            for index in [index for index, uuid in now.items() if uuid not in self.indices]:
                self.source = self.source.of_index(name)
                enriched_mapping.whole_indices(self.source)
                if not refused:
                    enriched = index in enriched_mapping.lineages(self.source)
                    fields = "Its fields stay" if enriched else "It gets the models, fields and signals of the first"
                    again = " It was deleted and made again." if index in earlier else ""
                    self.say(f"{name!r} stands for {index!r} now.{again} {fields}.")
                self.add(index)
                self.say(f"{index!r} is enriched and watched.")
        except TermweaveError as error:
            gone = isinstance(error, EngineResponseError) and error.status == HTTPStatus.NOT_FOUND
            if not gone and type(error) not in {UsageError, InputError, TermweaveError}:  # the last: another run has its lease
                raise
            problem = f"{error.message} {error.hint}".strip()
        if problem and problem != refused:
            self.say(f"{problem} The watch waits until it can go on.")
        return problem


def plan_first(engine: Engine, source: IndexSource, options: BuildOptions) -> BuildPlan:
    """Plan a first enrichment, and check that every index of the name allows its fields.

    If the user names no signals, they are those of `SIGNALS` whose model the user did not turn off; the signal lexical writes nothing.
    """
    signals = tuple(name for name in options.signals or () if name != "lexical")
    if options.signals and not signals:
        hint = "Add one of them to --signals."
        raise UsageError("An enrichment writes weights, dense or learned; lexical searches what the index has.", hint)
    signals = signals or tuple(name for name in enriched_mapping.SIGNALS if getattr(options, name) != "none")
    planned = plan(source, engine.capabilities, replace(options, signals=signals))
    for index in sorted(source.mappings):
        enriched_mapping.check_index(engine, source.of_index(index), index, planned.signals)
    return planned


def about(words: Lexical | None) -> str:
    """Return a sentence that says which fields the signal lexical searches, or why there is no such signal."""
    if words is None:
        return (
            "No text field is among those of title and text, so that there is no signal lexical: name some with --lexical-field."
        )
    fields = ", ".join(f"{name}^{weight:g}" for name, weight in words.text_fields.items())
    return f"The signal lexical searches the application's own {fields}."
