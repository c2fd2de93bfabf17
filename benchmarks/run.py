"""The measurements that need no data set, one after the other: ratios against a named alternative in the same process. ``make bench``.

With `--quick` each takes its smallest input: that shows that the scripts work, the figures mean nothing. The other scripts take
data sets, or build an index of 100,000 documents first; the pages in docs/ that show their figures name the command.
"""

from __future__ import annotations

import runpy
from pathlib import Path

for script in ("startup", "rerank", "indexing"):
    print(f"\n== {script}")
    runpy.run_path(str(Path(__file__).with_name(f"{script}.py")), run_name="__main__")
