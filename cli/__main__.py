"""``python -m termweave.cli``."""

from termweave.cli import main

main()
