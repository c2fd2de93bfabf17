"""A package that adds one of each to termweave: what a user of termweave writes, with nothing but its public contracts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from termweave.contracts.signal import Signal
from termweave.corpora.file_source import FileSource
from termweave.corpora.sources import OpenedSource, Reader
from termweave.declared_settings import Setting
from termweave.encoders.onnx.runtime import OnnxModel
from termweave.records import Document
from termweave.rerank.rerankers import Reranker, RerankResult
from termweave.search.feature import Feature
from termweave.signals.lexical import match_clause, term_shares
from termweave.training.methods.dtr import Dtr


@dataclass(frozen=True)
class Titles(Signal):
    """The words of titles alone."""

    name: ClassVar[str] = "titles"
    text_field: ClassVar[tuple[str, str] | None] = ("title_words", "")
    default: ClassVar[bool] = False

    @classmethod
    def fit(cls, fitting):
        return cls()

    def properties(self, dialect=None):
        return {"title_words": {"type": "text", "analyzer": "english"}}

    def fields(self, document, encoding, statistics=None):
        return {"title_words": document.title}

    def clause(self, query, *, size, where, capabilities):
        return match_clause("title_words", query.text, where, capabilities)

    def explain(self, query, clause, stored, engine_explanation):
        return term_shares(engine_explanation, "title_words")


class Shouts(FileSource, OpenedSource, Reader):
    """A file whose lines are documents: TITLE! text."""

    LABEL = "a file of shouts"
    KIND = "shouts/1"

    @classmethod
    def recognises(cls, spec):
        return spec.endswith(".shouts")

    def entries(self, progress):
        for number, line in enumerate(self.path.read_text(encoding="utf-8").splitlines(), 1):
            title, _, text = line.partition("! ")
            yield number, Document(f"shout-{number}", text, title, line=number)


@dataclass(frozen=True)
class Short(Reranker):
    """Prefer short texts, a little."""

    candidates: int = 50
    name = "short"
    needs = frozenset({"texts"})

    def rerank(self, request):
        return RerankResult([0.1 / (1 + len(text.split())) for text in request.texts], keep=0.9)


class Margin(Dtr):
    """Dense retrieval by a margin: the right document is nearer to a question than each wrong one of the batch, by 0.2."""

    name = "margin"
    source = "the hinge loss"

    def loss(self, fit, batch):
        questions = self.encode(fit, batch, "query", batch.drawn.queries)
        documents = self.encode(fit, batch, "document", batch.drawn.templates)
        cosines = questions @ documents.T
        right = cosines.new_tensor(batch.drawn.query_labels[:, None] == batch.drawn.templates).bool()
        lowest_right = cosines.masked_fill(~right, 2).amin(1)
        highest_wrong = cosines.masked_fill(right, -2).amax(1)
        return {"margin": (0.2 + highest_wrong - lowest_right).clamp(min=0).mean()}


class Slow(OnnxModel):
    """A runtime for graphs."""


@dataclass(frozen=True, kw_only=True)
class HideOptions:
    """What is hidden.

    Attributes:
        hide: Ids of documents that are not shown.
    """

    hide: Annotated[Sequence[str], Setting("Hide this document; repeatable.", "ID", repeatable=True)] = ()


class Hide(Feature[HideOptions]):
    """Hides documents by their ids, and says how many."""

    Options, part, ranks = HideOptions, "hidden", True

    def rank(self, ranking):
        places = [place for place in ranking.places if place.id not in self.options.hide]
        ranking.memory[Hide] = ranking.memory.get(Hide, 0) + len(ranking.places) - len(places)
        return replace(ranking, places=places)

    def count(self, rounds):
        return rounds[0].memory[Hide]

    @staticmethod
    def lines(part):
        yield f"{part} hidden."

    def remarks(self, report):
        yield "Some may be hidden."
