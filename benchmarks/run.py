"""All measurements, one after the other: ratios against a named alternative in the same process. ``make bench``."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

#: Those that take data sets, and are run by themselves; their pages in docs/ say how.
APART = {"run", "retrieval", "explanations", "latency", "two_phase", "impacts", "term_weights", "fusion", "encoding"}

for script in sorted(Path(__file__).parent.glob("*.py")):
    if script.stem not in APART and (len(sys.argv) == 1 or script.stem in sys.argv[1:]):
        print(f"\n== {script.stem}")
        runpy.run_path(str(script), run_name="__main__")
