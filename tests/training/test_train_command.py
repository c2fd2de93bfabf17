"""`termweave train` on a toy collection where context decides and BM25 cannot: what it makes, and what it says of it."""

import gzip
import json
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

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
from termweave.training import model_folder
from termweave.training.data.pairs import Collection
from termweave.training.run import TrainingResult
from termweave.training.term_weights import hidden_states
from tests.training.conftest import SMALL, train, with_special_tokens
from tools.retrieval_figures import Pool, measure
from tools.shipped_model import ship

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"
pytest.importorskip("accelerate", reason="training needs the extra [train]")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_cache")]


def test_the_whole_way(capsys, folder, base, tmp_path, monkeypatch):
    sets = (*SMALL, "steps=60", "fcm=true", "tkgm=true", "teacher=dense", "teacher_weight=0.01", "anchor=idf")
    plan = train(capsys, folder, base, tmp_path / "out", "--plan", settings=sets)
    jsonschema.validate(plan, json.loads((SCHEMAS / "train-plan.1.json").read_text(encoding="utf-8")))
    assert (plan["documents"], plan["questions"], plan["dev"]) == (160, 72, 8)
    with monkeypatch.context() as patch:  # a frozen backbone reads each text once, with the graph that is measured
        patch.setattr(hidden_states, "seconds_of", lambda _, pieces: 60.0 * len(pieces))
        slow = train(capsys, folder, base, tmp_path / "out", "--plan", settings=sets)
    assert slow["minutes"] == pytest.approx(160 + 72 + 8, rel=0.05)
    assert plan["minutes"] < 5
    assert not (tmp_path / "out").exists()

    data = train(capsys, folder, base, tmp_path / "out", settings=sets)
    jsonschema.validate(data, json.loads((SCHEMAS / "train.1.json").read_text(encoding="utf-8")))
    assert data["dev"] > data["bm25"] + 0.2
    assert data["start"] == pytest.approx(data["history"]["values"][0])
    assert data["start_p"] < 0.05
    assert data["default"] is True
    assert data["history"]["values"][data["history"]["best"]] == max(data["history"]["values"])
    assert len(data["passages"]) == 10
    assert data["gained"][0]["ratio"] > 1 > data["lost"][0]["ratio"]

    read = read_folder(tmp_path / "out")  # digests hold: what `termweave index --weights` does first
    assert (read.manifest.hash, read.manifest.outputs) == (data["hash"], ("weights", "dense"))
    encoded = load(str(read.path), str(read.path)).encode(["about granada"], kind="document")[0]
    assert encoded.weights is not None
    assert encoded.vector is not None
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert f"at step 0 {data['start']:.4f}" in card
    assert f"{data['bm25']:.4f}" in card
    assert data["ndcg"] == read.manifest.quantisation["ndcg"]
    assert (data["ndcg"]["questions"], set(data["ndcg"])) == (8, {"questions", "documents", "weights", "dense"})
    assert data["ndcg"]["documents"] <= 6 * 8
    assert data["ndcg"]["weights"]["fp32"] > data["bm25"] + 0.2
    assert data["ndcg"]["weights"]["int8"] > data["ndcg"]["weights"]["shipped"] + 0.2
    assert f"weights {data['ndcg']['weights']['fp32']:.4f} in fp32" in card
    assert "fcm=true" in card
    assert not (tmp_path / "out" / "checkpoints").exists()

    (tmp_path / "out" / "checkpoints" / "checkpoint-60").mkdir(parents=True)  # killed after the last figure was written
    again = train(capsys, folder, base, tmp_path / "out", "--resume", settings=sets)
    assert again == data
    assert not (tmp_path / "out" / "checkpoints").exists()
    exporting.export(read.path)
    assert read_folder(read.path).manifest.quantisation["ndcg"] == data["ndcg"]
    (read.path / "model.int8.onnx").write_bytes((read.path / "model.onnx").read_bytes())
    write_manifest(read.path, replace(read.manifest, files=digests(read.path)))  # measured with a graph that is another one now
    exporting.export(read.path)
    assert "ndcg" not in read_folder(read.path).manifest.quantisation
    write_manifest(read.path, read.manifest)
    assert "already contains a run" in train(capsys, folder, base, tmp_path / "out", settings=sets, status=2)
    assert "steps was 60 and is 61" in train(
        capsys, folder, base, tmp_path / "out", "--resume", settings=(*sets, "steps=61"), status=2
    )


def test_a_model_below_bm25_is_no_default(capsys, folder, base, tmp_path, monkeypatch):
    """Plain BM25 is made the winner; what training gives instead must say so."""
    monkeypatch.setattr("termweave.training.dev_measure.DevelopmentSet.bm25", lambda self: np.ones(len(self.pairs)))
    data = train(capsys, folder, base, tmp_path / "out", settings=(*SMALL, "steps=1"))
    assert data["default"] is False
    assert "not fit to be a default" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")


def test_a_step_that_is_better_by_less_than_chance_is_said_to_change_nothing(capsys, folder, base, tmp_path):
    sets = [part for each in (f"backbone={base}", *SMALL, "steps=3", "every=3", "rate=0.001") for part in ("--set", each)]
    assert run(["train", "fectek", str(folder), "--out", str(tmp_path / "out"), *sets]) == 0
    captured = capsys.readouterr()
    figures = read_folder(tmp_path / "out").manifest.metrics["train"]
    assert figures["dev"] > figures["start"]
    assert figures["start_p"] > 0.05
    assert f"step 0 {figures['start']:.4f} (p {figures['start_p']:.2g})" in captured.out
    assert "Step 3 ranks the held-out questions better than step 0 by less than chance" in captured.err
    assert "training did not change the model" in captured.err


def test_the_last_of_several_fits_is_judged_by_the_start_of_the_first():
    """SIR's V2: the second compressor begins as the first one ended, and may not get better."""
    history = {"steps": [0, 8], "values": [0.9, 0.8], "losses": [0.0, 1.0], "best": 0}
    figures = {"measure": "nDCG@10", "bm25": 0.1, "start": 0.3, "start_p": 0.001, "dev": 0.9, "dev_float": 0.9, "p": 0.001}
    result = TrainingResult(Path("out"), "", history, **figures, default=True, parity={}, ndcg={})
    assert result.beats_its_start
    chance = replace(result, start_p=0.4)
    assert not chance.beats_its_start
    assert without_effect(chance).startswith("No step ranked the held-out questions better than step 0 by more than chance")
    assert not replace(result, dev=0.3).beats_its_start


def test_bert_scorer_in_chinese_from_scratch(capsys, tmp_path):
    words = ["北京", "上海", "历史", "音乐", "足球", "计算机", "大学", "河流", "火车", "医院"]
    lines = [
        {
            "_id": str(n),
            "title": f"{words[n % 10]}的{words[n // 10]}",
            "text": f"这里介绍{words[n % 10]}和{words[n // 10]},都很有名。" * 2,
        }
        for n in range(100)
    ]
    (tmp_path / "zh.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    sets = (
        "backbone=scratch",
        "bmes=true",
        "steps=12",
        "every=6",
        "batch=8",
        "dev=8",
        "layers_rate=0.001",
        "views=title",
        "max_length=64",
        "hidden=0",
    )
    data = train(capsys, tmp_path / "zh.jsonl", tmp_path, tmp_path / "out", method="bert-scorer", settings=sets)
    assert data["history"]["losses"][-1] < data["history"]["losses"][1]
    manifest = read_folder(tmp_path / "out").manifest
    assert manifest.outputs == ("weights",)
    assert manifest.heads["tags"] == 1
    assert manifest.analysis == "bert-words.jieba.lucene33.porter.1"
    # Characters are weighed, words are what is indexed.
    assert {"北京", "历史"} <= {word.term for word in load(str(tmp_path / "out"), "").shade("北京的历史")}


def test_a_click_log(capsys, folder, base, toy, tmp_path):
    """The same questions with their answers as clicks, some by the way."""
    _, questions, relevant = toy
    lines = ["query,document,count"]
    for question, known in zip(questions, relevant, strict=True):
        for way in ("{}", "about {}", "{} filler", "padmon {}"):
            lines += [f"{way.format(question)}\td{place}\t{1 + place % 3}" for place in known]
    log = tmp_path / "clicks.tsv.gz"
    log.write_bytes(gzip.compress("\n".join([*lines, *lines[1:], "old question\tremoved\t5", ""]).encode()))
    sets = (*SMALL, "steps=30", f"clicks={log}")
    plan = train(capsys, folder / "corpus.jsonl", base, tmp_path / "out", "--plan", settings=sets)
    assert (plan["origin"], plan["questions"], plan["dev"]) == ("clicks", 72, 8)
    data = train(capsys, folder / "corpus.jsonl", base, tmp_path / "out", settings=sets)
    assert data["dev"] > data["bm25"] + 0.1
    log.write_bytes(log.read_bytes()[:-20])
    assert "clicks.tsv.gz" in train(capsys, folder / "corpus.jsonl", base, tmp_path / "cut", settings=sets, status=1)


def test_a_run_that_learned_nothing_says_so(capsys, folder, base, tmp_path):
    sets = [part for each in (f"backbone={base}", *SMALL, "steps=10", "rate=1e-12") for part in ("--set", each)]
    assert run(["train", "fectek", str(folder), "--out", str(tmp_path / "out"), *sets]) == 0
    said = "".join(capsys.readouterr())
    assert all(part in said for part in ("no term gained or lost against BM25", "better than step 0")), said


def test_word_pieces_as_terms(capsys, folder, base, tmp_path):
    data = train(capsys, folder, base, tmp_path / "out", settings=(*SMALL, "steps=10", "terms=piece"))
    assert data["history"]["values"][0] == pytest.approx(data["bm25"], abs=0.02)  # untrained it is BM25 over pieces, in 8 bits
    assert read_folder(tmp_path / "out").manifest.analysis == "bert-pieces.1"
    found = load(str(tmp_path / "out"), "").encode(["granada xyz"], kind="document")[0].weights
    assert found is not None
    assert {"x", "##y", "##z"} <= set(found.terms)


def test_a_run_begins_with_the_heads_of_another(capsys, folder, base, tmp_path):
    first = train(capsys, folder, base, tmp_path / "first", settings=(*SMALL, "steps=20"))
    begun = (*SMALL, "steps=1", f"start={tmp_path / 'first'}")
    again = train(capsys, folder, base, tmp_path / "again", settings=begun)
    assert again["history"]["values"][0] == pytest.approx(first["dev"], abs=1e-9)
    assert again["history"]["values"][0] > first["bm25"] + 0.1
    # A backbone that was saved again is the same backbone; a folder as it is shipped carries the heads, in fp16.
    ship(tmp_path / "first", tmp_path / "shipped")
    sets = (*begun, f"start={tmp_path / 'shipped'}")
    half = train(capsys, folder, tmp_path / "first", tmp_path / "saved", settings=sets)
    assert half["history"]["values"][0] == pytest.approx(first["dev"], abs=0.01)

    def refused(number, *changed, **given):
        return train(capsys, folder, given.pop("base", base), tmp_path / number, settings=(*begun, *changed), **given)

    assert "another shape (hidden: 16, here 8)" in refused("a", "hidden=8", status=2)
    assert "another shape (kind: bm25, here idf" in refused("b", "anchor=idf", status=2)
    assert "another backbone" in refused("c", "backbone=scratch", status=2)
    assert "no model named 'nobody'" in refused("d", "start=nobody", status=2)
    (tmp_path / "first" / "heads.safetensors").write_bytes(b"broken")
    assert "heads.safetensors is damaged" in refused("e", status=1)
    (tmp_path / "first" / "heads.safetensors").unlink()
    assert "heads.safetensors is missing" in refused("f", status=1)


def test_fewer_layers_for_weights_alone(capsys, folder, base, tmp_path):
    train(capsys, folder, base, tmp_path / "out", settings=(*SMALL, "steps=10", "layers=2", "outputs=weights"))
    graph = onnx.load(tmp_path / "out" / "model.int8.onnx").graph
    assert sum(node.op_type == "Exp" for node in graph.node) == 2
    assert exporting.export(tmp_path / "out").fp32_difference <= TOLERANCE  # what was saved has as many layers
    (found,) = load(str(tmp_path / "out"), "").encode(["about granada"], kind="document")
    assert found.weights is not None
    assert found.vector is None
    assert "vector" not in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "has 3 layers" in train(
        capsys, folder, base, tmp_path / "b", settings=(*SMALL, "layers=4", "outputs=weights"), status=2
    )


def test_a_joint_model_reads_and_pools_as_its_backbone(capsys, folder, base, tmp_path):
    """The vector of a query is the backbone's own, pooled by the first token behind the prompt; the prompt's words weigh nothing."""
    backbone, prompt = tmp_path / "backbone", "about vexino: "
    modules = [
        {"path": path, "type": f"sentence_transformers.models.{kind}"}
        for path, kind in (("", "Transformer"), ("1_Pooling", "Pooling"))
    ]
    with_special_tokens(base, backbone, "BertTokenizer")
    (backbone / "1_Pooling").mkdir()
    for name, content in (
        ("modules.json", modules),
        ("1_Pooling/config.json", {"pooling_mode": "cls"}),
        ("config_sentence_transformers.json", {"prompts": {"query": prompt}}),
    ):
        (backbone / name).write_text(json.dumps(content), encoding="utf-8")
    sets = (*SMALL, "steps=40", "teacher=minmax")
    data = train(capsys, folder, backbone, tmp_path / "out", settings=sets)
    assert data["dev"] > data["bm25"] + 0.2
    manifest = read_folder(tmp_path / "out").manifest
    assert (manifest.pooling, manifest.settings) == ("cls", {"prompts": {"query": prompt}})

    ours = load(tmp_path / "out", tmp_path / "out", precision="fp32")
    text = "mortar about granada"
    query, document = (ours.encode([text], kind=kind)[0] for kind in ("query", "document"))
    for kind, given in (("query", query), ("document", document)):
        theirs = load("none", backbone, precision="fp32").encode([text], kind=kind)[0].vector
        np.testing.assert_allclose(given.vector, theirs, atol=1e-5)
        np.testing.assert_allclose(
            load("none", tmp_path / "out", precision="fp32").encode([text], kind=kind)[0].vector, theirs, atol=1e-5
        )
    assert "vexino" not in query.weights.terms
    assert not np.allclose(query.vector, document.vector, atol=5e-5)  # a random backbone looks little around
    assert [text[word.start : word.end] for word in ours.shade(text, kind="query")] == text.split()
    assert exporting.export(tmp_path / "out").fp32_difference <= TOLERANCE  # what was saved is pooled alike


@pytest.mark.parametrize(("most", "precise"), [(-1.0, True), (1.0, False)])
def test_a_model_that_loses_too_much_by_int8_is_used_in_fp32(capsys, folder, base, tmp_path, monkeypatch, most, precise):
    monkeypatch.setattr(model_folder, "MOST_LOST", most)
    sets = [part for each in (f"backbone={base}", *SMALL, "steps=1") for part in ("--set", each)]
    out = tmp_path / "out"
    assert run(["train", "fectek", str(folder), "--out", str(out), *sets]) == 0
    assert (model_folder.ONLY_FP32 in capsys.readouterr().out) == precise
    assert (model_folder.ONLY_FP32 in (out / "README.md").read_text(encoding="utf-8")) == precise
    assert (out / "model.int8.onnx").is_file() != precise
    default, exact = (load(out, out, precision=each).encode(["about granada"], kind="query")[0].vector for each in (None, "fp32"))
    assert np.array_equal(default, exact) == precise
    exporting.export(out)
    assert load(out, out, precision="int8").encode(["about granada"], kind="query")[0].vector is not None


def test_pairs_from_beside_teach_a_corpus_that_has_none(capsys, folder, base, tmp_path):
    """The corpus's own made questions say nothing of what matters in it; the other set's pairs do."""
    corpus = tmp_path / "corpus.jsonl"
    shutil.copy(folder / "corpus.jsonl", corpus)
    sets = (*SMALL, "steps=60", "views=span", f"beside={folder}")
    plan = train(capsys, corpus, base, tmp_path / "out", "--plan", settings=sets)
    jsonschema.validate(plan, json.loads((SCHEMAS / "train-plan.1.json").read_text(encoding="utf-8")))
    assert [(each["dataset"], each["origin"], each["questions"]) for each in plan["beside"]] == [(str(folder), "qrels", 72)]
    assert plan["origin"] == "corpus"
    alone = train(capsys, corpus, base, tmp_path / "alone", "--plan", settings=sets[:-1])
    assert (alone["beside"], plan["questions"]) == ([], alone["questions"])
    assert plan["states_bytes"] > alone["states_bytes"]

    train(capsys, corpus, base, tmp_path / "out", settings=sets)
    train(capsys, corpus, base, tmp_path / "alone", settings=sets[:-1])
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert f"| beside | {folder}: 160 documents; 72 questions (qrels) on " in card
    assert f"| data | {corpus}: 160 documents; " in card
    assert f"beside={folder}" in read_folder(tmp_path / "out").manifest.training["command"]
    both, one = (
        measure(load(str(tmp_path / name)), Collection(folder), Pool("toy", "train")).weights for name in ("out", "alone")
    )
    assert both > one + 0.2
    assert "--resume" in train(capsys, corpus, base, tmp_path / "out", settings=sets[:-1], status=2)
    other = train(capsys, corpus, base, tmp_path / "out", "--resume", settings=sets[:-1], status=2)
    assert f"beside was ['{folder}'] and is []" in other


def test_what_is_written_down_is_what_was_used(capsys, folder, base, tmp_path):
    """The toy backbone counts to 64; teacher, its weight and the temperature were left to termweave."""
    sets = ("steps=1", "dev=8", "pairs=corpus", "views=span", "max_length=30000")
    folder = Path(shutil.copytree(folder, tmp_path / "my docs"))
    planned = train(capsys, folder, base, tmp_path / "out", "--plan", settings=sets)["settings"]
    assert (planned["max_length"], planned["training_length"], planned["teacher"]) == (64, 64, "minmax")
    train(capsys, folder, base, tmp_path / "out", settings=sets)
    made = read_folder(tmp_path / "out").manifest.training
    assert made["options"] == planned
    assert set(made["changed"]) == {"backbone", *(each.partition("=")[0] for each in sets)}
    assert made["changed"]["max_length"] == 64
    words = shlex.split(made["command"])  # it can be given as it stands
    assert words[:6] == ["termweave", "train", "fectek", str(folder), "--out", "DIR"]
    assert f"backbone={base}" in words
