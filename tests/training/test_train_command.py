"""`termweave train` on a toy collection where context decides and BM25 cannot: what it makes, and what it says of it."""

import json
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import jsonschema
import numpy as np
import onnx
import pytest

from termweave.cli import run
from termweave.cli.verbs.train import without_effect
from termweave.encoders import load
from termweave.encoders.kinds import read_folder
from termweave.encoders.manifest import digests, write_manifest
from termweave.encoders.onnx import export as exporting
from termweave.encoders.onnx.checked_graphs import TOLERANCE
from termweave.training import mixture, model_folder
from termweave.training.data.pairs import Collection
from termweave.training.dev_measure import DevelopmentSet
from termweave.training.methods import base as methods
from termweave.training.methods.fectek import Fectek
from termweave.training.run import TrainingResult
from termweave.training.term_weights import hidden_states
from tests.training.conftest import SMALL, describe_pooling, train
from tools.retrieval_figures import Pool, measure
from tools.shipped_model import ship

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_cache")]


def has_schema(data, name):
    jsonschema.validate(data, json.loads((Path(__file__).parents[2] / "docs" / "schemas" / name).read_text(encoding="utf-8")))


PLANNED = {
    "fectek": ("steps=60", "fcm=true", "tkgm=true"),
    "coder": ("candidates=40", "layers_rate=0.002", "steps=16"),
    "sir": ("candidates_from=bm25", "blocks=9,5,3", "candidates=12", "steps=8", "reranked=10"),
}


@pytest.mark.parametrize("method", PLANNED)
def test_a_plan_says_what_would_be_done(folder, complete, tmp_path, method):
    sets = ("max_length=64", "training_length=64", "batch=12", "dev=8", *PLANNED[method])
    plan = train(folder, complete, tmp_path / "out", "--plan", method=method, settings=sets)
    has_schema(plan, "train-plan.1.json")
    assert (plan["documents"], plan["questions"], plan["dev"], plan["frozen"]) == (160, 72, 8, method == "fectek")
    assert 0 < plan["minutes"] < 5
    assert not (tmp_path / "out").exists()


def test_a_plan_measures_the_graph_and_the_activations_that_the_run_has(folder, base, tmp_path, monkeypatch):
    sets = ("max_length=64", "dev=8", "candidates=40")
    small, larger = (
        train(folder, base, tmp_path / "out", "--plan", method="coder", settings=(*sets, *more))
        for more in (("chunk=8",), ("chunk=12", "towers=one"))
    )
    assert larger["memory_bytes"] > small["memory_bytes"] > 4 * 3 * 10_000  # the toy backbone has more than 10,000 parameters
    monkeypatch.setattr(hidden_states, "seconds_of", lambda _, pieces: 60.0 * len(pieces))
    slow = train(folder, base, tmp_path / "out", "--plan")  # a frozen backbone reads each text once
    assert slow["minutes"] == pytest.approx(160 + 72 + 8, rel=0.05)


def test_a_plan_counts_the_training_of_the_scorer(folder, base, tmp_path, monkeypatch):
    monkeypatch.setattr("termweave.support.paths.cache", lambda: tmp_path / "cache")

    def planned(*settings):
        sets = ("max_length=64", "training_length=64", "dev=8", "steps=4", "every=2", "alpha=1", "scorer=paper", *settings)
        return train(folder, base, tmp_path / "out", "--plan", method="le-bs", settings=sets)

    plan = planned()
    has_schema(plan, "train-plan.1.json")
    (scorer,) = plan["before"]
    assert (scorer["method"], scorer["steps"]) == ("bert-scorer", 500)
    assert 0 < scorer["minutes"] < plan["minutes"]
    assert planned("labels=tfidf")["before"] == []
    said = train(folder, base, tmp_path / "out", "--plan", method="le-bs", settings=("steps=4",), json_too=False)
    assert "bert-scorer is trained first: at most 500 steps" in said


def test_a_run_needs_a_folder(capsys, folder):
    assert run(["train", "le-bs", str(folder)]) == 2
    assert "--out DIR is missing" in capsys.readouterr().err


def test_the_whole_way(folder, base, tmp_path):
    sets = (*SMALL, "steps=60", "fcm=true", "tkgm=true", "teacher=dense", "teacher_weight=0.01", "anchor=idf")
    data = train(folder, base, tmp_path / "out", settings=sets)
    has_schema(data, "train.1.json")
    assert data["dev"] > data["bm25"] + 0.2
    assert data["start"] == pytest.approx(data["history"]["values"][0])
    assert (data["start_p"] < 0.05, data["default"]) == (True, True)
    assert len(data["passages"]) == 10
    assert data["gained"][0]["ratio"] > 1 > data["lost"][0]["ratio"]

    read = read_folder(tmp_path / "out")  # digests hold: what `termweave index --weights` does first
    assert (read.manifest.hash, read.manifest.outputs) == (data["hash"], ("weights", "dense"))
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert f"at step 0 {data['start']:.4f}" in card
    assert data["ndcg"] == read.manifest.quantisation["ndcg"]
    assert (data["ndcg"]["questions"], set(data["ndcg"])) == (8, {"questions", "documents", "weights", "dense"})
    assert data["ndcg"]["weights"]["fp32"] > data["bm25"] + 0.2
    assert data["ndcg"]["weights"]["int8"] > data["ndcg"]["weights"]["shipped"] + 0.2
    assert f"weights {data['ndcg']['weights']['fp32']:.4f} in fp32" in card
    assert not (tmp_path / "out" / "checkpoints").exists()

    (tmp_path / "out" / "checkpoints" / "checkpoint-60").mkdir(parents=True)  # killed after the last figure was written
    again = train(folder, base, tmp_path / "out", "--resume", settings=sets)
    assert again == data
    assert not (tmp_path / "out" / "checkpoints").exists()
    exporting.export(read.path)
    assert read_folder(read.path).manifest.quantisation["ndcg"] == data["ndcg"]
    (read.path / "model.int8.onnx").write_bytes((read.path / "model.onnx").read_bytes())
    write_manifest(read.path, replace(read.manifest, files=digests(read.path)))  # measured with a graph that is another one now
    exporting.export(read.path)
    assert "ndcg" not in read_folder(read.path).manifest.quantisation
    write_manifest(read.path, read.manifest)
    assert "already contains a run" in train(folder, base, tmp_path / "out", settings=sets, status=2)
    assert "steps was 60 and is 61" in train(folder, base, tmp_path / "out", "--resume", settings=(*sets, "steps=61"), status=2)


def test_a_model_below_bm25_is_no_default(folder, base, tmp_path, monkeypatch):
    """Plain BM25 is made the winner; what training gives instead must say so."""
    monkeypatch.setattr("termweave.training.dev_measure.DevelopmentSet.bm25", lambda self: np.ones(len(self.pairs)))
    data = train(folder, base, tmp_path / "out", settings=(*SMALL, "steps=1"))
    assert data["default"] is False
    assert "not fit to be a default" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")


def test_the_last_of_several_fits_is_judged_by_the_start_of_the_first():
    """SIR's V2: the second compressor begins as the first one ended, and may not get better."""
    history = {"steps": [0, 8], "values": [0.9, 0.8], "losses": [0.0, 1.0], "best": 0}
    figures = {"measure": "nDCG@10", "bm25": 0.1, "start": 0.3, "start_p": 0.001, "dev": 0.9, "dev_float": 0.9, "p": 0.001}
    result = TrainingResult(Path("out"), "", history, **figures, default=True, parity={}, ndcg={})
    assert result.beats_its_start
    chance = replace(result, start_p=0.4)
    assert not chance.beats_its_start
    better = without_effect(replace(chance, history={**history, "best": 1}))
    assert better.startswith("Step 8 ranks the held-out questions better than step 0 by less than chance (p 0.4)")
    assert without_effect(chance).startswith("No step ranked the held-out questions better than step 0 by more than chance")
    assert not replace(result, dev=0.3).beats_its_start


def test_bert_scorer_in_chinese_from_scratch(tmp_path):
    words = ["北京", "上海", "历史", "音乐", "足球", "计算机", "大学", "河流", "火车", "医院"]
    both = [(one, other) for other in words for one in words]
    texts = [(f"{one}的{other}", f"这里介绍{one}和{other},都很有名。" * 2) for one, other in both]
    lines = [{"_id": str(n), "title": title, "text": text} for n, (title, text) in enumerate(texts)]
    (tmp_path / "zh.jsonl").write_text("\n".join(map(json.dumps, lines)))
    run_of = ("steps=12", "every=6", "batch=8", "dev=8", "layers_rate=0.001")
    sets = ("backbone=scratch", "bmes=true", "views=title", "max_length=64", "hidden=0", *run_of)
    data = train(tmp_path / "zh.jsonl", tmp_path, tmp_path / "out", method="bert-scorer", settings=sets)
    assert data["history"]["losses"][-1] < data["history"]["losses"][1]
    manifest = read_folder(tmp_path / "out").manifest
    assert (manifest.outputs, manifest.heads["tags"]) == (("weights",), 1)
    assert manifest.analysis == "bert-words.jieba.lucene33.porter.1"
    # Characters are weighed, words are what is indexed.
    assert {"北京", "历史"} <= {word.term for word in load(str(tmp_path / "out"), "").shade("北京的历史")}


def test_a_run_that_learned_nothing_says_so(folder, base, tmp_path):
    said = train(folder, base, tmp_path / "out", settings=(*SMALL, "steps=2", "rate=1e-12"), json_too=False)
    assert "no term gained or lost against BM25" in said
    assert "better than step 0" in said


def test_word_pieces_as_terms(folder, base, tmp_path):
    data = train(folder, base, tmp_path / "out", settings=(*SMALL, "steps=2", "terms=piece"))
    assert data["history"]["values"][0] == pytest.approx(data["bm25"], abs=0.02)  # untrained it is BM25 over pieces, in 8 bits
    assert read_folder(tmp_path / "out").manifest.analysis == "bert-pieces.1"
    found = load(str(tmp_path / "out"), "").encode(["granada xyz"], kind="document")[0].weights
    assert found is not None
    assert {"x", "##y", "##z"} <= set(found.terms)


def test_a_run_begins_with_the_heads_of_another(trained, folder, complete, tmp_path):
    out, first = trained("fectek", (*SMALL, "steps=20"))
    begun = (*SMALL, "steps=1", f"start={out}")
    again = train(folder, complete, tmp_path / "again", settings=begun)
    assert again["history"]["values"][0] == pytest.approx(first["dev"], abs=1e-9)
    assert again["history"]["values"][0] > first["bm25"] + 0.1
    # A backbone that was saved again is the same backbone; a folder as it is shipped carries the heads, in fp16.
    ship(out, tmp_path / "shipped")
    half = train(folder, out, tmp_path / "saved", settings=(*begun, f"start={tmp_path / 'shipped'}"))
    assert half["history"]["values"][0] == pytest.approx(first["dev"], abs=0.01)


def test_heads_that_do_not_fit_are_refused(trained, folder, complete, tmp_path):
    out, _ = trained("fectek", (*SMALL, "steps=20"))
    damaged, headless = (shutil.copytree(out, tmp_path / name) for name in ("damaged", "headless"))
    (damaged / "heads.safetensors").write_bytes(b"broken")
    (headless / "heads.safetensors").unlink()
    for changed, status, words in (
        ("hidden=8", 2, "do not fit (hidden: 16, here 8"),
        ("anchor=idf", 2, "do not fit (kind: bm25, here idf"),
        ("backbone=scratch", 2, "backbone: "),
        ("start=nobody", 2, "no model named 'nobody'"),
        (f"start={damaged}", 1, "heads.safetensors is damaged"),
        (f"start={headless}", 1, "heads.safetensors is missing"),
    ):
        settings = (*SMALL, "steps=1", f"start={out}", changed)
        assert words in train(folder, complete, tmp_path / "out", settings=settings, status=status)


def test_fewer_layers_for_weights_alone(folder, base, tmp_path):
    train(folder, base, tmp_path / "out", settings=(*SMALL, "steps=2", "layers=2", "outputs=weights"))
    graph = onnx.load(tmp_path / "out" / "model.int8.onnx").graph
    assert sum(node.op_type == "Exp" for node in graph.node) == 2
    assert exporting.export(tmp_path / "out").fp32_difference <= TOLERANCE  # what was saved has as many layers
    assert "vector" not in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "has 3 layers" in train(folder, base, tmp_path / "b", settings=(*SMALL, "layers=4", "outputs=weights"), status=2)


def test_a_joint_model_reads_and_pools_as_its_backbone(folder, complete, tmp_path):
    """The vector of a query is the backbone's own, pooled by the first token behind the prompt; the prompt's words weigh nothing."""
    prompt = "about vexino: "
    backbone = describe_pooling(shutil.copytree(complete, tmp_path / "backbone"), {"pooling_mode": "cls"}, {"query": prompt})
    train(folder, backbone, tmp_path / "out", settings=(*SMALL, "steps=2", "teacher=minmax"))
    manifest = read_folder(tmp_path / "out").manifest
    assert (manifest.pooling, manifest.settings) == ("cls", {"prompts": {"query": prompt}})

    ours = load(tmp_path / "out", tmp_path / "out", precision="fp32")
    text = "mortar about granada"
    query, document = (ours.encode([text], kind=kind)[0] for kind in ("query", "document"))
    for kind, given in (("query", query), ("document", document)):
        for source in (backbone, tmp_path / "out"):
            theirs = load("none", source, precision="fp32").encode([text], kind=kind)[0].vector
            np.testing.assert_allclose(given.vector, theirs, atol=1e-5)
    assert "vexino" not in query.weights.terms
    assert not np.allclose(query.vector, document.vector, atol=5e-5)  # a random backbone looks little around
    assert [text[word.start : word.end] for word in ours.shade(text, kind="query")] == text.split()
    assert exporting.export(tmp_path / "out").fp32_difference <= TOLERANCE  # what was saved is pooled alike


@pytest.mark.parametrize(("most", "precise"), [(-1.0, True), (1.0, False)])
def test_a_model_that_loses_too_much_by_int8_is_used_in_fp32(folder, base, tmp_path, monkeypatch, most, precise):
    monkeypatch.setattr(model_folder, "MOST_LOST", most)
    out = tmp_path / "out"
    said = train(folder, base, out, settings=(*SMALL, "steps=1"), json_too=False)
    assert (model_folder.ONLY_FP32 in said) == precise
    assert (model_folder.ONLY_FP32 in (out / "README.md").read_text(encoding="utf-8")) == precise
    assert (out / "model.int8.onnx").is_file() != precise

    def vector(precision):
        return load(out, out, precision=precision).encode(["about granada"], kind="query")[0].vector

    assert np.array_equal(vector(None), vector("fp32")) == precise
    exporting.export(out)
    assert vector("int8") is not None


def test_pairs_from_beside_teach_a_corpus_that_has_none(folder, base, tmp_path):
    """The corpus's own made questions say nothing of what matters in it; the other set's pairs do."""
    corpus = shutil.copy(folder / "corpus.jsonl", tmp_path)
    sets = (*SMALL, "steps=40", "views=span", f"beside={folder}")
    plan = train(corpus, base, tmp_path / "out", "--plan", settings=sets)
    has_schema(plan, "train-plan.1.json")
    assert [(each["dataset"], each["origin"], each["questions"]) for each in plan["beside"]] == [(str(folder), "qrels", 72)]
    assert plan["origin"] == "corpus"
    train(corpus, base, tmp_path / "out", settings=sets)
    train(corpus, base, tmp_path / "alone", settings=sets[:-1])
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert f"| beside | {folder}: 160 documents; 72 questions (qrels) on " in card
    both, one = (measure(load(tmp_path / name), Collection(folder), Pool("toy", "train")).weights for name in ("out", "alone"))
    assert both > one + 0.2
    other = train(corpus, base, tmp_path / "out", "--resume", settings=sets[:-1], status=2)
    assert f"beside was ['{folder}'] and is []" in other


def test_what_is_written_down_is_what_was_used(folder, base, tmp_path):
    """The toy backbone counts to 64; teacher, its weight and the temperature were left to termweave."""
    sets = ("steps=1", "dev=8", "pairs=corpus", "views=span", "max_length=30000")
    folder = Path(shutil.copytree(folder, tmp_path / "my docs"))
    planned = train(folder, base, tmp_path / "out", "--plan", settings=sets)["settings"]
    assert (planned["max_length"], planned["training_length"], planned["teacher"]) == (64, 64, "minmax")
    train(folder, base, tmp_path / "out", settings=sets)
    made = read_folder(tmp_path / "out").manifest.training
    assert made["options"] == planned
    assert set(made["changed"]) == {"backbone", *(each.partition("=")[0] for each in sets)}
    assert made["changed"]["max_length"] == 64
    words = shlex.split(made["command"])  # it can be given as it stands
    assert words[:6] == ["termweave", "train", "fectek", str(folder), "--out", "DIR"]
    assert f"backbone={base}" in words


class TwoFits(Fectek):
    """First the usual fit, then one that begins with what the first one learned."""

    def fits(self, trainer):
        trainer.fit("first", steps=10)
        trainer.fit("second", trainer.inputs, steps=2, seed=1)


def test_fits_follow_each_other_and_the_start_is_that_of_the_first(folder, base, tmp_path):
    method = TwoFits()
    settings = method.settings(methods.read_assignments((*SMALL, f"backbone={base}", "rate=0.01")))
    data = mixture.parts(str(folder), settings, tmp_path, lambda _: None)
    ended = mixture.learn(method, settings, data, tmp_path / "whole")
    assert ended.history.steps == [0, 2]
    assert ended.history.values[0] > ended.start.mean()  # begins with what the first fit learned
    assert {path.name for path in (tmp_path / "whole").iterdir()} == {"first", "second", "start.f64", "data.hash", "named.json"}


def test_the_measure_is_the_one_that_was_asked_for(folder, base, tmp_path, monkeypatch):
    bm25, asked = DevelopmentSet.bm25, []
    monkeypatch.setattr(DevelopmentSet, "bm25", lambda self: asked.append(self.measure) or bm25(self))
    train(folder, base, tmp_path / "out", settings=(*SMALL, "steps=1", "measure=MRR@10"))
    assert set(asked) == {"MRR@10"}
    assert read_folder(tmp_path / "out").manifest.metrics["train"]["measure"] == "MRR@10"
    assert "MRR@10 of 8 held-out questions" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")


def test_the_picture_shows_every_evaluation_and_the_step_that_was_kept(tmp_path):
    history = {"steps": [0, 5, 10], "losses": [0.0, 2.0, 1.0], "values": [0.2, 0.6, 0.4], "best": 1}
    model_folder.write_curves(tmp_path, history, "nDCG@10 <dev>")
    root = ET.parse(tmp_path / "curves.svg").getroot()
    loss, development, kept = (  # the places at which each line has its markers
        [(float(use.get("x")), float(use.get("y"))) for use in root.findall(f".//{{*}}g[@id='curves-{name}']//{{*}}use")]
        for name in ("loss", "development", "kept")
    )
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
