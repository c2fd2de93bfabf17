"""The curves of a run as a picture, ``curves.svg``: the loss and the development measure by step. Plain SVG, so that no library is needed."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from termweave.support import atomic_files

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from typing import Any

FILE = "curves.svg"
_WIDTH, _HEIGHT, _MARGIN = 640, 220, 56


def write(folder: Path, history: Mapping[str, Any], measure: str) -> None:
    """Write the picture of a run.

    Args:
        folder: The model folder.
        history: steps, losses, values and best of `trainer.early_stopping.History`; the loss at step 0 is not known.
        measure: Name of the development measure.
    """
    steps, losses, values = history["steps"], history["losses"], history["values"]
    panels = [
        _panel("mean loss since the evaluation before", steps[1:], losses[1:], 0),
        _panel(
            f"development {measure} (the ring marks the step that was kept)", steps, values, _HEIGHT, ring=int(history["best"])
        ),
    ]
    size = f'width="{_WIDTH}" height="{2 * _HEIGHT}" viewBox="0 0 {_WIDTH} {2 * _HEIGHT}"'
    style = 'font-family="sans-serif" font-size="12" fill="#222"'
    picture = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>\n<rect width="100%" height="100%" fill="#fff"/>\n'
    atomic_files.write(folder / FILE, (picture + "\n".join(panels) + "\n</svg>\n").encode())


def _panel(title: str, steps: Sequence[int], values: Sequence[float], top: int, ring: int | None = None) -> str:
    """One curve with its axes."""
    lines = [f'<text x="{_MARGIN}" y="{top + 20}">{escape(title)}</text>']
    if not len(steps):
        return lines[0]
    low, high, last = min(values), max(values), max(*steps, 1)
    bottom, above = top + _HEIGHT - 32, top + 36

    def x(step: int) -> float:
        return _MARGIN + (_WIDTH - _MARGIN - 20) * step / last

    def y(value: float) -> float:
        return bottom - (bottom - above) * ((value - low) / (high - low) if high > low else 0.5)

    points = [(x(step), y(value)) for step, value in zip(steps, values, strict=True)]
    lines.append(f'<path d="M{_MARGIN} {above}V{bottom}H{_WIDTH - 20}" fill="none" stroke="#999"/>')
    lines += [
        f'<text x="{_MARGIN - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.4g}</text>' for value in sorted({low, high})
    ]
    lines += [
        f'<text x="{x(step):.1f}" y="{bottom + 18}" text-anchor="middle">{step}</text>' for step in sorted({steps[0], steps[-1]})
    ]
    lines.append(
        f'<polyline points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in points)}" fill="none" stroke="#2563a8" stroke-width="2"/>'
    )
    lines += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="#2563a8"/>' for a, b in points]
    if ring is not None:
        lines.append(
            f'<circle cx="{points[ring][0]:.1f}" cy="{points[ring][1]:.1f}" r="7" fill="none" stroke="#c2410c" stroke-width="2"/>'
        )
    return "\n".join(lines)
