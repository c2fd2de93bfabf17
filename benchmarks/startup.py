"""What it costs to start: medians of 11 runs (one with `--quick`) against bare Python, in the same minute."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time


def median_ms(runs: int, *command: str) -> float:
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one run each, to see whether the script works")
    runs = 1 if parser.parse_args().quick else 11
    bare = median_ms(runs, sys.executable, "-c", "pass")
    print(f"{'bare Python':<24} {bare:7.1f} ms")
    for name, code in {
        "import termweave": "import termweave",
        "termweave --help": "from termweave.cli import run; run(['--help'])",
    }.items():
        took = median_ms(runs, sys.executable, "-c", code)
        print(f"{name:<24} {took:7.1f} ms  {took / bare:5.1f} x bare")


if __name__ == "__main__":
    main()
