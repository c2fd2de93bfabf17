"""A model of fewer layers: it begins as layers of its teacher, learns its states, and serves like any other."""

import json
import shutil

import numpy as np
import pytest

from tests.training.conftest import NOISE, SUBJECTS

torch = pytest.importorskip("torch", reason="training needs the extra [train]")

from termweave.encoders import load  # noqa: E402
from termweave.encoders.analysis.analyses import analysis_of  # noqa: E402
from termweave.encoders.analysis.word_pieces import PieceTokenizer  # noqa: E402
from termweave.encoders.analysis.words import ANALYSIS  # noqa: E402
from termweave.encoders.kinds import read_folder  # noqa: E402
from termweave.encoders.manifest import HEADS, MANIFEST, STATISTICS, TOKENIZER, WEIGHTS  # noqa: E402
from termweave.encoders.models import joint_model  # noqa: E402
from termweave.encoders.term_weighting import Form  # noqa: E402
from termweave.errors import UsageError  # noqa: E402
from termweave.training.data.pairs import count  # noqa: E402
from termweave.training.term_weights.hidden_states import states  # noqa: E402
from tools import fewer_layers  # noqa: E402
from tools.shipped_model import SOURCES  # noqa: E402

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture
def teacher(model):
    """A model whose heads say something."""
    with torch.no_grad():
        for kind in ("document", "query"):
            model.heads.head(kind).outer.weight.normal_(std=0.5)
    return model


@pytest.fixture
def documents(teacher, texts):
    prepared = texts(Form())[0]
    return fewer_layers.DistilledTexts("document", prepared, states(teacher, "toy", prepared.pieces))


def test_a_student_of_all_layers_is_its_teacher(teacher, documents):
    student = fewer_layers.student_of(teacher, [1, 2, 3]).eval()
    ids = torch.randint(5, 60, (2, 9))
    given = (ids, torch.ones_like(ids), torch.rand(2, 9, 2))
    for one, other in zip(teacher.eval()(*given), student(*given), strict=True):
        assert torch.equal(one, other)
    # What is left is the rounding of int8 and of bf16.
    assert loss(teacher, student, documents) < 0.1


def loss(*given):
    """The loss of the twelve documents."""
    with torch.no_grad():
        return float(fewer_layers.distillation_loss(*given, range(12)))


@pytest.mark.parametrize("kept", [[2, 3], [3], [1, 2], [3, 1], [1, 1, 3], [0, 3]])
def test_layers_that_cannot_be_kept(teacher, kept):
    with pytest.raises(UsageError, match="cannot be kept"):
        fewer_layers.student_of(teacher, kept)


def test_a_student_learns_the_states_of_its_teacher(teacher, documents):
    student = fewer_layers.student_of(teacher, [1, 3])
    assert student.shape.layer == 1
    before = loss(teacher, student, documents)
    fewer_layers.distil(teacher, student, [documents], steps=60, tokens=256, rate=0.003)
    after = loss(teacher, student, documents)
    assert after < 0.7 * before


def test_heads_alone_are_put_on_the_backbone_that_they_were_trained_on(teacher, trained_folder, tmp_path):
    home = trained_folder(teacher)
    base = shutil.copytree(home, tmp_path / "base")
    (home / WEIGHTS).unlink()
    described = json.loads((home / MANIFEST).read_text())
    described["training"] = {"options": {"backbone": str(base)}}
    (home / MANIFEST).write_text(json.dumps(described))
    found, _, _ = fewer_layers.teacher_of(str(home))
    for name, tensor in teacher.state_dict().items():
        assert torch.equal(found.state_dict()[name], tensor), name


def test_the_command_makes_a_folder_that_serves(teacher, trained_folder, tmp_path, capsys):
    home = trained_folder(teacher)
    analysis = analysis_of(ANALYSIS, PieceTokenizer(home / TOKENIZER).tokenizer, model="toy")
    (home / STATISTICS).write_bytes(count([SUBJECTS], analysis).to_bytes())
    data = tmp_path / "data"
    for source in SOURCES:
        (data / source.set / "qrels").mkdir(parents=True)
        rows = [{"_id": f"d{place}", "text": f"{NOISE[place]} about {subject}"} for place, subject in enumerate(SUBJECTS[:9])]
        (data / source.set / "corpus.jsonl").write_text("\n".join(map(json.dumps, rows)))
        (data / source.set / "queries.jsonl").write_text(json.dumps({"_id": "q", "text": f"about {SUBJECTS[0]}"}))
        (data / source.set / "qrels" / "train.tsv").write_text("q\td0\t1\n")
    out = tmp_path / "faster"
    asked = ["--data", str(data), "--model", str(home), "--out", str(out), "--steps", "50", "--layers"]
    with pytest.raises(SystemExit):
        fewer_layers.main([*asked, "two,3"])
    assert "argument --layers: invalid layers value: 'two,3'" in capsys.readouterr().err
    assert fewer_layers.main([*asked, "2,3"]) == 2
    assert not out.exists()
    assert fewer_layers.main([*asked, "1,3"]) == 0, capsys.readouterr().err
    assert "step 50 of 50" in capsys.readouterr().err
    manifest = read_folder(out).manifest
    assert manifest.hash != read_folder(home, check=False).manifest.hash
    student, _ = joint_model.load(out)
    assert student.backbone.config.num_hidden_layers == 2
    encoded = load(str(out), str(out)).encode([f"about {SUBJECTS[0]}"], kind="document")[0]
    assert encoded.weights is not None
    assert np.linalg.norm(encoded.vector) == pytest.approx(1, abs=1e-5)
    assert fewer_layers.main([*asked, "1,3"]) == 2
    assert "exists" in capsys.readouterr().err
    shutil.rmtree(out)
    (home / HEADS).write_bytes(b"cut")
    assert fewer_layers.main([*asked, "1,3"]) != 0
    assert "Traceback" not in capsys.readouterr().err
