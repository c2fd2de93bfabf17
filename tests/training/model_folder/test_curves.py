"""The picture of a run's curves."""

import re
from xml.etree import ElementTree as ET

from termweave.training.model_folder import curves


def markers(root, name):
    """The places at which one line has its markers."""
    return [
        (float(use.get("x")), float(use.get("y")))
        for group in root.findall(".//{*}g")
        if group.get("id") == f"curves-{name}"
        for use in group.findall(".//{*}use")
    ]


def test_the_picture_shows_every_evaluation_and_the_step_that_was_kept(tmp_path):
    history = {"steps": [0, 5, 10], "losses": [0.0, 2.0, 1.0], "values": [0.2, 0.6, 0.4], "best": 1}
    curves.write(tmp_path, history, "nDCG@10 <dev>")
    root = ET.parse(tmp_path / curves.FILE).getroot()
    loss, development, kept = (markers(root, name) for name in ("loss", "development", "kept"))
    assert len(loss) == 2
    assert loss[0][1] < loss[1][1]  # higher values stand higher
    assert min(development, key=lambda point: point[1]) == development[1]
    assert kept == [development[1]]
    assert "nDCG@10 <dev>" in re.sub(r"\s+", " ", "".join(root.itertext()))


def test_a_run_with_one_figure_has_a_picture(tmp_path):
    curves.write(tmp_path, {"steps": [0], "losses": [0.0], "values": [0.5], "best": 0}, "MRR@10")
    root = ET.parse(tmp_path / curves.FILE).getroot()
    assert (len(markers(root, "loss")), len(markers(root, "development"))) == (0, 1)
