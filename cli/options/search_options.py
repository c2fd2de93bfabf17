"""Options of the verbs that rank documents for one query: the mode, the reranker, and which documents take part."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from termweave.cli.options.number_types import IntRange
from termweave.cli.options.option_groups import option_group

if TYPE_CHECKING:
    from collections.abc import Callable


def check_reranker(
    ctx: click.Context, param: click.Parameter, value: str | tuple[str, ...] | None
) -> str | tuple[str, ...] | None:
    """Check the names given to `--rerank`, as the callback of that option.

    Raises:
        UsageError: There is no such reranker.
    """
    from termweave.search.ranking import rerankers

    del ctx, param
    for name in [value] if isinstance(value, str) else value or ():
        for stage in rerankers.split_chain(name):
            if stage != "ranker":  # the ranker of the profile, which only the index knows
                rerankers.choose(stage)
    return value


def milliseconds(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Convert a time to milliseconds, as the callback of an option: "80ms", "0.5s"; "none" is infinity.

    Raises:
        BadParameter: The value is no time from 0 on.
    """
    if value is None:
        return None
    if value.strip() == "none":
        return float("inf")
    match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)\s*(ms|s)", value.strip(), re.ASCII)
    if match is None:
        raise click.BadParameter(f"{value!r} is no time; write 80ms or 0.5s.", ctx, param)
    return float(match[1]) * (1000 if match[2] == "s" else 1)


def rank_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --mode, --rerank and --rerank-budget, which the function receives in milliseconds."""
    return option_group(
        "Ranking",
        click.option(
            "--mode",
            help="lexical, weights, term_frequency, dense, hybrid, or a weighted list (weights:0.6,dense:0.4); after @ the fusion: "
            "adaptive, min-max, z-score, rrf or sum (hybrid@rrf). Or the name of a profile that 'termweave tune' made.  "
            "[default: the adopted profile, else hybrid]",
        ),
        click.option(
            "--rerank",
            metavar="NAME",
            callback=check_reranker,
            help="none, rnn (reciprocal nearest neighbours), rnn@dense (which mixes in the inner product, as the paper does, in place of the fused "
            "score), ranker@FOLDER or ranker@hf:OWNER/NAME (a cross-encoder; FOLDER or "
            "hf:OWNER/NAME for short), a reranker of an installed package, or a chain: 'rnn>NAME'.  "
            "[default: what the profile says, else none]",
        ),
        click.option(
            "--rerank-budget",
            metavar="TIME",
            callback=milliseconds,
            help="Time in which a ranker scores the candidates of a query, in the order so far: 80ms or 0.5s. Documents that "
            "it cannot score in time follow in their former order. Loading the model does not count. none: no limit.  [default: what the profile says, "
            "else none]",
        ),
    )(function)


def words_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --explain-words."""
    return click.option(
        "--explain-words",
        is_flag=True,
        help="Explain, with the words that the logit of a ranker depends on most. It scores each hit once without each of up to 64 "
        "words, which takes seconds.",
    )(function)


def candidate_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --filter and --candidates."""
    return option_group(
        "Candidates",
        click.option(
            "--filter",
            "filters",
            multiple=True,
            metavar="EXPRESSION",
            help='Only documents that pass, for example kind=function or "year>=2020 AND (lang=en OR lang=de) AND NOT exists(draft)". '
            "Operators: = != < <= > >=. Or a clause of the query DSL (JSON), for which metadata are texts in metadata.FIELD and typed "
            "values in typed.FIELD. Given several times, all must pass.",
        ),
        click.option(
            "--candidates",
            type=IntRange(1, 10_000),
            default=100,
            show_default=True,
            help="How many documents each signal returns. Fused scores depend on this number; later pages ask for more.",
        ),
    )(function)
