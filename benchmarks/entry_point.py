"""Entry point of every benchmark: errors that the user can fix are printed as the command line prints them."""

from __future__ import annotations

import sys
from collections.abc import Callable

from termweave.errors import TermweaveError


def enter(main: Callable[[], None]) -> None:
    """Run the main function of a benchmark; without a server, data set or model it ends with the message and status of the error."""
    try:
        main()
    except TermweaveError as error:
        print(f"Error: {error.message} {error.hint}".strip(), file=sys.stderr)
        sys.exit(error.exit_status)
