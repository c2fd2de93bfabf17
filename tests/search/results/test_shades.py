"""The shades of words on pages: readable, and the heavier word is the more striking one, on every page in light and dark mode."""

import re
from pathlib import Path

import pytest

from termweave.search.results.pictures import shade
from tests.browser.contrast import contrast, laid_over, luminance, parts

STYLE = (Path(__file__).parents[3] / "ui/static/style.css").read_text("utf-8")
PARTS = STYLE.partition("* {")[0].split("@media (prefers-color-scheme: dark)")
LIGHT, DARK = (dict(re.findall(r"--([\w-]+): (#\w+);", part)) for part in PARTS)
#: Ink and paper: `--html` (the canvas of Chromium), a cell of JupyterLab, which is translucent ink on a canvas, and the served pages.
PAGES = [("#000", "#fff"), ("#fff", "#121212"), ("rgba(0, 0, 0, 0.87)", "#fff"), ("rgba(255, 255, 255, 0.87)", "#111")]
PAGES += [(each["ink"], each[paper]) for each in (LIGHT, DARK) for paper in ("paper", "soft")]


@pytest.mark.parametrize(("ink", "paper"), PAGES)
def test_a_heavier_word_stands_out_more_and_every_word_can_be_read(ink, paper):
    grounds = [laid_over([shade(step / 100)], paper) for step in range(101)]
    for ground in grounds:
        assert contrast(laid_over([ink], f"rgb{tuple(ground)}"), ground) >= 4.5
    away = [abs(luminance(ground) - luminance(parts(paper)[0])) for ground in grounds]
    assert away == sorted(away)
    assert away[0] == pytest.approx(0, abs=1e-3)
    assert contrast(grounds[100], parts(paper)[0]) > 1.5
