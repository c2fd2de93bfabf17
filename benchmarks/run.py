"""All measurements, one after the other: ratios against a named alternative in the same process. ``make bench``."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

for script in sorted(Path(__file__).parent.glob("*.py")):
    if script.name not in {"run.py", "retrieval.py", "term_weights.py"} and (len(sys.argv) == 1 or script.stem in sys.argv[1:]):
        print(f"\n== {script.stem}")
        runpy.run_path(str(script), run_name="__main__")
