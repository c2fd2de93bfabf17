"""Whole runs of SIR on a toy collection: every variant, the folder that comes out, resumed runs, the memory of a pass."""

import json
from functools import partial
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from termweave.encoders import Ranker
from termweave.encoders.kinds import read_folder
from termweave.errors import InputError
from termweave.rerank.ranker import CrossEncoderReranker
from termweave.rerank.rerankers import RerankRequest
from termweave.training.methods import base as methods
from termweave.training.mixture import parts
from termweave.training.trainer.trainer import Fit
from tests.training.conftest import stop_and_resume, train

torch = pytest.importorskip("torch", reason="training needs the extra [train]")
pytest.importorskip("accelerate", reason="training needs the extra [train]")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_cache")]

SCHEMAS = Path(__file__).parents[3] / "docs" / "schemas"
SMALL = ("max_length=32", "training_length=32", "batch=3", "layers_rate=0.002", "dev=6", "every=4", "steps=8", "reranked=10")
QUICK = (*SMALL, "candidates_from=bm25", "blocks=9,5,3", "candidates=12")


def test_an_anchored_run_is_a_ranker_that_search_and_cross_encoder_load(capsys, folder, complete, tmp_path, toy):
    out = tmp_path / "out"
    data = train(capsys, folder, complete, out, method="sir", settings=(*SMALL, "blocks=6,3"))
    read = read_folder(out)  # digests hold
    assert (read.manifest.kind, read.manifest.hash, read.manifest.outputs) == ("ranker", data["hash"], ("scores",))
    assert list(read.manifest.anchor["weights"]) == ["score", "cosine", "jaccard"]
    assert data["ndcg"]["scores"].keys() == {"fp32", "int8", "change"}
    card = (out / "README.md").read_text(encoding="utf-8")
    assert f"{data['dev']:.4f}" in card
    assert "first stage" in card
    residuals = Ranker.load(out, precision="fp32").score("about granada", toy[0][:4])
    sentence_transformers = pytest.importorskip("sentence_transformers")
    theirs = sentence_transformers.CrossEncoder(str(out), device="cpu", activation_fn=torch.nn.Identity())
    assert np.allclose(theirs.predict([("about granada", text) for text in toy[0][:4]]), residuals, atol=1e-4)
    # The reranker adds the anchor: with vectors that all agree only the score so far differs.
    from termweave.records import Encoding

    reranker = CrossEncoderReranker(str(out), weight=1.0, scorer=Ranker.load(out, precision="fp32"))
    assert reranker.needs == {"texts", "vectors"}
    vectors, scores = np.eye(4, dtype=np.float32)[[0, 0, 0, 0]], [0.9, 0.5, 0.4, 0.1]
    request = RerankRequest(Encoding("about granada", vector=vectors[0]), list("abcd"), scores, vectors, toy[0][:4])
    result, weights = reranker.rerank(request), read.manifest.anchor["weights"]
    logits = [result.details(row)["logit"] for row in range(4)]
    expected = residuals + weights["score"] * np.array(scores) + weights["cosine"] + weights["jaccard"]
    assert logits == pytest.approx(expected.tolist(), abs=1e-4)


@pytest.mark.parametrize(
    "settings",
    [
        ("variant=v1", "selector=top"),
        ("variant=v4", "selector=random", "reuse=false"),
    ],
    ids=lambda given: "-".join(each.partition("=")[2] for each in given),
)
def test_variants_train(folder, complete, tmp_path, settings):
    from termweave.training.mixture import learn

    given = dict(each.split("=") for each in (*QUICK, "anchor=false", "steps=2", "every=2", *settings))
    method = methods.get("sir")
    chosen = method.settings({"backbone": str(complete), **given})
    data = parts(str(folder), chosen, tmp_path / "out", lambda _: None)
    trained = learn(method, chosen, data, tmp_path / "checkpoints")
    assert trained.history.steps == [0, 2]
    assert np.isfinite(trained.history.losses).all()
    fits = {each.name for each in (tmp_path / "checkpoints").iterdir() if each.name.startswith("compressor")}
    assert len(fits) == (3 if given["variant"] == "v1" else 0)


@pytest.fixture
def prepared(folder, complete, tmp_path):
    """A function: the objective of these settings without dropout, and its first batch."""

    def prepare(**given):
        method = methods.get("sir")
        settings = method.settings({"backbone": str(complete), **dict(each.split("=") for each in QUICK), **given})
        data = parts(str(folder), settings, tmp_path / "out", lambda _: None)
        model = method.build(settings, complete)
        objective = Fit(method, model, [method.inputs(data[0], model, lambda _: None)], settings).eval()
        return objective, objective.batches()[0]

    return prepare


def gradients(objective, batch):
    objective.zero_grad(set_to_none=True)
    loss = objective(batch)["loss"]
    loss.backward()
    return float(loss.detach()), {name: each.grad for name, each in objective.named_parameters() if each.grad is not None}


@pytest.mark.parametrize("variant", ["v3", "v4"])
def test_scoring_in_chunks_and_scoring_again_are_the_whole_pass(prepared, variant):
    whole, batch = prepared(variant=variant, chunk=0, anchor=False)
    loss, expected = gradients(whole, batch)
    for settings in ({"chunk": 4}, {"chunk": 4, "reuse": False}):
        objective, same = prepared(variant=variant, anchor=False, **settings)
        found, grads = gradients(objective, same)
        assert found == pytest.approx(loss, abs=1e-5)
        assert grads.keys() == expected.keys()
        assert all(torch.allclose(grads[name], expected[name], atol=1e-5) for name in expected)


def test_the_head_computes_in_float32_above_a_transformer_in_bf16(prepared):
    scores = {}
    for precision in ("fp32", "bf16"):
        objective, batch = prepared(precision=precision, anchor=False)
        torch.manual_seed(0)
        scores[precision] = objective.method.score(objective.train(), batch).detach()
    rounded = scores["bf16"].bfloat16().float()
    assert not torch.equal(scores["bf16"], scores["fp32"])
    assert (scores["bf16"] != rounded).float().mean() > 0.9


def test_an_anchored_ranker_begins_as_the_first_stage(prepared):
    objective, batch = prepared()
    scores = objective.method.score(objective, batch)
    assert torch.allclose(
        scores, 10 * torch.from_numpy(batch.drawn.features[:, :, 0]) * torch.from_numpy(batch.drawn.documents >= 0), atol=1e-5
    )


@pytest.mark.parametrize(("variant", "size"), [("random", 3), ("static", 3), ("lcl", 3), ("v1", 9)])
def test_baselines_have_one_block(prepared, variant, size):
    objective, batch = prepared(variant=variant, anchor=False)
    assert batch.drawn.documents.shape == (3, size)
    assert objective(batch).keys() == {"loss", "block"}
    if variant == "static":
        lists, row = objective.inputs[0].lists, int(batch.drawn.questions[0])
        assert batch.drawn.documents[0, 1:].tolist() == lists.documents[row, objective.inputs[0].negatives[row][:2]].tolist()


def test_the_right_document_stands_first_and_no_known_one_behind_it(prepared):
    objective, _ = prepared()
    pairs, drawn = objective.inputs[0].pairs, [objective.batches()[number].drawn for number in range(20)]
    for batch in drawn:
        for question, block in zip(batch.questions.tolist(), batch.documents.tolist(), strict=True):
            assert block[0] in pairs.relevant[question]
            assert not set(block[1:]) & pairs.known[question]
    blocks = {tuple(sorted(each.documents[0].tolist())) for each in drawn}
    assert len(blocks) == 20  # drawn anew in each step


def test_stopped_and_resumed_is_the_same_model(capsys, folder, complete, tmp_path, monkeypatch):
    settings = (*QUICK, "variant=v2", "steps=6", "every=2")  # three fits
    again = partial(train, capsys, folder, complete, method="sir", settings=settings)
    stop_and_resume(monkeypatch, tmp_path, (12,), again)


def test_a_plan_says_what_would_be_done(capsys, folder, complete, tmp_path):
    plan = train(capsys, folder, complete, tmp_path / "out", "--plan", method="sir", settings=QUICK)
    jsonschema.validate(plan, json.loads((SCHEMAS / "train-plan.1.json").read_text(encoding="utf-8")))
    assert 0 < plan["minutes"] < 5
    error = train(
        capsys, folder, complete, tmp_path / "out", "--plan", method="sir", settings=("candidates_from=nowhere.trec",), status=2
    )
    assert "There is no run file nowhere.trec" in error


def test_a_run_file_gives_the_candidates(folder, complete, tmp_path):
    from termweave.training.ranker.first_stage import first_stage, lists_of

    method = methods.get("sir")
    given = dict(each.split("=") for each in QUICK)
    chosen = method.settings({"backbone": str(complete), **given})
    (part,) = parts(str(folder), chosen, tmp_path / "out", lambda _: None)
    names = part.setup.examples.queries
    run = tmp_path / "run.trec"
    run.write_text("".join(f"{name} Q0 d{place} {place} {90 - place} x\n" for name in names for place in range(7)))
    lists = lists_of(first_stage(str(run), part.setup, print), part.setup.train, 5)
    ids = [part.setup.examples.ids[part.setup.places[document]] for document in lists.documents[0].tolist() if document >= 0]
    assert ids == [f"d{place}" for place in range(7) if f"d{place}" in ids][:5]
    assert lists.features[0, 0, 0] == 1.0
    held_out = lists_of(
        first_stage(str(run), part.setup, lambda _: pytest.fail("every question is in the run")), part.setup.dev, 5
    )
    best = [part.setup.examples.ids[part.setup.places[document]] for document in held_out.documents[:, 0].tolist()]
    assert set(best) <= {f"d{place}" for place in range(7)}

    run.write_text("".join(f"{name} Q0 d1 1 1.0 x\n" for name in list(names)[:3]))
    said = []
    lists_of(first_stage(str(run), part.setup, said.append), part.setup.train, 5)
    assert "BM25 ranks for them" in said[0]
    run.write_text("somebody Q0 d1 1 1.0 x\n")
    with pytest.raises(InputError, match="names none of the"):
        lists_of(first_stage(str(run), part.setup, print), part.setup.train, 5)


def test_bm25_is_scaled_as_search_scales_one_signal(folder, complete, tmp_path):
    from termweave.signals.fusion import Ranked
    from termweave.training.ranker.first_stage import first_stage

    method = methods.get("sir")
    chosen = method.settings({"backbone": str(complete), **dict(each.split("=") for each in QUICK)})
    (part,) = parts(str(folder), chosen, tmp_path / "out", lambda _: None)
    setup, nothing = part.setup, [frozenset()]
    (short,) = first_stage("bm25", setup, print).rank(setup.train.questions[:1], nothing, 3)
    (question,) = setup.bm25_weights(setup.train.questions[:1], "query")
    found = setup.bm25_index.search(question, 100, frozenset())
    ranked = Ranked.from_scores(
        [(str(document), score) for document, score in zip(*(each.tolist() for each in found), strict=True)]
    )
    assert [score for (score,) in short.values()] == pytest.approx(ranked.normalised()[:3])


def test_a_live_index_gives_the_candidates(folder, complete, tmp_path, name, opensearch_engine, monkeypatch):
    from termweave.cli import run
    from termweave.training.ranker import first_stage

    url = opensearch_engine.url
    assert run(["index", str(folder), name, "--signals", "lexical", "--url", url, "-q"]) == 0
    method = methods.get("sir")
    given = dict(each.split("=") for each in (*QUICK, f"candidates_from=index:{name}"))
    (part,) = parts(str(folder), method.settings({"backbone": str(complete), **given}), tmp_path / "out", lambda _: None)
    monkeypatch.setattr(first_stage, "connect", lambda _: opensearch_engine)
    stage = first_stage.first_stage(f"index:{name}", part.setup, print)
    lists = first_stage.lists_of(stage, part.setup.train, 5)
    assert (lists.documents[:, 0] >= 0).all()
    assert lists.features[:, 0, 0] == pytest.approx(1.0)
    assert (lists.features[:, :, 0] <= 1).all()

    assert run(["index", str(folder), f"{name}-vectors", "--signals", "dense", "--url", url, "-q"]) == 0
    stage = first_stage.first_stage(f"index:{name}-vectors", part.setup, print)
    (row,) = stage.rank(part.setup.train.questions[:1], [frozenset()], 200)
    scores = [score for (score,) in row.values()]
    assert max(scores) == 1.0  # cosines, scaled as search scales those of one signal for a reranker
    assert min(scores) == 0.0


def test_hybrid_in_memory_ranks_as_search_does(name, opensearch_engine, tmp_path):
    from termweave import corpora
    from termweave.cli import run
    from termweave.search import Index
    from termweave.training.ranker.first_stage import HybridStage

    demo = corpora.open_dataset("demo")
    documents = [each for number, each in enumerate(demo.documents()) if number % 30 == 0]
    path = tmp_path / "part.jsonl"
    path.write_text("\n".join(json.dumps({"_id": each.id, "title": each.title, "text": each.text}) for each in documents))
    questions = [query.text for query in demo.queries()][:20]
    assert run(["index", str(path), name, "--url", opensearch_engine.url, "-q"]) == 0
    index = Index.open(opensearch_engine, name)
    found = HybridStage([each.content for each in documents]).rank(questions, [frozenset()] * len(questions), 10)
    searched = index.run(
        {str(number): question for number, question in enumerate(questions)}, k=100, mode="hybrid", rerank="none"
    )
    for number, features in enumerate(found):
        scores = searched.scores[str(number)]
        assert [score for score, *_ in features.values()] == pytest.approx(sorted(scores.values(), reverse=True)[:10], abs=5e-3)
        assert all(scores[documents[place].id] == pytest.approx(score, abs=5e-3) for place, (score, *_) in features.items())
