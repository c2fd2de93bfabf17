"""Options that several verbs share, each declared once, and checks of their values."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from termweave.cli.declared_options import CONNECTION, CONTEXT, FILE, OUTPUT, GroupedCommand, flag, option, option_group
from termweave.cli.output import Output
from termweave.declared_settings import settings_of
from termweave.errors import UsageError
from termweave.search.options import RankingOptions
from termweave.support.messages import printable, without_password

if TYPE_CHECKING:
    from termweave.settings import Settings


def check_together(*rules: tuple[str, bool]) -> None:
    """Check that the given options do not contradict each other, and that no option lacks another option that it needs.

    Args:
        rules: Pairs of a sentence that states a rule, and whether the given options break the rule.

    Raises:
        UsageError: A rule is broken.
    """
    for sentence, broken in rules:
        if broken:
            raise click.UsageError(f"{sentence}.")


def check_rerankers(_context: click.Context, _option: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    """Callback of an option that names rerankers: check each name, and return the names."""
    for name in names:
        settings_of(RankingOptions)["rerank"].check(name)
    return names


def token_option(about: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make the option --token-file, which passes the content of the file to the function as `token`. `about` is the help text."""

    def token_in(_context: click.Context, _option: click.Parameter, file: Path | None) -> str | None:
        from termweave.engine.client.credentials import from_file

        return None if file is None else from_file(file, "token").strip()

    return option("--token-file token", about, "FILE", type=FILE, callback=token_in)


def verb(
    name: str,
    group: click.Group | None = None,
    *,
    connects: bool = False,
    long: bool = False,
    cls: type[click.Command] = GroupedCommand,
) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a command (verb) from a function: the decorator that every verb has.

    Args:
        name: Name of the verb.
        group: The group of commands that the verb belongs to; None: the verb is called as `termweave NAME`.
        connects: Whether the verb talks to a server; then the function also receives `settings`.
        long: Whether the verb may run for long; then it has the option --json-lines.
        cls: The class of the command.

    Returns:
        The decorator. The function receives an `Output` made from --json, --quiet and --verbose as `out`.
    """

    def decorate(function: Callable[..., Any]) -> click.Command:
        @functools.wraps(function)
        def wrapped(*args: Any, as_json: bool, quiet: bool, verbose: bool, **kwargs: Any) -> Any:
            if connects:
                kwargs["settings"] = _settings({name: kwargs.pop(name) for name in _CONNECTION})
            lines = kwargs.pop("json_lines", False)
            return function(*args, out=Output(as_json or lines, quiet, verbose, lines), **kwargs)

        decorated = option_group(
            OUTPUT,
            flag("--json as_json", "Print the result as JSON."),
            *([flag("--json-lines", _LINES)] if long else []),
            flag("-q --quiet", "Print no progress and no hints."),
            flag("-v --verbose", "Print more details on standard error."),
        )(wrapped)
        if connects:
            decorated = option_group(CONNECTION, *_CONNECTION.values())(decorated)
        return (group or click).command(name, cls=cls, context_settings=CONTEXT)(decorated)

    return decorate


#: Why no password belongs on the command line, and what to do instead.
_VISIBLE = "visible to other users of this machine, in the list of processes"
_INSTEAD = "Use --password - (asks), $TERMWEAVE_PASSWORD_FILE or $TERMWEAVE_PASSWORD."


def _only_asked(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    """Callback of --password: accept only "-" (ask for the password), because a password in the command line is visible to others."""
    if value in (None, "-"):
        return value
    raise UsageError(f"A password on the command line is {_VISIBLE}.", _INSTEAD)


_LINES = "Print progress, remarks and at last the result on standard output, each as one line of JSON with a schema."
#: The options that name a server and how to reach it: setting -> option.
_CONNECTION = {
    "url": option(
        "--url",
        "Address of OpenSearch, or of several nodes with commas between.  [default: $OPENSEARCH_URL, else the running embedded node]",
    ),
    "user": option("--user", "User name."),
    "password": option(
        "--password",
        "'-' asks for the password. $TERMWEAVE_PASSWORD and termweave.toml give it, too, as they give client certificates, "
        "AWS regions and the timeout: see 'termweave config show'.",
        "-",
        callback=_only_asked,
    ),
    "ca_certs": option("--ca-certs", "Certificate authorities to trust (PEM).", type=FILE),
    "insecure": option("--insecure", "Do not verify the server's certificate.", is_flag=True, default=None),
}


def _settings(flags: dict[str, Any]) -> Settings:
    """Load the settings, overridden by the connection options of the command line."""
    from termweave import settings

    if flags["url"] and without_password(flags["url"]) != flags["url"]:
        logging.getLogger(__name__).warning("Warning: the password in --url is %s. %s", _VISIBLE, _INSTEAD)
    return settings.load(**flags)


def model_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add to a verb that searches an index the options --weights, --dense and --dense-query, which replace the models that the index names.

    The function receives as `models` keyword arguments of `search.Index.open`, which also hold the models that the settings name.
    """

    @functools.wraps(function)
    def wrapped(*args: Any, settings: Settings, **kwargs: Any) -> Any:
        models = {name: kwargs.pop(name) for name in ("weights", "dense", "dense_query")}
        models |= {"weights_otherwise": settings.weights, "dense_otherwise": settings.dense}
        return function(*args, models=models, settings=settings, **kwargs)

    return option_group(
        "Models",
        option(
            "--weights",
            "Term-weight model to use where this host does not have the model under the name stored with the index.",
            "MODEL",
        ),
        option("--dense", "Dense model, likewise.", "MODEL"),
        option("--dense-query", "Encoder of queries, likewise, of an index that has one of its own.", "MODEL"),
    )(wrapped)


#: Delete without a question; the function receives it as `yes`.
yes_option = flag("--yes", "Do not ask for confirmation.")


def confirm(question: str) -> None:
    """Ask the user for confirmation before something is deleted. The answer "n" ends the command with status 1, Ctrl-C with 130.

    Args:
        question: The question. With --yes the caller does not ask.

    Raises:
        Exit: The user answered no.
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


def writable(folder: Path | None, files: Sequence[Path | None]) -> None:
    """Check that a folder and files can be written; the folder is created if necessary.

    Args:
        folder: Folder for several files; None: no folder is checked.
        files: Single files; an entry None stands for an option that was not given.

    Raises:
        UsageError: The folder or a file cannot be written.
    """
    hint = "Name another place. Nothing was done yet."
    if folder is not None:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{folder} cannot be created: {error.strerror}.", hint) from None
    if is_folder := next((file for file in files if file is not None and file.is_dir()), None):
        raise UsageError(f"{is_folder} is a folder, but a file is needed.", "Name a file in it. Nothing was done yet.")
    for place in [folder, *(file if file is None or file.exists() else file.parent for file in files)]:
        if place is not None and not os.access(place, os.W_OK):
            reason = "" if place.exists() else ": it does not exist"
            raise UsageError(f"{place} cannot be written to{reason}.", hint)
