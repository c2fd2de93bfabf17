"""The one way into every benchmark: what whoever runs it can mend is said in sentences, as the command line says it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from termweave.errors import TermweaveError

if TYPE_CHECKING:
    from collections.abc import Callable


def enter(main: Callable[[], None]) -> None:
    """Run a benchmark's main; no server, no data set or no model ends it with the sentence and status of the error."""
    try:
        main()
    except TermweaveError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
