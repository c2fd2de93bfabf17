"""The card of a model folder, and the picture of a run's curves."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from termweave.training import model_folder


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
    model_folder.write_curves(tmp_path, history, "nDCG@10 <dev>")
    root = ET.parse(tmp_path / "curves.svg").getroot()
    loss, development, kept = (markers(root, name) for name in ("loss", "development", "kept"))
    assert len(loss) == 2
    assert loss[0][1] < loss[1][1]  # higher values stand higher
    assert min(development, key=lambda point: point[1]) == development[1]
    assert kept == [development[1]]
    assert "nDCG@10 <dev>" in re.sub(r"\s+", " ", "".join(root.itertext()))


@pytest.mark.parametrize(
    ("given", "folder", "name"),
    [
        ("", "package/model", "all-MiniLM-L6-v2"),
        ("hf:BAAI/bge-m3", "snapshots/5617a9f", "hf:BAAI/bge-m3"),
        ("/home/me/mine", "/home/me/mine", "mine"),
    ],
)
def test_the_name_of_a_backbone(given, folder, name):
    assert model_folder.name_of(given, Path(folder)) == name
