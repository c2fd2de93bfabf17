"""``python -m termweave``."""

from termweave.cli import main

main()
