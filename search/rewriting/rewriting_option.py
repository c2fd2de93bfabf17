"""Rewriting as an option of a search: `--rewrite operators,spelling`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from termweave.declared_settings import Setting
from termweave.search.feature import Feature
from termweave.support.messages import clipped, few

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from termweave.records import Encoding
    from termweave.search.feature import Encode, Report, Search
    from termweave.search.rewriting.configuration import Rewriting
else:  # a command reads the annotations to print its help, and must not wait for this module
    Rewriting = Any

#: What looks like an operator of another search engine: words in quotes, +word, -word; not the inches of a 5" or 27" screen.
_OPERATORS = re.compile(r'(?:(?<=\s)|^)(?:[+-]?"[^"\s][^"]*"|[+-][^\W\d]\w*)')


def _rewriting(value: Any) -> Any:
    from termweave.search.rewriting.configuration import parse  # noqa: PLC0415 - not needed by `--help`

    return parse(value)


@dataclass(frozen=True, kw_only=True)
class RewritingOptions:
    """The rewriting of queries before they are searched.

    Attributes:
        rewrite: "operators", "spelling", "synonyms@FILE", "pins@FILE", several with commas, or "none" (`termweave.search.rewriting`).
            None: what the profile says, else nothing.
    """

    heading: ClassVar[str] = "Ranking"

    rewrite: Annotated[
        str | Rewriting | None,
        Setting(
            'Read the query as it was typed: operators ("a phrase" must occur, -word must not), spelling (a word that no document holds is '
            "replaced by the nearest that one does), synonyms@FILE (Solr's format), pins@FILE (a table of query, document, pin or hide: what comes "
            "first and what never appears), or several: operators,spelling. none: nothing.",
            "HOW",
            "what the profile says, else nothing",
            control="Rewrite the query",
            example="operators,spelling",
            convert=_rewriting,
        ),
    ] = None


class Rewritten(Feature[RewritingOptions]):
    """Rewrites queries as the user or the profile says, and encodes the result."""

    local, always = False, True  # the profile may ask for a rewriting

    def __init__(self, options: RewritingOptions, search: Search) -> None:
        """Choose the rewriting: the user's, or else the profile's. The profile's pins are added to a user's rewriting without pins."""
        from termweave.search.profiles import rewriting_of  # noqa: PLC0415 - not needed by `--help`

        super().__init__(options, search)
        of_user, stored = _rewriting(options.rewrite), rewriting_of(search.profile)
        self.rewriting = stored if of_user is None else of_user.with_pins(stored.pins) if stored else of_user

    def encode(self, texts: Sequence[str], inner: Encode) -> list[Encoding]:
        """Rewrite the queries, and encode the result."""
        from termweave.search.rewriting import rewriter  # noqa: PLC0415 - not needed by `--help`

        return rewriter.encode(self.search.generation, texts, self.rewriting, inner)

    def remarks(self, report: Report) -> Iterator[str]:
        """Say how the query was rewritten, or that it has operators (quotes, + or -) which were read as plain words."""
        query = report.last.candidates.query
        yield from _on_rewriting(query, ranked=bool(report.ranked or report.last.ranked))
        if query.liked is None and (operators := _OPERATORS.findall(query.text)):
            reads = self.rewriting is not None and self.rewriting.operators
            yield (
                f"Read as plain words: {few([each.strip() for each in operators], 3)}. "
                + ("" if reads else 'With --rewrite operators (rewrite="operators") ')
                + '"a phrase" must occur and -word must not, where blanks are around them; + has no meaning.'
            )


def _on_rewriting(query: Encoding, *, ranked: bool) -> Iterator[str]:
    """Remarks on how a query was rewritten: which text was searched instead, and whether phrases and exclusions leave no document."""
    from termweave.search.rewriting import operators  # noqa: PLC0415 - not needed by `--help`

    if query.rewritten is None:
        return
    if words := query.rewritten.corrected:
        text = " ".join(words.values()) if query.liked else query.text.strip()  # then it holds texts of documents, too
        yield (
            f"Searched for {clipped(text)!r} instead of {clipped(query.rewritten.typed)!r}: no document holds "
            f"{few([repr(word) for word in words], 3)}."
        )
    if ignored := query.rewritten.ignored:
        yield f"The query has too many synonyms: those of {few([repr(word) for word in ignored], 3)} are not all searched."
    if frequent := query.rewritten.frequent:
        yield (
            f"More than {operators.MOST_DOCUMENTS:,} documents hold {few([repr(each) for each in frequent], 3)}: each passage was checked alone, "
            "so that another passage of the same document may contradict the query."
        )
    if query.rewritten.operators and not ranked:
        yield f"No document that the query finds passes {few(query.rewritten.operators, 3)}. Remove some of these operators."
