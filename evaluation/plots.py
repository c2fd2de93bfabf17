"""Plots of an evaluation as SVG elements of a page. They need matplotlib, an extra; `require` checks for it beforehand."""

from __future__ import annotations

import io
import re
from textwrap import wrap
from typing import TYPE_CHECKING

from termweave.errors import UsageError
from termweave.evaluation.measures import LEADING, per_query
from termweave.support.extras import install

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from termweave.evaluation.experiment import Experiment
    from termweave.records import Qrels

#: Depths of the recall curves.
_DEPTHS = (1, 2, 3, 5, 10, 20, 30, 50, 70, 100)
#: Most characters in a line of a panel's title.
_TITLE = 36


def require() -> None:
    """Check that plots can be drawn.

    Raises:
        UsageError: matplotlib is not installed.
    """
    try:
        import matplotlib  # noqa: F401, ICN001, PLC0415
    except ImportError:
        raise UsageError(
            "The plots of an HTML report need matplotlib, which is not installed.",
            f"Install it with: {install('report')}. Tables need nothing: --save DIR.",
        ) from None


def differences(experiment: Experiment) -> str:
    """Plot the sorted differences of nDCG@10 from the baseline, query by query, in one panel for each system.

    Returns:
        An `<svg>` element; "" if there is nothing to compare.
    """
    import numpy as np  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    base = experiment.values[experiment.baseline][LEADING]
    others = [row for row in experiment.rows if row.system != experiment.baseline]
    if not others:
        return ""
    columns = 2 if len(others) == 4 else min(3, len(others))
    rows = -(-len(others) // columns)
    figure = Figure(figsize=(3.3 * columns, 2.4 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for position, panel in enumerate(axes.flat):
        if position >= len(others):
            panel.set_axis_off()
            continue
        row = others[position]
        difference = np.sort(experiment.values[row.system][LEADING] - base)[::-1]
        # One bar for each query, drawn as one outline: thousands of rectangles would make the page slow.
        edges = np.arange(len(difference) + 1) + 0.5
        panel.stairs(np.maximum(difference, 0), edges, fill=True, color="#2e7d32")
        panel.stairs(np.minimum(difference, 0), edges, fill=True, color="#c62828")
        panel.axhline(0, color="#444", linewidth=0.6)
        panel.set_title("\n".join([*wrap(row.system, _TITLE), f"{row.wins} better, {row.losses} worse"]), fontsize=9)
        panel.set_xlabel("queries, sorted", fontsize=8)
        panel.tick_params(labelsize=7, labelbottom=True)
    most = max((float(np.abs(experiment.values[row.system][LEADING] - base).max()) for row in others), default=0.0) or 1.0
    axes[0][0].set_ylim(-1.05 * most, 1.05 * most)  # as far down as up, the same in all panels
    axes[0][0].xaxis.get_major_locator().set_params(integer=True)  # there is no query 1.5
    axes[0][0].set_ylabel(f"{LEADING} minus {experiment.baseline}", fontsize=8)
    return svg(figure, "differences")


def recall(experiment: Experiment, qrels: Qrels, relevant_from: int) -> str:
    """Plot the mean recall at each depth, with one curve for each system."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(6.6, 3.6), layout="constrained")
    panel = figure.subplots()
    names = [f"recall@{depth}" for depth in _DEPTHS]
    for system, run in experiment.runs.items():
        values = per_query(run, qrels, experiment.queries, relevant_from=relevant_from, measures=names)
        panel.plot(_DEPTHS, [values[name].mean() for name in names], marker=".", label=system)
    panel.set_xscale("log")
    panel.set_xticks(_DEPTHS, [str(depth) for depth in _DEPTHS])
    panel.minorticks_off()
    panel.set_xlabel("depth")
    panel.set_ylabel("recall")
    panel.set_ylim(0, 1.02)
    panel.grid(alpha=0.25)
    panel.legend(fontsize=8)
    return svg(figure, "recall")


def latency(experiment: Experiment) -> str:
    """Plot the median and the 95th percentile of whole searches; "" if no searches were timed."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    if not experiment.latency:
        return ""
    names = list(experiment.latency)[::-1]
    figure = Figure(figsize=(6.6, 0.6 + 0.4 * len(names)), layout="constrained")
    panel = figure.subplots()
    panel.barh(names, [experiment.latency[name].p95 for name in names], color="#cfd8dc", label="95 % are faster")
    panel.barh(names, [experiment.latency[name].median for name in names], color="#37474f", label="half are faster")
    panel.set_xlabel("ms per search")
    panel.legend(fontsize=8)
    return svg(figure, "latency")


def svg(figure: Figure, name: str) -> str:
    """Return a figure as an `<svg>` element, with ids that are unique to the plot, and the same bytes every time."""
    import matplotlib as mpl  # noqa: PLC0415

    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    # matplotlib numbers figures, axes and lines from one in every plot; on one page the ids would clash.
    return re.sub(r'(\bid="|href="#|url\(#)', rf"\1{name}-", text[text.index("<svg") :])
