"""Options that several verbs share, each declared once, and checks of what users give to them."""

from __future__ import annotations

import functools
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from termweave.cli.common.output import Output
from termweave.cli.options.option_groups import CONNECTION, OUTPUT, option_group
from termweave.cli.options.source_index import release
from termweave.errors import UsageError
from termweave.support.messages import printable, without_password

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from termweave.corpora import OpenedSource
    from termweave.settings import Settings


def check_together(*rules: tuple[str, bool]) -> None:
    """Refuse options that contradict each other, or that mean nothing without another.

    Args:
        rules: Pairs of a sentence that states the rule, and whether the user broke it.

    Raises:
        UsageError: A rule is broken.
    """
    for sentence, broken in rules:
        if broken:
            raise click.UsageError(f"{sentence}.")


def percentage(text: str) -> float | None:
    """Convert a percentage to a share: "0.1%" becomes 0.001; None if the text is no percentage between 0% and 100%."""
    try:
        number = float(text.removesuffix("%")) / 100
    except ValueError:
        return None
    return number if text.endswith("%") and 0.0 <= number <= 1.0 else None


def share(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Convert a percentage to a share, as the callback of an option: "0.1%" becomes 0.001.

    Raises:
        BadParameter: The value is not a percentage between 0% and 100%.
    """
    if value is None:
        return None
    number = percentage(value)
    if number is None:
        raise click.BadParameter(f"{value!r} is no percentage; write 0.1% or 5%.", ctx, param)
    return number


def output_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --json, --quiet and --verbose; the function receives them as `out`."""

    @option_group(
        OUTPUT,
        click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
        click.option("-q", "--quiet", is_flag=True, help="Print no progress and no hints."),
        click.option("-v", "--verbose", is_flag=True, help="Print more details on standard error."),
    )
    @functools.wraps(function)
    def wrapped(*args: Any, as_json: bool, quiet: bool, verbose: bool, **kwargs: Any) -> Any:
        return function(*args, out=Output(as_json, quiet, verbose), **kwargs)

    return wrapped


def _only_asked(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    """Refuse a password on the command line, as the callback of an option."""
    if value in (None, "-"):
        return value
    raise UsageError(
        "A password on the command line is visible to other users of this machine, in the list of processes.",
        "Use --password - (asks), $TERMWEAVE_PASSWORD_FILE or $TERMWEAVE_PASSWORD.",
    )


def connection_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name an OpenSearch and how to reach it; the function receives them as `settings`."""

    @option_group(
        CONNECTION,
        click.option("--url", help="Address of OpenSearch.  [default: $OPENSEARCH_URL, else the running embedded node]"),
        click.option("--user", help="User name."),
        click.option(
            "--password",
            metavar="-",
            callback=_only_asked,
            help="'-' asks for the password. $TERMWEAVE_PASSWORD and termweave.toml give it, too, as they give client certificates, "
            "AWS regions and the timeout: see 'termweave config show'.",
        ),
        click.option(
            "--ca-certs",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="Certificate authorities to trust (PEM).",
        ),
        click.option("--insecure", is_flag=True, default=None, help="Do not verify the server's certificate."),
    )
    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        from termweave import settings

        flags = {name: kwargs.pop(name) for name in ("url", "user", "password", "ca_certs", "insecure")}
        if flags["url"] and without_password(flags["url"]) != flags["url"]:
            logging.getLogger(__name__).warning(
                "Warning: the password in --url is visible to other users of this machine, in the list of processes. Leave it out, and use "
                "--password - (asks), $TERMWEAVE_PASSWORD_FILE or $TERMWEAVE_PASSWORD."
            )
        return function(*args, settings=settings.load(**flags), **kwargs)

    return wrapped


def source_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that describe a corpus.

    The function receives `skip_bad`, and the names of the fields as `reading`: keyword arguments of `corpora.open_source`.
    """

    @option_group(
        "Reading the corpus",
        click.option("--id-field", metavar="NAME", help="Key or column of the id.  [default: _id, id, docid, doc_id]"),
        click.option("--title-field", metavar="NAME", help="Key or column of the title.  [default: title]"),
        click.option(
            "--text-field",
            "text_fields",
            multiple=True,
            metavar="NAME",
            help="Key or column of the text; repeat it to join several.  [default: text, contents, body, content]",
        ),
        click.option(
            "--skip-bad",
            is_flag=True,
            help="Leave out entries that cannot be read, and the second of two with the same id, and report them.",
        ),
    )
    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        names = ("id_field", "title_field", "text_fields")
        return function(*args, reading={name: kwargs.pop(name) for name in names}, **kwargs)

    return wrapped


def include_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --include and --follow-links below `source_options`: they become parts of `reading`."""

    @option_group(
        "Reading the corpus",
        click.option(
            "--include",
            multiple=True,
            metavar="GLOB",
            help="In a folder, read the files that match as texts, whatever their type: '*.py', 'src/*.c'; repeatable.  "
            "[default: *.txt, *.md, *.rst, *.adoc, *.html]",
        ),
        click.option("--follow-links", is_flag=True, help="In a folder, read links to files outside it, too."),
    )
    @functools.wraps(function)
    def wrapped(*args: Any, include: tuple[str, ...], follow_links: bool, reading: dict[str, Any], **kwargs: Any) -> Any:
        return function(*args, reading={**reading, "include": include, "follow_links": follow_links}, **kwargs)

    return wrapped


def model_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --weights, --dense and --dense-query of the verbs that search an index; they replace the models that the index names.

    The function receives them as `models`, for `models_to_open`.
    """

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return function(*args, models={name: kwargs.pop(name) for name in ("weights", "dense", "dense_query")}, **kwargs)

    return option_group(
        "Models",
        click.option(
            "--weights",
            metavar="MODEL",
            help="Term-weight model to use where this host does not have the model under the name stored with the index.",
        ),
        click.option("--dense", metavar="MODEL", help="Dense model, likewise."),
        click.option("--dense-query", metavar="MODEL", help="Encoder of queries, likewise, of an index that has one of its own."),
    )(wrapped)


def models_to_open(given: Mapping[str, str | None], settings: Settings) -> dict[str, str | None]:
    """The models that the user names for a search, else those of the settings: keywords of `search.Index.open`."""
    return {**given, "weights": given["weights"] or settings.weights, "dense": given["dense"] or settings.dense}


#: Delete without a question; the function receives it as `yes`.
yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")


def open_source(source: str, reading: Mapping[str, Any], out: Output, *, skip_bad: bool, fresh: bool = False) -> OpenedSource:
    """Open a corpus, and report how it was understood where that is not obvious: columns, files passed over.

    Args:
        source: The SOURCE argument.
        reading: Keyword arguments of `corpora.open_source`.
        out: Where remarks are printed.
        skip_bad: Skip entries that cannot be read.
        fresh: Forget the snapshot of an index that an earlier build left.
    """
    from termweave import corpora
    from termweave.corpora.formats import download

    if download.is_address(source):
        out.say(f"Downloading {download.shown(source)}.")
    opened = corpora.open_source(source, skip_bad=skip_bad, **reading)
    if fresh:
        release(opened)
    for remark in opened.remarks:
        out.say(remark)
    return opened


def confirm(question: str) -> None:
    """Ask before something is deleted. The answer "n" ends the command with status 1, Ctrl-C with 130.

    Args:
        question: The question; --yes answers it beforehand.

    Raises:
        Exit: The answer is no.
        UsageError: Standard input ends without an answer, as under cron or in a pipe.
    """
    try:
        agreed = click.confirm(printable(question), err=True)
    except click.Abort as error:
        click.echo(err=True)
        if isinstance(error.__context__, EOFError):
            raise UsageError("The question was not answered.", "Add --yes to run the command without questions.") from None
        raise
    if not agreed:
        click.echo("Nothing was deleted.", err=True)
        raise click.exceptions.Exit(1)
