"""Runs of SIR on a toy collection: the folder that comes out, the first stages; and a ranker as teacher, whose scores are cached and distilled."""

import json
import shutil

import numpy as np
import pytest
import torch

from termweave import corpora
from termweave.cli import run
from termweave.encoders import Ranker
from termweave.encoders.kinds import read_folder
from termweave.errors import InputError, UsageError
from termweave.records import Encoding
from termweave.rerank.ranker import CrossEncoderReranker
from termweave.rerank.rerankers import RerankRequest
from termweave.search import Index
from termweave.signals.fusion import Ranked
from termweave.training.methods import base as methods
from termweave.training.mixture import parts
from termweave.training.ranker import first_stage as stages
from termweave.training.ranker import teacher
from termweave.training.ranker.first_stage import HybridStage, first_stage, lists_of
from termweave.training.trainer.trainer import Fit
from tests.training.conftest import SMALL, train

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_cache")]

RANKED = ("max_length=32", "training_length=32", "batch=3", "layers_rate=0.002", "dev=6", "every=4", "steps=8", "reranked=10")
QUICK = (*RANKED, "candidates_from=bm25", "blocks=9,5,3", "candidates=12")
METHOD = methods.get("sir")


@pytest.fixture
def data_of(folder, complete, tmp_path):
    """A function: the settings of a short run, and its data set."""

    def read(*sets, **given):
        quick = dict(each.split("=") for each in (*QUICK, *sets))
        settings = METHOD.settings({"backbone": str(complete), **quick, **given})
        (part,) = parts(str(folder), settings, tmp_path / "out", lambda _: None)
        return settings, part

    return read


def test_an_anchored_run_is_a_ranker_that_search_and_cross_encoder_load(trained, toy):
    out, data = trained("sir", (*RANKED, "blocks=6,3"))
    read = read_folder(out)  # digests hold
    assert (read.manifest.kind, read.manifest.hash, read.manifest.outputs) == ("ranker", data["hash"], ("scores",))
    assert list(read.manifest.anchor["weights"]) == ["score", "cosine", "jaccard"]
    assert data["ndcg"]["scores"].keys() == {"fp32", "int8", "change"}
    assert "first stage" in (out / "README.md").read_text(encoding="utf-8")
    residuals = Ranker.load(out, precision="fp32").score("about granada", toy[0][:4])
    sentence_transformers = pytest.importorskip("sentence_transformers")
    theirs = sentence_transformers.CrossEncoder(str(out), device="cpu", activation_fn=torch.nn.Identity())
    assert np.allclose(theirs.predict([("about granada", text) for text in toy[0][:4]]), residuals, atol=1e-4)
    # The reranker adds the anchor: with vectors that all agree only the score so far differs.
    reranker = CrossEncoderReranker(str(out), weight=1.0, scorer=Ranker.load(out, precision="fp32"))
    assert reranker.needs == {"texts", "vectors"}
    vectors, scores = np.eye(4, dtype=np.float32)[[0, 0, 0, 0]], [0.9, 0.5, 0.4, 0.1]
    request = RerankRequest(Encoding("about granada", vector=vectors[0]), list("abcd"), scores, vectors, toy[0][:4])
    result, weights = reranker.rerank(request), read.manifest.anchor["weights"]
    logits = [result.details(row)["logit"] for row in range(4)]
    expected = residuals + weights["score"] * np.array(scores) + weights["cosine"] + weights["jaccard"]
    assert logits == pytest.approx(expected.tolist(), abs=1e-4)


@pytest.fixture
def prepared(data_of, complete):
    """A function: the objective of these settings without dropout, and its first batch."""

    def prepare(**given):
        settings, part = data_of(**given)
        model = METHOD.build(settings, complete)
        objective = Fit(METHOD, model, [METHOD.inputs(part, model, lambda _: None)], settings).eval()
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
    first = torch.from_numpy(batch.drawn.features[:, :, 0] * (batch.drawn.documents >= 0))
    assert torch.allclose(objective.method.score(objective, batch), 10 * first, atol=1e-5)


def test_the_right_document_stands_first_and_no_known_one_behind_it(prepared):
    objective, _ = prepared()
    pairs, drawn = objective.inputs[0].pairs, [objective.batches()[number].drawn for number in range(20)]
    for batch in drawn:
        for question, block in zip(batch.questions.tolist(), batch.documents.tolist(), strict=True):
            assert block[0] in pairs.relevant[question]
            assert not set(block[1:]) & pairs.known[question]
    blocks = {tuple(sorted(each.documents[0].tolist())) for each in drawn}
    assert len(blocks) == 20  # drawn anew in each step


def test_a_run_file_gives_the_candidates(data_of, tmp_path):
    _, part = data_of()
    setup, names, ranking = part.setup, part.setup.examples.queries, tmp_path / "run.trec"

    def listed(pairs, content, say):
        ranking.write_text(content)
        return lists_of(first_stage(str(ranking), setup, say), pairs, 5)

    every = "".join(f"{name} Q0 d{place} {place} {90 - place} x\n" for name in names for place in range(7))
    lists = listed(setup.train, every, lambda _: pytest.fail("every question is in the run"))
    ids = [setup.examples.ids[setup.places[document]] for document in lists.documents[0].tolist() if document >= 0]
    assert ids == [f"d{place}" for place in range(7) if f"d{place}" in ids][:5]
    assert lists.features[0, 0, 0] == 1.0
    said = []
    listed(setup.train, "".join(f"{name} Q0 d1 1 1.0 x\n" for name in list(names)[:3]), said.append)
    assert "BM25 ranks for them" in said[0]
    with pytest.raises(InputError, match="names none of the"):
        listed(setup.train, "somebody Q0 d1 1 1.0 x\n", print)


def test_bm25_is_scaled_as_search_scales_one_signal(data_of):
    setup = data_of()[1].setup
    (short,) = first_stage("bm25", setup, print).rank(setup.train.questions[:1], [frozenset()], 3)
    (question,) = setup.bm25_weights(setup.train.questions[:1], "query")
    documents, scores = setup.bm25_index.search(question, 100, frozenset())
    ranked = Ranked.from_scores(list(zip(map(str, documents.tolist()), scores.tolist(), strict=True)))
    assert [score for (score,) in short.values()] == pytest.approx(ranked.normalised()[:3])


def test_a_live_index_gives_the_candidates(data_of, folder, name, opensearch_engine, monkeypatch):
    _, part = data_of(f"candidates_from=index:{name}")
    monkeypatch.setattr(stages, "connect", lambda _: opensearch_engine)

    def stage_of(index, signal):
        assert run(["index", str(folder), index, "--signals", signal, "--url", opensearch_engine.url, "-q"]) == 0
        return first_stage(f"index:{index}", part.setup, print)

    lists = lists_of(stage_of(name, "lexical"), part.setup.train, 5)
    assert (lists.documents[:, 0] >= 0).all()
    assert lists.features[:, 0, 0] == pytest.approx(1.0)
    (row,) = stage_of(f"{name}-vectors", "dense").rank(part.setup.train.questions[:1], [frozenset()], 200)
    scores = [score for (score,) in row.values()]
    assert (max(scores), min(scores)) == (1.0, 0.0)  # cosines, scaled as search scales those of one signal for a reranker


def test_hybrid_in_memory_ranks_as_search_does(name, opensearch_engine, tmp_path):
    demo = corpora.open_dataset("demo")
    documents = [each for number, each in enumerate(demo.documents()) if number % 30 == 0]
    path = tmp_path / "part.jsonl"
    path.write_text("\n".join(json.dumps({"_id": each.id, "title": each.title, "text": each.text}) for each in documents))
    questions = [query.text for query in demo.queries()][:20]
    assert run(["index", str(path), name, "--url", opensearch_engine.url, "-q"]) == 0
    index = Index.open(opensearch_engine, name)
    found = HybridStage([each.content for each in documents]).rank(questions, [frozenset()] * len(questions), 10)
    searched = index.run({str(n): question for n, question in enumerate(questions)}, k=100, mode="hybrid", rerank="none")
    for number, features in enumerate(found):
        scores = searched.scores[str(number)]
        assert [score for score, *_ in features.values()] == pytest.approx(sorted(scores.values(), reverse=True)[:10], abs=5e-3)
        assert all(scores[documents[place].id] == pytest.approx(score, abs=5e-3) for place, (score, *_) in features.items())


SHORT = ("max_length=32", "training_length=32", "batch=2", "dev=6", "steps=2", "every=2")
RANKER = (*SHORT, "reranked=5", "blocks=4", "candidates=6", "candidates_from=bm25")


@pytest.fixture
def ranker(trained):
    """A ranker of two steps without an anchor."""
    return trained("sir", (*RANKER, "anchor=false"))[0]


def test_the_scores_are_the_rankers_and_cached(data_of, ranker, monkeypatch):
    setup = data_of()[1].setup
    wanted = [[0, 3, 5]] * len(setup.train)
    written = teacher.teach(f"ranker:{ranker}", setup, wanted, lambda _: None)
    found = written.scores(np.array([1]), np.array([3, 5, 7]))
    texts = [setup.texts[document] for document in (3, 5)]
    assert found[0, :2] == pytest.approx(Ranker.load(ranker).score(setup.train.questions[1], texts), abs=1e-5)
    assert found[0, 2] == -np.inf
    monkeypatch.setattr(Ranker, "load", lambda *_, **__: pytest.fail("the scores are in the cache"))
    again = teacher.teach(f"ranker:{ranker}", setup, wanted, lambda _: None)
    assert np.array_equal(again.scores(np.array([1]), np.array([3, 5, 7])), found)


def test_an_anchored_teacher_reads_the_first_stage_that_it_was_trained_on(trained, data_of, tmp_path, monkeypatch):
    out, _ = trained("sir", RANKER)
    ranker, setup = Ranker.load(out), data_of()[1].setup
    assert set(ranker.anchor) == {"score"}
    (features,) = first_stage("bm25", setup, print).rank(setup.train.questions[:1], setup.train.spared[:1], 100)
    best = list(features)[:3]
    wanted = [best, *([best[0]] for _ in setup.train.questions[1:])]
    found = teacher.teach(f"ranker:{out}", setup, wanted, lambda _: None).scores(np.array([0]), np.array(best))[0]
    residual = ranker.score(setup.train.questions[0], [setup.texts[document] for document in best])
    assert found == pytest.approx(residual + [ranker.anchor["score"] * features[document][0] for document in best], abs=1e-4)

    # A ranker of a live index or a run file reads that, and its scores are not kept: both may change.
    run_file = tmp_path / "run.trec"
    names = {question: name for name, question in setup.examples.queries.items()}
    run_file.write_text(f"{names[setup.train.questions[0]]} Q0 {setup.examples.ids[setup.places[best[1]]]} 1 0.25 x\n")
    monkeypatch.setattr(teacher, "_stage", lambda _: str(run_file))
    for score in (0.25, 0.5):
        run_file.write_text(run_file.read_text().replace("0.25", str(score)))
        again = teacher.teach(f"ranker:{out}", setup, wanted, lambda _: None).scores(np.array([0]), np.array(best))[0]
        assert again[1] == pytest.approx(residual[1] + ranker.anchor["score"] * score, abs=1e-4)
    run_file.unlink()
    with pytest.raises(UsageError, match="There is no run file"):
        teacher.check(f"ranker:{out}")


LEARNERS = {"fectek": (*SMALL, "negatives=3", "steps=2", "every=2"), "coder": (*SHORT, "candidates=5", "candidates_from=bm25")}


@pytest.mark.parametrize("method", LEARNERS)
def test_models_learn_from_a_ranker(folder, base, ranker, tmp_path, method):
    """From its scores of judged pairs, and of pairs that are made of the corpus, whose teacher weighs more."""
    source = folder if method == "coder" else shutil.copy(folder / "corpus.jsonl", tmp_path)
    nowhere = train(source, base, tmp_path / "out", "--plan", method=method, settings=("teacher=ranker:./nowhere",), status=2)
    assert "There is no model folder './nowhere'" in nowhere
    train(source, base, tmp_path / "out", method=method, settings=(*LEARNERS[method], f"teacher=ranker:{ranker}"))
    options = json.loads((tmp_path / "out" / "termweave.json").read_text())["training"]["options"]
    assert options["teacher"] == f"ranker:{ranker}"
    assert options.get("teacher_weight", 9.0) == 9.0
