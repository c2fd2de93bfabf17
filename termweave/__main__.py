"""The entry point of ``python -m termweave`` and of the script `termweave`."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line. Ctrl-C ends it without a traceback, also while its modules are being imported."""
    try:
        from termweave.cli import main as run  # noqa: PLC0415 - the import takes about 100 ms

        run()
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr, flush=True)  # noqa: T201 - click may not be there
        os._exit(130)


if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]  # `python -m` puts the working folder there, where files of any origin may lie
    main()
