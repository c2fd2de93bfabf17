"""What vectors are trained with: towers, whose gradients and pooling are those of the whole batch and of sentence-transformers; candidate lists."""

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers

from termweave.cli import run
from termweave.encoders.analysis.word_pieces import ModelTokenizer
from termweave.errors import InputError, UsageError
from termweave.rerank.neighbours.equations import Rules
from termweave.rerank.neighbours.reciprocal import evidence
from termweave.training import dev_measure
from termweave.training.data import teacher_scores
from termweave.training.data.pairs import Pairs
from termweave.training.dense import list_targets
from termweave.training.dense.list_targets import NOTHING, EvidenceSettings, evidence_scores, mined, nearest, with_relevant
from termweave.training.dense.model import TokenIds, Towers, pool, reinitialise, tokenise
from termweave.training.methods import dtr
from termweave.training.trainer.passes import CpuDropout
from tests.training.conftest import train


def backbone(**changed):
    sizes = {"vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64}
    torch.manual_seed(0)
    config = transformers.BertConfig(**sizes, max_position_embeddings=64, **changed)
    return transformers.BertModel(config, add_pooling_layer=False)


def texts(count, seed=0, longest=20):
    generator = np.random.default_rng(seed)
    lengths = generator.integers(2, longest, count)
    starts = np.cumsum([0, *lengths])
    return TokenIds(generator.integers(1, 60, starts[-1]).astype(np.int32), starts)


def loss_and_gradients(model, queries, templates, labels, chunk):
    model.zero_grad()
    torch.manual_seed(1)  # dropout
    q = model.encode("query", queries, range(len(queries)), chunk)
    t = model.encode("document", templates, range(len(templates)), chunk)
    loss = sum(dtr.batch_loss(q, t, labels, torch.arange(len(templates))).values())
    loss.backward()
    return loss.item(), {name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None}


@pytest.mark.parametrize("towers", ["one", "two", "query"])
def test_gradient_caching_gives_the_same_loss_and_gradients(towers):
    model = Towers(backbone(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0), towers=towers).double().train()
    queries, templates = texts(40, 1), texts(12, 2)
    labels = torch.arange(40) % 12
    whole, expected = loss_and_gradients(model, queries, templates, labels, 0)
    cached, found = loss_and_gradients(model, queries, templates, labels, 7)
    assert cached == pytest.approx(whole, abs=1e-6)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("loop", [nullcontext, CpuDropout])  # the training loop runs in the latter
def test_gradient_caching_computes_a_chunk_again_with_the_same_dropout(loop):
    """The second pass must drop what the first dropped, or the gradients belong to another loss."""
    model = Towers(backbone(hidden_dropout_prob=0.3)).train()
    queries = texts(9, 1)
    torch.manual_seed(5)
    with loop():
        vectors = model.encode("query", queries, range(9), 4)
        vectors.square().sum().backward()  # of unit vectors the gradient is 0 in every direction that is kept: only through other noise
    largest = max(float(each.grad.abs().max()) for each in model.parameters() if each.grad is not None)
    assert largest < 1e-4


def test_gradient_caching_keeps_no_activations_of_a_batch():
    model, queries, bytes_of = Towers(backbone()).train(), texts(64), {0: [], 8: []}
    for chunk, sizes in bytes_of.items():
        with torch.autograd.graph.saved_tensors_hooks(lambda each, sizes=sizes: sizes.append(each.nbytes), lambda each: each):
            model.encode("query", queries, range(64), chunk)
    assert sum(bytes_of[8]) < sum(bytes_of[0]) / 100


@pytest.mark.parametrize("mode", ["mean", "cls", "max", "lasttoken"])
def test_padding_takes_no_part_in_pooling(mode):
    states = torch.randn(1, 5, 3)
    mask = torch.tensor([[1, 1, 1, 0, 0]])
    torch.testing.assert_close(pool(states, mask, mode), pool(states[:, :3], mask[:, :3], mode))


def test_top_layers_are_initialised_anew_and_the_others_stay(tmp_path):
    one = backbone()
    one.save_pretrained(tmp_path)
    # transformers marks what it loads, and leaves marked weights alone
    other = type(one).from_pretrained(tmp_path, add_pooling_layer=False)
    reinitialise(other, 2, seed=3)
    changed = [not torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True)]
    names = [name for (name, _), differs in zip(one.named_parameters(), changed, strict=True) if differs]
    assert names
    assert {name.split(".")[2] for name in names} == {"1", "2"}
    again = backbone()
    reinitialise(again, 2, seed=3)
    assert all(torch.equal(a, b) for a, b in zip(other.parameters(), again.parameters(), strict=True))


def test_texts_of_different_lengths_are_computed_in_pieces_and_in_their_order():
    model, some = Towers(backbone()).eval(), texts(21, longest=40)
    calls = []
    model.backbone.register_forward_pre_hook(lambda *given: calls.append(given[2]["input_ids"].shape), with_kwargs=True)
    together = model.encode("query", some, range(21))
    assert [rows for rows, _ in calls] == [8, 8, 5]
    assert calls[0][1] > calls[-1][1]
    alone = torch.cat([model.encode("query", some, [row]) for row in range(21)])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=0)
    np.testing.assert_allclose(model.vectors("query", some), alone.detach(), atol=1e-5)
    np.testing.assert_allclose(alone.detach().norm(dim=1), 1.0, atol=1e-5)


def test_texts_are_tokenised_with_their_prompt_and_cut(base):
    tokenizer = ModelTokenizer(base / "tokenizer.json")
    tokens = tokenise(tokenizer, ["about filler", "about " * 50, "x"], 6, "about ")
    alone = tokenise(tokenizer, ["about about filler"], 6)
    assert tokens.values[: tokens.lengths[0]].tolist() == alone.values.tolist()
    assert tokens.lengths.max() == 6
    ids, mask = tokens.padded([0, 1])
    assert ids.shape == mask.shape == (2, 6)
    assert mask.sum(axis=1).tolist() == tokens.lengths[:2].tolist()


# -- Candidate lists: exact search against a full sort, judged documents, run files, live indices; evidence scores as Algorithm 1, parallel, cached, resumable


def units(generator, count, width=8):
    vectors = generator.normal(size=(count, width)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("block", [10, 16_000_000])
def test_nearest_is_the_full_sort_with_ties_by_index(monkeypatch, block):
    monkeypatch.setattr(dev_measure, "_BLOCK", block)  # one question at a time, or all
    generator = np.random.default_rng(0)
    queries, documents = units(generator, 7), units(generator, 40)
    documents[30] = documents[3]  # a tie
    order = np.argsort(-(queries @ documents.T), axis=1, kind="stable")
    for depth in (1, 5, 40, 99):
        np.testing.assert_array_equal(nearest(queries, documents, depth), order[:, :depth])


def test_a_model_that_has_diverged_ranks_nothing():
    """Its next loss ends the run, with advice."""
    documents = np.ones((30, 4), np.float32)
    assert [len(places) for places, _ in dev_measure.rankings(np.full((2, 4), np.nan, np.float32), documents, 10)] == [0, 0]
    documents[5:] = np.nan
    ((places, _),) = dev_measure.rankings(np.ones((1, 4), np.float32), documents, 10)
    assert places.tolist() == [0, 1, 2, 3, 4]


def test_judged_documents_take_the_last_places():
    lists = np.array([[5, 6, 7], [8, 1, NOTHING], [2, 3, 4]])
    relevant = [frozenset({9}), frozenset({1, 2}), frozenset({4, 0, 11})]
    found = with_relevant(lists, relevant)
    assert found.tolist() == [[5, 6, 9], [8, 1, 2], [4, 0, 11]]
    assert with_relevant(np.array([[5]]), [frozenset({1, 2})]).tolist() == [[1, 2]]


def test_other_views_of_a_question_are_no_candidates_of_hybrid_search_in_a_small_corpus(monkeypatch):
    pairs = Pairs(["q"], [frozenset({0})], spared=[frozenset({2})])
    teacher = SimpleNamespace(scores=lambda *_: np.array([[0.5, 0.4, 0.9, 0.6]]))
    monkeypatch.setattr(teacher_scores, "vector_teacher", lambda *_: teacher)
    inputs, settings = SimpleNamespace(pairs=pairs, documents=range(4)), SimpleNamespace(candidates=200)
    vectors = {"document_vectors": np.eye(4), "question_vectors": np.eye(1, 4)}
    made = list_targets.hybrid_targets(SimpleNamespace(inputs=inputs, settings=settings, setup=None, **vectors))
    assert made.candidates.tolist() == [[3, 0, 1, NOTHING]]
    assert made.targets[0].tolist() == pytest.approx([0.665, 0.245, 0.09, 0], abs=0.001)


def test_a_run_file_gives_the_lists(tmp_path):
    run = tmp_path / "run"
    run.write_text("q1 Q0 d2 1 9.0 x\nq1 Q0 d0 2 8.5 x\nq1 Q0 unknown 3 8 x\nq2 Q0 d1 1 1.0 x\nby-text Q0 d0 1 1.0 x\n")
    queries = {"q1": "one", "q2": "two", "q3": "one", "q4": "by-text", "q5": "five"}  # q1 and q3 have one text
    documents = {"d0": 0, "d1": 1, "d2": 2}
    found = list_targets.from_run(run, ["two", "one", "by-text", "five"], queries, documents, 2)
    assert found.tolist() == [[1, NOTHING], [2, 0], [0, NOTHING], [NOTHING, NOTHING]]
    with pytest.raises(InputError, match="names none of the 1 question"):
        list_targets.from_run(run, ["other"], queries, documents, 2)


SHORT = ("max_length=64", "training_length=64", "batch=12", "dev=8", "every=2", "steps=2", "candidates=10", "labels=hard")


@pytest.mark.slow
@pytest.mark.usefixtures("own_cache")
def test_a_live_index_gives_candidates_and_the_models_own_are_kept(folder, base, tmp_path, name, opensearch_engine, monkeypatch):
    monkeypatch.setenv("OPENSEARCH_URL", opensearch_engine.url)
    assert run(["index", str(folder / "corpus.jsonl"), name, "--signals", "lexical", "--quiet"]) == 0
    asked = []

    def noted(context, ranking, depth):
        asked.append((context, ranking, depth, lists := mined(context, ranking, depth)))
        return lists

    monkeypatch.setattr(list_targets, "mined", noted)
    data = train(folder, base, tmp_path / "out", method="coder", settings=(*SHORT, f"candidates_from=index:{name}"))
    assert data["history"]["steps"] == [0, 2]
    ((context, *wanted, lists),) = asked
    assert lists.shape == (72, 10)  # ten documents of each of 72 questions
    assert (lists != NOTHING).any(axis=1).all()
    # Another profile of the same generation finds other candidates.
    question, best = context.setup.train.questions[0], int(lists[0, 0])
    hidden = context.setup.examples.ids[context.setup.places[best]]
    (tmp_path / "pins.csv").write_text(f"query,document,action\n{question},{hidden},hide\n")
    saved = ["profiles", name, "--save", "shop", "--mode", "lexical", "--rewrite", f"pins@{tmp_path / 'pins.csv'}"]
    assert run([*saved, "--use", "shop", "--quiet"]) == 0
    again = mined(context, *wanted)
    assert best not in again[0]
    assert (again[1:] == lists[1:]).all()
    # An index of other documents finds none of these.
    (tmp_path / "other.jsonl").write_text('{"_id": "elsewhere", "text": "about granada and other towns"}\n')
    assert run(["index", str(tmp_path / "other.jsonl"), f"{name}-other", "--signals", "lexical", "--quiet"]) == 0
    with pytest.raises(UsageError, match=f"The index {name}-other.* found no training document"):
        mined(context, f"index:{name}-other", 10)
    # Lists of the model's own vectors are mined once.
    first = mined(context, "model", 10)
    monkeypatch.setattr(list_targets, "nearest", lambda *_: pytest.fail("mined again"))
    assert (mined(context, "model", 10) == first).all()


EVIDENCE = EvidenceSettings(weight=0.4, context=12, rules=Rules(k=5, k_exp=2))


@pytest.fixture(scope="module")
def data():
    documents = units(np.random.default_rng(0), 90, 16)
    relevant = [frozenset({row % 90, (7 * row) % 90}) for row in range(300)]
    queries = np.stack([documents[sorted(judged)].mean(axis=0) for judged in relevant]) + 0.1
    return queries, documents, with_relevant(nearest(queries, documents, 20), relevant), relevant


def test_scores_are_those_of_algorithm_1(data, tmp_path):
    queries, documents, lists, relevant = data
    scores = evidence_scores(*data, EvidenceSettings(0.4, 0, Rules(k=5, k_exp=2)), tmp_path, workers=1)
    for row in (0, 17, 299):
        own = lists[row]
        places = [place for place, document in enumerate(own.tolist()) if document in relevant[row]]
        expected = evidence(queries[row], documents[own], places, weight=0.4, rules=Rules(k=5, k_exp=2))
        np.testing.assert_array_equal(scores[row], expected)


def test_only_the_context_and_the_judged_documents_get_a_score(data):
    queries, documents, _, _ = data
    candidates = np.append(nearest(queries[:1], documents, 20)[0], [NOTHING, NOTHING])
    judged = [int(candidates[18])]
    scores = list_targets.list_evidence(queries[0], documents, candidates, judged, EVIDENCE)
    assert np.isfinite(scores).tolist() == [place < 12 or place == 18 for place in range(22)]
    context = candidates[[*range(12), 18]]
    expected = evidence(queries[0], documents[context], [12], weight=0.4, rules=EVIDENCE.rules)
    np.testing.assert_array_equal(scores[[*range(12), 18]], expected)


def test_processes_give_what_one_process_gives_and_the_cache_is_read(data, tmp_path, monkeypatch):
    one = evidence_scores(*data, EVIDENCE, tmp_path / "one", workers=1)
    two = evidence_scores(*data, EVIDENCE, tmp_path / "two", workers=2)
    np.testing.assert_array_equal(one, two)
    monkeypatch.setattr(list_targets, "_block", None)  # nothing is computed again
    np.testing.assert_array_equal(evidence_scores(*data, EVIDENCE, tmp_path / "two"), one)
    with pytest.raises(TypeError):
        evidence_scores(*data, EvidenceSettings(0.5, 12, Rules(k=5, k_exp=2)), tmp_path / "two", workers=1)


def test_a_killed_run_goes_on_with_the_blocks_that_are_missing(data, tmp_path, monkeypatch):
    whole = evidence_scores(*data, EVIDENCE, tmp_path / "whole", workers=1)
    computed, deaths, real = [], [KeyboardInterrupt], list_targets._block

    def block(folder, settings, work):
        if len(computed) == 2 and deaths:
            raise deaths.pop()
        computed.append(work[0])
        return real(folder, settings, work)

    monkeypatch.setattr(list_targets, "_block", block)
    with pytest.raises(KeyboardInterrupt):
        evidence_scores(*data, EVIDENCE, tmp_path / "killed", workers=1)
    np.testing.assert_array_equal(evidence_scores(*data, EVIDENCE, tmp_path / "killed", workers=1), whole)
    assert computed == [0, 128, 256]
