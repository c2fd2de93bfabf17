"""The towers: gradient caching gives the loss and gradients of the whole batch; pooling and vectors as sentence-transformers'."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch
import transformers

from termweave.encoders.analysis.word_pieces import ModelTokenizer
from termweave.training.dense.model import TokenIds, Towers, pool, reinitialise, tokenise
from termweave.training.methods import dtr
from termweave.training.trainer.passes import CpuDropout


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
