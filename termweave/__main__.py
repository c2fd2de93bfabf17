"""``python -m termweave``, and what the script `termweave` runs."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line. Ctrl-C while it is still being loaded ends as it does later, without a traceback."""
    try:
        from termweave.cli import main as run  # noqa: PLC0415 - this is the loading: some 100 ms

        run()
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr, flush=True)  # noqa: T201 - click may not be there
        os._exit(130)


if __name__ == "__main__":
    main()
