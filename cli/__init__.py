"""The command line: imports the module of a verb (subcommand) only when the verb runs, and turns errors into messages and exit statuses."""

from __future__ import annotations

import errno
import logging
import os
import sys
from importlib import import_module
from io import StringIO, TextIOWrapper
from typing import Any, NoReturn

import click

from termweave import __version__
from termweave.cli.declared_options import CONTEXT
from termweave.errors import TermweaveError, UsageError
from termweave.support.messages import printable, readable

#: The verbs, in the order in which a new user needs them, each with its line in `termweave --help`, which imports none of them.
VERBS = {
    "demo": "Index, evaluate and search a real corpus.",
    "doctor": "Check this machine: what is missing, how to get it.",
    "node": "The embedded OpenSearch: start, stop, status, logs, wipe.",
    "index": "Build, verify and publish an index.",
    "encode": "Encode a corpus into shards, on one host or many.",
    "enrich": "Add weights and vectors to an existing index.",
    "connect": "Let any client search learned weights, through the cluster.",
    "verify": "Check that every document is stored as it was sent.",
    "list": "All indices of a server.",
    "generations": "The generations of an index.",
    "promote": "Make another generation of an index live.",
    "rollback": "Make the previous generation live again.",
    "prune": "Delete old generations.",
    "delete": "Delete an index, or single documents.",
    "audit": "Who published, rolled back or deleted what.",
    "search": "The best documents for a query.",
    "explain": "Show why a document has its score.",
    "weights": "Show which words of a text matter.",
    "serve": "Web pages and a JSON API to search and compare.",
    "evaluate": "Compare modes and rerankers on judged queries.",
    "learn": "Learn from judged questions or clicks, and prove the gain.",
    "tune": "Choose fusion and reranking by judged queries.",
    "profiles": "List, choose or delete tuned profiles.",
    "train": "Train term weights, vectors or a ranker on your own text.",
    "models": "The models that commands take by name.",
    "backbone": "Pretrained encoders by name: fetch, import.",
    "export": "A model to ONNX, with parity figures.",
    "config": "The current settings and where each one comes from.",
}
#: Verb -> further ones that stand in its file, `termweave.cli.verbs.VERB`.
_BESIDE = {
    "generations": ("list", "promote", "rollback", "prune", "delete", "audit"),
    "search": ("explain", "weights"),
    "models": ("backbone", "export"),
    "index": ("encode",),
    "enrich": ("connect",),
    "tune": ("profiles",),
    "doctor": ("config",),
    "node": ("demo",),
}

_INTERRUPTED, _TERMINATED = 130, 143
#: Error of the system -> what to do about it.
_HINTS = {
    errno.ENOSPC: "The disk is full: free some space and run the command again.",
    errno.EROFS: "Name another place. $XDG_STATE_HOME and $XDG_CACHE_HOME move the folders that 'termweave doctor' lists.",
    errno.EACCES: "Check who owns the file.",
    errno.EPERM: "Check who owns the file.",
}


class _Verbs(click.Group):
    """The group of all verbs, which imports the module of a verb only when the verb is needed."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        home = next((verb for verb, beside in _BESIDE.items() if cmd_name in beside), cmd_name)
        members = vars(import_module(f"termweave.cli.verbs.{home}")).values()
        command = next(each for each in members if isinstance(each, click.Command) and each.name == cmd_name)
        command.short_help = VERBS[cmd_name]
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of verbs into the help, without importing their modules."""
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], VERBS, n=1)
            hint = f"Did you mean 'termweave {near[0]}'?" if near else f"Verbs: {', '.join(VERBS)}."
            raise click.UsageError(f"There is no verb {args[0]!r}. {hint}")
        return super().resolve_command(ctx, args)


@click.command(cls=_Verbs, context_settings=CONTEXT)
@click.version_option(__version__, message="termweave %(version)s")
def cli() -> None:
    """Learned relevance for OpenSearch: index with learned term weights and vectors, search, explain and evaluate.

    \b
    Examples:
      termweave demo                          a real OpenSearch, a real corpus, a table of figures
      termweave index ./my-beir-folder docs   build, verify and publish an index
      termweave search docs "parse json" --explain

    Exit status: 0 done, 1 failed, 2 wrong usage, 3 a gate was not met, 4 verification found a difference,
    5 the engine cannot be reached, 130 interrupted.
    """


def main() -> NoReturn:
    """Run the command line of this process and exit with its status; an error is shown as a message, not as a traceback."""
    os.environ["PYTHONSAFEPATH"] = "1"  # for Python processes that libraries start: see termweave/support/python_processes.py
    # Python has none where the shell closed it (`>&-`, `<&-`): what is printed is lost, as it was asked, and there is nothing to read.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 - open until the process ends
    # A library that calls `logging.warning()` gives the root logger a handler, through which all libraries would speak.
    logging.getLogger().addHandler(logging.NullHandler())
    logging.getLogger("termweave").addHandler(logging.StreamHandler())
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without emoji still shows documents that contain some
    status = run(sys.argv[1:])
    if status in {_INTERRUPTED, _TERMINATED}:
        # Python would first wait for the threads of the models, and another Ctrl-C would then print a traceback.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


def run(arguments: list[str]) -> int:  # noqa: PLR0911 - one return for each kind of error
    """Run one command line and report an error as a message.

    Returns:
        The exit status.
    """
    stdout = sys.stdout
    try:
        _check_readable(arguments)
        result: Any = cli.main(args=arguments, prog_name="termweave", standalone_mode=False)
    except click.exceptions.Exit as error:
        return error.exit_code
    except (click.exceptions.Abort, KeyboardInterrupt):
        return _stop()
    except click.ClickException as error:
        _show(error)
        return error.exit_code
    except TermweaveError as error:
        return _refused(error)
    except SystemExit:
        if sys.stdout is stdout:  # completion has ended
            raise
        from termweave.cli.output import nobody_reads

        nobody_reads()  # `termweave search ... | head`: click has replaced the stream, and would end the program with status 1
        return 0
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        hint = _HINTS.get(error.errno or 0, "Correct this and run the command again.")
        _complain(f"The operating system reports: {error.strerror or error}{where}.", hint)
        return 1
    except MemoryError:
        _complain("There is not enough memory.", "Close other programs, or use smaller batches.")
        return 1
    except Exception as error:  # noqa: BLE001 - a fault in termweave itself ends with a message, too
        return _stop() if _stopped(error) else _fault(error, arguments)
    return result if isinstance(result, int) else 0


def _check_readable(arguments: list[str]) -> None:
    """Check that all arguments are valid UTF-8, as names of indices, ids, filters and sources must be.

    Raises:
        UsageError: An argument is not UTF-8.
    """
    for position, argument in enumerate(arguments, 1):
        if readable(argument) != argument:  # the message does not show it: it may be the password
            hint = "Write it in UTF-8. If it is the name of a file, rename the file."
            raise UsageError(f"Argument {position} of the command line is not UTF-8.", hint)


def _complain(message: str, hint: str = "") -> None:
    click.secho(printable(f"Error: {message}"), err=True, fg="red")
    if hint:
        click.echo(printable(hint), err=True)


def _refused(error: TermweaveError) -> int:
    _complain(error.message, error.hint)
    return error.exit_status


def _show(error: click.ClickException) -> None:
    """Print an error of click with control characters (of a file name, for example) made visible; a help text keeps its line breaks."""
    is_help = isinstance(error, click.exceptions.NoArgsIsHelpError)
    vars(error).update(message=printable(error.message, lines=is_help))  # click declares it final
    text = StringIO()
    error.show(text)
    click.echo(printable(text.getvalue(), lines=True), err=True, nl=False)


def _stop() -> int:
    click.echo("Stopped.", err=True)
    return _INTERRUPTED


def _stopped(error: BaseException) -> bool:
    """Whether Ctrl-C is the cause of an error: a C extension that was being loaded reports Ctrl-C as a failed initialisation."""
    while not isinstance(error, KeyboardInterrupt):
        if error.__cause__ is None:
            return False
        error = error.__cause__
    return True


def _fault(error: Exception, arguments: list[str]) -> int:
    import time
    import traceback

    from termweave.support import paths, private_files

    if "--verbose" in arguments or "-v" in arguments:
        traceback.print_exception(error)
    report = paths.state() / "faults.log"
    try:
        report.parent.mkdir(parents=True, exist_ok=True)
        private_files.make_file(report)  # a traceback may hold a text
        with report.open("a", encoding="utf-8", errors="backslashreplace") as file:
            when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            file.write(f"{when} termweave {__version__} {arguments[:1]}\n{''.join(traceback.format_exception(error))}\n")
        where = f"The details are in {report}; please report them."
    except OSError:
        where = "Run it again with --verbose for the details."
    # There an answer that no server sends is told from a fault; nobody has heard a server without it.
    connection = sys.modules.get("termweave.engine.client.connection")
    if connection and (blamed := connection.blamed_server(error)) is not None:
        return _refused(blamed)
    _complain(f"A fault in termweave itself: {type(error).__name__}: {error}.", where)
    return 1
