"""The curves of a run as a picture, ``curves.svg``: the loss and the development measure by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from termweave.evaluation.html_page import svg
from termweave.support import atomic_files

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Any

FILE = "curves.svg"


def write(folder: Path, history: Mapping[str, Any], measure: str) -> None:
    """Write the picture of a run.

    Args:
        folder: The model folder.
        history: steps, losses, values and best of `trainer.early_stopping.History`; the loss at step 0 is not known.
        measure: Name of the development measure.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415 - 300 ms

    steps, values, best = history["steps"], history["values"], int(history["best"])
    figure = Figure(figsize=(6.6, 4.6), layout="constrained")
    loss, development = figure.subplots(2, sharex=True)
    loss.plot(steps[1:], history["losses"][1:], marker=".", gid="loss")
    loss.set_title("mean loss since the evaluation before", fontsize=9)
    development.plot(steps, values, marker=".", gid="development")
    development.plot(steps[best], values[best], "o", markersize=12, markerfacecolor="none", color="#c2410c", gid="kept")
    development.set_title(f"development {measure} (the ring marks the step that was kept)", fontsize=9)
    development.set_xlabel("step", fontsize=8)
    atomic_files.write(folder / FILE, svg(figure, "curves").encode())
