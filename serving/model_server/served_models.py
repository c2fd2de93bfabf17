"""The models that requests can name, each by itself or as an index uses it; models of an index may be opened at the first request."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np

from termweave import encoders
from termweave.catalog.lineage import Lineage, all_live, check_one, read_lineage, resolve_index, resolve_name
from termweave.encoders.kinds import kind_of, read_folder
from termweave.encoders.model_lookup import resolve
from termweave.errors import EngineError, ModelError, TermweaveError, UsageError
from termweave.records import Document, Encoding
from termweave.search.opening import OpenGeneration, open_generation
from termweave.support.normal_form import normal
from termweave.ui.workspace import FreshItems

if TYPE_CHECKING:
    from termweave.encoders import TextEncoder
    from termweave.encoders.term_weighting import Kind
    from termweave.engine import Engine
    from termweave.ui.serve_options import ServeOptions

#: Seconds after which the server is asked again which generation an index has, and which indices there are.
FRESH, _LISTED = 1.0, 5.0
#: Generations that stay open: each holds the statistics of its corpus.
_OPEN = 16
#: Output of an encoder -> the endpoint that gives it.
KINDS = {"dense": "embeddings", "weights": "sparse"}
#: Characters of a token, at the most: of longer ones a few are not counted.
_CHARACTERS = 32


@dataclass(frozen=True)
class ModelListing:
    """The description of a model that requests can name.

    Attributes:
        hash: Hash of the model.
        names: Names of the model.
        outputs: What the model computes: "dense" (vectors), "weights" (term weights) or both.
        dimension: Length of the vectors; None: the model gives no vectors.
        index: Name of the index for which the model encodes, by its statistics and as its fields store numbers; "": no index.
    """

    hash: str
    names: tuple[str, ...]
    outputs: tuple[str, ...]
    dimension: int | None
    index: str = ""

    @property
    def id(self) -> str:
        """The unique name of the model in requests: ``HASH``, or ``HASH@INDEX`` for the model of an index."""
        return f"{self.hash}@{self.index}" if self.index else self.hash


@dataclass(frozen=True, eq=False, kw_only=True)
class ServedModel(ModelListing):
    """A model that is open, ready to encode.

    Attributes:
        encoder: The encoder that computes the outputs.
        generation: The open generation of the index; None: the model serves no index.
        engine: The search server of the index; None: the model serves no index.
    """

    encoder: TextEncoder
    generation: OpenGeneration | None = None
    engine: Engine | None = None

    @cached_property
    def _encoders(self) -> dict[str, TextEncoder]:
        """Output -> an encoder that computes only this output; cached, because an encoder keeps what it has read from its folder."""
        return {output: self.encoder.only({output}) for output in KINDS}

    def run_once(self) -> None:
        """Encode one word as query and as document for each output, so that graphs and statistics are loaded before the first request."""
        kinds: tuple[Kind, ...] = ("query", "document")
        for kind in kinds:
            for output in self.outputs:
                (self.weights if output == "weights" else self.vectors)(["open"], kind)

    def vectors(self, texts: Sequence[str], kind: Kind) -> list[tuple[Any, int]]:
        """The vector ``(d,)`` of each text, and the number of tokens that the model has read of the text.

        For an index a vector is as its field stores the vector of a document, or as a search sends the vector of a query.
        """
        encoded, signal = self._encoded("dense", texts, kind)
        vectors = [each.vector for each in encoded]
        if signal is not None:
            vectors = [signal.stored_vector(each) if kind == "document" else signal.query_vector(each)[0] for each in vectors]
        dense = self._encoders["dense"]
        most = dense.models["dense"].max_length
        lengths = dense.lengths([text[: most * _CHARACTERS] for text in texts])  # to count all of a long text takes a second
        return [(vector, min(length, most)) for vector, length in zip(vectors, lengths, strict=True)]

    def weights(self, texts: Sequence[str], kind: Kind) -> list[dict[str, float]]:
        """Term -> weight for each text; for an index as its field stores the weights of a document, or as a search sends the weights of a query."""
        encoded, signal = self._encoded("weights", texts, kind)
        if signal is None:
            return [{} if each.weights is None else each.weights.as_dict() for each in encoded]
        if kind == "document":
            return [signal.fields(Document("", each.text), each).get("weights", {}) for each in encoded]
        assert self.engine is not None
        return [signal.query_features(each, self.engine.capabilities) for each in encoded]

    def _encoded(self, output: str, texts: Sequence[str], kind: Kind) -> tuple[list[Encoding], Any]:
        """Encode texts for one output, by the statistics of the index if there is one.

        Returns:
            The encodings, and the signal of the index that stores this output; None: the model serves no index, or the index lacks the signal.

        Raises:
            ModelError: A computed number is not finite.
        """
        statistics = self.generation.statistics if self.generation and output == "weights" else None
        encoded = self._encoders[output].encode([*map(normal, texts)], kind=kind, statistics=statistics)
        for each in encoded:
            numbers = each.vector if output == "dense" or each.weights is None else each.weights.weights
            if numbers is not None and not np.isfinite(numbers).all():
                advice = "The model folder is damaged or was exported from a diverged training."
                raise ModelError(f"The model {self.names[0]!r} gave NaN or infinity.", advice)
        return encoded, next(iter(self.generation.signals({output})), None) if self.generation else None


class UnknownModel(UsageError):
    """No served model has the name or hash that a request gives."""


class ServedModels:
    """All models that requests can name; safe for use by several threads.

    Args:
        engine: The search server whose indices' models are served; None: no index is served.
        options: The options of `termweave serve`, which name the index and the models to serve.

    Attributes:
        generations: The open generations of indices, by name of the index.
        ready: Whether all models are open.
        reason: Why not all models are open yet, in words.
        left_out: Name of each index that cannot be served -> the reason.
    """

    def __init__(self, engine: Engine | None, options: ServeOptions) -> None:
        self._engine, self._options = engine, options
        self._lock = Lock()
        # It forgets the models that no open generation uses.
        self._encoders: WeakValueDictionary[frozenset[tuple[str, str]], TextEncoder] = WeakValueDictionary()
        self.generations: FreshItems[OpenGeneration] = FreshItems(_OPEN, seconds=FRESH)
        self._alone: dict[str, ServedModel] = {}
        for model in map(self._without_index, options.served):  # one model may be named in several ways
            first = self._alone.setdefault(model.hash, model)
            self._alone[model.hash] = replace(first, names=tuple(dict.fromkeys((*first.names, *model.names))))
        self._live: FreshItems[Mapping[str, Lineage]] = FreshItems(1, seconds=_LISTED)
        self.ready = False
        self.reason = "Models are being opened."
        self.left_out: dict[str, str] = {}

    def warm(self) -> None:
        """Open every served model and run it once, so that no request waits for this; try again every few seconds until no error is left."""
        while not self.ready:
            try:
                self._open()
            except TermweaveError as error:
                reason = f"{error.message} {error.hint}".strip()
                if reason != self.reason:
                    logging.getLogger(__name__).warning("Not ready: %s", reason)
                self.reason = reason
                time.sleep(_LISTED)

    def _open(self) -> None:
        """Open and run the served models once, set `ready`, and note in `left_out` the indices that cannot be served.

        Raises:
            TermweaveError: A model that the user named cannot be run, the search server does not answer, or the one index that the user named
                cannot be served.
        """
        for model in self._alone.values():
            model.run_once()
        for name in list(self._lineages())[:_OPEN]:
            try:
                self.generation(name)
            except (UsageError, ModelError) as error:
                if self._options.index is not None:
                    raise
                self.left_out[name] = f"{error.message} {error.hint}".strip()
        self.ready = True

    def all(self) -> list[ModelListing]:
        """List the models that are served by themselves, then the models of each index, without the indices in `left_out`."""
        served = [_listings(name, record) for name, record in self._lineages().items() if name not in self.left_out]
        return [*self._alone.values(), *(each for listings in served for each in listings)]

    def recent(self, reference: str) -> ServedModel | None:
        """The model that a request names, if it is open and up to date, so that the search server need not be asked; else None.

        Raises:
            UnknownModel: Several models have this name.
        """
        name, _, index = reference.rpartition("@")
        generation = self.generations.fresh(index)
        alone = _matching(reference, self._alone.values())
        return alone or (_matching(name, self._of_index(index, generation)) if generation else None)

    def find(self, reference: str) -> ServedModel:
        """Find the model that a request names, opened: ``HASH`` or ``NAME``, or as an index uses it ``HASH@INDEX`` or ``NAME@INDEX``.

        Raises:
            UnknownModel: No served model has this name, or several have it.
            EngineError: The search server that has the index does not answer.
        """
        if model := self.recent(reference):
            return model
        name, at, index = reference.rpartition("@")
        if not at:
            raise UnknownModel(f"No model {reference!r} is served.", self._what_is_served())
        try:
            generation = self.generation(index)
        except (UsageError, ModelError) as error:
            raise UnknownModel(f"No model {reference!r} is served. {error.message}", error.hint) from None
        models = self._of_index(index, generation)
        if model := _matching(name, models):
            return model
        others = " and ".join(f"{each.names[0]!r} ({each.hash})" for each in models)
        message = f"The index {index!r} does not have the model {name!r} now: it has {others or 'none'}."
        raise UnknownModel(message, "Name the model that it has, or make the generation with the other model live again.")

    def _what_is_served(self) -> str:
        """A sentence for error messages that lists the first ten models that requests can name."""
        try:
            models = self.all()
        except EngineError:  # what the server has is unknown
            models = list(self._alone.values())
        served = [f"{each.id} ({each.names[0]})" for each in models]
        more = f" and {len(served) - 10} more" if served[10:] else ""
        return f"Served: {', '.join(served[:10])}{more}." if served else "No model is served yet."

    def _without_index(self, name: str) -> ServedModel:
        """Open the model with a name or in a folder, to be served by itself without an index.

        Raises:
            UsageError: The model does not exist, or gives neither vectors nor term weights.
            ModelError: The folder of the model is damaged.
        """
        folder = read_folder(resolve(name), name=name)
        manifest = folder.manifest
        # Only an index has the statistics that weights of this kind depend on.
        of_index = {"weights"} if kind_of(manifest).needs_statistics and folder.statistics is None else set()
        outputs = tuple(output for output in KINDS if output in {*manifest.outputs} - of_index)
        if not outputs:
            message = f"The model {name!r} gives no vectors, and its term weights need the statistics of an index."
            raise UsageError(message, "Name an encoder with --model, or serve an index: 'termweave serve --models'.")
        weights, dense = (name if output in outputs else "none" for output in ("weights", "dense"))
        encoder = self._shared(encoders.load(weights, dense))
        return ServedModel(manifest.hash, (name, manifest.name), outputs, encoder.dimension, encoder=encoder)

    def _lineages(self) -> Mapping[str, Lineage]:
        """Name -> lineage of the live generation of each served index; the search server is asked at most every few seconds.

        Raises:
            EngineError: The search server does not answer.
        """
        engine, name = self._engine, self._options.index
        if engine is None:
            return {}

        def look(_: object) -> Mapping[str, Lineage]:
            return all_live(engine) if name is None else {name: read_lineage(engine, resolve_index(engine, name))}

        return self._live.get("", look)

    def generation(self, name: str) -> OpenGeneration:
        """The live generation of an index, opened; if the search server does not answer, the generation that was opened last.

        Raises:
            UsageError: There is no such index, or termweave did not make the index, or the index is not served.
            ModelError: This host does not have the models of the index.
        """
        check_one(name)
        engine = self._engine
        if engine is None or self._options.index not in {None, name}:
            raise UsageError(f"The index {name!r} is not served here.", "Start 'termweave serve --models' for it.")

        def look(last: OpenGeneration | None) -> OpenGeneration:
            try:
                resolved = resolve_name(engine, name)
                record = read_lineage(engine, resolved.index)
            except EngineError:
                if last is None:
                    raise
                return last
            if last is not None and (last.name, last.lineage) == (resolved, record):
                return last
            generation = open_generation(engine, name, self._options.models or {})
            generation = replace(generation, encoder=self._shared(generation.encoder))
            for model in self._of_index(name, generation):
                model.run_once()
            return generation

        return self.generations.get(name, look)

    def _shared(self, encoder: TextEncoder) -> TextEncoder:
        """The encoder that was opened first for the same models as the given one, so that each model is in memory only once."""
        key = frozenset((output, model.hash) for output, model in encoder.models.items())
        with self._lock:
            return self._encoders.setdefault(key, encoder)

    def _of_index(self, name: str, generation: OpenGeneration) -> list[ServedModel]:
        """The models of an index as `ServedModel`, with the encoder of its open generation."""
        opened: dict[str, Any] = {"encoder": generation.encoder, "generation": generation, "engine": self._engine}
        return [ServedModel(**vars(each), **opened) for each in _listings(name, generation.lineage)]


def _listings(name: str, record: Lineage) -> list[ModelListing]:
    """Describe the models that the lineage of an index names, each with its outputs; one model may give both vectors and term weights."""
    listings = []
    for model in dict.fromkeys(record.models.values()):
        of_model = {output.removesuffix("_query") for output, each in record.models.items() if each.hash == model.hash}
        outputs = tuple(output for output in KINDS if output in of_model and output in record.signals)
        dimension = record.signals["dense"].get("dimension") if "dense" in outputs else None
        listings.append(ModelListing(model.hash, (model.name,), outputs, dimension, name))
    return listings


def _matching(name: str, models: Iterable[ServedModel]) -> ServedModel | None:
    """The model whose hash, or else one of whose names, is `name`; None: no model has it.

    Raises:
        UnknownModel: Several models have this name.
    """
    listed = list(models)
    matching = [model for model in listed if name == model.hash] or [model for model in listed if name in model.names]
    if len(matching) > 1:
        hashes = " and ".join(model.hash for model in matching)
        raise UnknownModel(f"{len(matching)} models are called {name!r}.", f"Name one by its hash: {hashes}.")
    return next(iter(matching), None)
