"""The picture of a run's curves."""

from xml.etree import ElementTree as ET

from termweave.training.model_folder import curves


def test_the_picture_shows_every_evaluation_and_the_step_that_was_kept(tmp_path):
    history = {"steps": [0, 5, 10], "losses": [0.0, 2.0, 1.0], "values": [0.2, 0.6, 0.4], "best": 1}
    curves.write(tmp_path, history, "nDCG@10 <dev>")
    root = ET.parse(tmp_path / curves.FILE).getroot()
    loss, dev = (
        [tuple(map(float, point.split(","))) for point in line.get("points").split()] for line in root.findall("{*}polyline")
    )
    assert len(loss) == 2
    assert loss[0][1] < loss[1][1]  # higher values stand higher
    assert min(dev, key=lambda point: point[1]) == dev[1]
    ring = next(each for each in root.findall("{*}circle") if each.get("r") == "7")
    assert (float(ring.get("cx")), float(ring.get("cy"))) == dev[1]
    assert "nDCG@10 <dev>" in "".join(root.itertext())


def test_a_run_with_one_figure_has_a_picture(tmp_path):
    curves.write(tmp_path, {"steps": [0], "losses": [0.0], "values": [0.5], "best": 0}, "MRR@10")
    assert ET.parse(tmp_path / curves.FILE).getroot().findall("{*}polyline")
