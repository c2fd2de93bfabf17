"""What a run has before it: its backbone, the pool that it is judged by, and what it says of the corpus."""

import shutil

import pytest
import torch
import transformers
from safetensors.torch import save

from termweave.declared_settings import LARGEST
from termweave.encoders.model_lookup import resolve
from termweave.encoders.models.joint_model import HeadShape, JointModel, load_backbone
from termweave.encoders.term_weighting import BM25
from termweave.errors import InputError, ModelError, UsageError
from termweave.training import backbone_model
from termweave.training.data.bm25_index import SparseIndex, bm25_weights
from termweave.training.dev_measure import ranking_measure
from termweave.training.methods import base as methods
from termweave.training.mixture import DataPart, parts
from termweave.training.setup import set_up
from termweave.training.trainer.trainer import Fit
from tests.beir_folder import beir_folder
from tests.training.conftest import SUBJECTS, describe_pooling, train

FECTEK = methods.get("fectek")


@pytest.fixture
def made(tmp_path, base):
    """A function: set up a run over a corpus file of its own; returns the set-up and what was said."""

    def make(text="the mortar of granada number {}", count=120, **given):
        titles, more = [text.format(n) for n in range(count)], [text.format(n * 7 % 50) for n in range(count)]
        texts = [f"{title} {again} {'filler ' * (n % 9)}" for n, (title, again) in enumerate(zip(titles, more, strict=True))]
        documents = [{"title": title, "text": body} for title, body in zip(titles, texts, strict=True)]
        corpus, said = beir_folder(tmp_path, numbered(documents), {}) / "corpus.jsonl", []
        settings = FECTEK.settings({"backbone": str(base), "dev": 10, "documents": 20, **given})
        return set_up(str(corpus), settings, tmp_path, said.append), said

    return make


def numbered(texts, prefix=""):
    return {f"{prefix}{n}": text for n, text in enumerate(texts)}


def test_a_large_corpus_is_sampled_for_hard_documents_from_end_to_end(made, monkeypatch):
    monkeypatch.setattr("termweave.training.setup._MOST", 60)
    monkeypatch.setattr("termweave.training.setup.MOST_SEARCHED", 0)
    ahead, _ = made(documents=2)
    answers = {place for known in ahead.dev.relevant for place in known}
    hard = [place for index, place in enumerate(ahead.places) if index not in answers]
    assert len(hard) > 10
    assert sum(place >= 60 for place in hard) > len(hard) / 4  # of 181 texts; two of these are trained on


def test_held_out_questions_are_searched_in_the_whole_corpus_or_in_as_much_of_it_as_is_allowed(made, monkeypatch):
    whole, _ = made(documents=2)
    assert len(whole.places) == len(whole.examples.texts) > 100
    monkeypatch.setattr("termweave.training.setup.MOST_SEARCHED", 90)
    part, _ = made(documents=2)
    assert len(part.places) == 90
    answers = {place for known in part.dev.relevant for place in known}
    assert len(answers) == len(part.dev)
    monkeypatch.setattr("termweave.training.setup._MOST_STATES", 1)  # the hidden states of a frozen backbone have no room
    least, _ = made(documents=2)
    assert len(least.places) < 90
    trained, said = made(documents=2, top_layers=1)
    assert len(trained.places) == 90
    assert any(f"90 of {len(trained.examples.texts)} documents are read" in line for line in said)
    every, said = made(documents=LARGEST, top_layers=1)  # what preset=paper sets
    assert len(every.places) == len(every.examples.texts)
    assert not any("documents are read" in line for line in said)


def test_half_of_what_is_searched_in_a_large_corpus_are_bm25s_best(made, monkeypatch):
    monkeypatch.setattr("termweave.training.setup.MOST_SEARCHED", 150)
    part, _ = made(documents=2, dev=5)
    texts, common = part.examples.texts, (part.analysis, part.statistics, BM25())
    index = SparseIndex(bm25_weights(texts, *common, "document"))
    for question in bm25_weights(part.dev.questions, *common, "query"):
        assert {*index.search(question, 15)[0].tolist()} <= {*part.places}  # 0.5 * 150 / 5
    assert len(part.places) == 150 < len(texts)


@pytest.mark.parametrize(
    ("text", "warned"), [("the mortar of the house in granada is as old as number {}", False), ("研究生命起源的问题 {}", True)]
)
def test_a_backbone_that_does_not_know_the_language_is_said(made, text, warned):
    _, said = made(text, backbone=str(resolve("shipped")))
    assert any(line.startswith("Warning: the backbone does not know the language") for line in said) == warned
    _, said = made(text, backbone="scratch", outputs="weights")
    assert not any("Warning" in line for line in said)


def test_what_answers_a_question_is_none_of_its_hard_negatives(tmp_path, base):
    """Each question has three answers; few documents are drawn, but others are searched for the held-out questions."""
    documents = numbered(f"about {SUBJECTS[n % 20]} {'filler ' * (n // 20 + 1)}" for n in range(60))
    answers = [(f"q{n}", n % 20 + 20 * each) for n in range(40) for each in range(3)]
    asked = numbered((f"{SUBJECTS[n % 20]} {n}" for n in range(40)), "q")
    beir_folder(tmp_path, documents, asked, train=answers[:60], dev=answers[60:])
    settings = FECTEK.settings({"backbone": str(base), "dev": 20, "documents": 10})
    ahead = set_up(str(tmp_path), settings, tmp_path, lambda _: None)
    assert (len(ahead.places), ahead.trained_on) == (60, 10)
    assert 0 < len(ahead.train) <= 10
    mined = ahead.hard_negatives(25)
    for question, answers, wrong in zip(ahead.train.questions, ahead.train.known, mined, strict=True):
        subject = question.split()[0]
        assert [ahead.texts[place].split()[1] for place in answers] == [subject] * 3
        assert subject not in {ahead.texts[place].split()[1] for place in wrong}


def test_no_view_of_a_document_is_a_hard_negative_of_another(made):
    """Nor does one stand in the way of another where held-out questions are searched."""
    given = {"documents": 400, "views": "title,sentence,span", "top_layers": -1, "hidden": 16, "teacher": "none"}
    ahead, _ = made("granada mortar number {}", **given)
    settings = FECTEK.settings({"backbone": str(ahead.backbone), "training_length": 64, "max_length": 64, **given})
    model = FECTEK.build(settings, ahead.backbone)
    part = DataPart("made", ahead, settings)
    material, development = (hook(part, model, lambda _: None) for hook in (FECTEK.inputs, FECTEK.held_out))
    of = [ahead.examples.ids[place].partition("#")[0] for place in ahead.places]
    assert sum(map(len, material.negatives)) > 0
    for relevant, wrong in zip(ahead.train.relevant, material.negatives, strict=True):
        assert {of[place] for place in relevant}.isdisjoint(of[place] for place in wrong)
    gains = [dict.fromkeys(known, 1) for known in ahead.dev.relevant]
    found = [ahead.bm25_index.search(question, 10) for question in ahead.bm25_weights(ahead.dev.questions, "query")]
    assert development.bm25().mean() > ranking_measure(found, gains).mean()


def test_what_is_held_out_is_not_trained_on_under_another_id(tmp_path, base):
    documents = numbered(f"granada {n} {'filler ' * (n % 9 + 1)}" for n in range(30))
    # Another case and other blanks are no other question.
    asked = numbered((form.format(n) for form in ("number {}", "Number  {}") for n in range(30)), "q")
    settings, said = FECTEK.settings({"backbone": str(base), "dev": 30}), []

    def ahead(held):
        beir_folder(tmp_path, documents, asked, train=[(f"q{n}", n) for n in range(30)], dev=[(f"q{30 + n}", n) for n in held])
        return set_up(str(tmp_path), settings, tmp_path, said.append)

    found = ahead(range(20, 30))
    assert sorted(found.train.questions) == sorted(f"number {n}" for n in range(20))
    assert len(found.dev) == 10
    assert any(line.startswith("10 training questions left out") for line in said)
    with pytest.raises(InputError, match="is also held out"):
        ahead(range(30))


@pytest.fixture
def sets(tmp_path):
    """A function: a corpus in a folder of its own, with judgements where questions are given."""

    def write(name, texts, questions=(), key="text"):
        documents, rows = [{key: text} for text in texts], [(f"q{place}", place) for place in range(len(questions))]
        return beir_folder(tmp_path / name, numbered(documents), numbered(questions, "q"), train=rows)

    return write


TEXTS = [f"the mortar of granada number {place} is old. So is the house of granada {place * 7 % 50}." for place in range(60)]


def test_each_data_set_beside_says_for_itself_where_its_questions_come_from(sets, base, tmp_path):
    """What is said of the first one's files does not hold for the others; how much a teacher says hangs on the questions."""
    own = sets("own", TEXTS, key="about") / "corpus.jsonl"
    judged, bare = sets("judged", TEXTS, [f"number {place}" for place in range(40)]), sets("bare", TEXTS) / "corpus.jsonl"
    given = {"backbone": str(base), "max_length": 64, "training_length": 64, "dev": 5, "teacher": "minmax"}
    settings = FECTEK.settings({**given, "pairs": "corpus", "beside": f"{judged}, {bare}"}, {"text_fields": ("about",)})
    said = []
    every = parts(str(own), settings, tmp_path, said.append)
    assert [part.setup.examples.origin for part in every] == ["corpus", "qrels", "corpus"]
    assert [part.settings.teacher_weight for part in every] == [9.0, 1.0, 9.0]
    assert any(line.startswith(f"{judged}: 60 documents") for line in said)

    model = FECTEK.build(every[0].settings, every[0].setup.backbone)
    materials = [FECTEK.inputs(part, model, said.append) for part in every[:2]]
    assert [material.distilled.weight for material in materials] == [9.0, 1.0]
    sampler = Fit(FECTEK, model, materials, every[0].settings).batches()
    assert 80 < sum(sampler.draw(number).inputs is materials[1] for number in range(200)) < 120


def test_no_data_set_trains_on_what_another_one_holds_out(sets, base, tmp_path):
    judged = sets("judged", TEXTS, [f"number {place}" for place in range(40)])
    titled = [{"title": f"number {place}", "text": text} for place, text in enumerate(TEXTS)]
    bare = beir_folder(tmp_path / "titled", numbered(titled), {}) / "corpus.jsonl"
    other = sets("other", TEXTS, [f"Number {39 - place}" for place in range(40)])
    settings = FECTEK.settings({"backbone": str(base), "dev": 5, "beside": f"{other}, {bare}"})
    said = []
    every = parts(str(judged), settings, tmp_path, said.append)
    held_out = {question.casefold() for part in every for question in part.setup.dev.questions}
    for part in every[:2]:
        assert held_out.isdisjoint(map(str.casefold, part.setup.train.questions))
        assert any(line.startswith(f"{part.name}: ") and line.endswith("among the held-out questions") for line in said)
    judged_dev = {question.casefold() for part in every[:2] for question in part.setup.dev.questions}
    assert judged_dev.isdisjoint(map(str.casefold, every[2].setup.train.questions))  # titles: some were held out


def test_terms_of_another_kind_are_not_learned_beside(sets, base, tmp_path):
    own = sets("own", TEXTS) / "corpus.jsonl"
    chinese = sets("chinese", [f"研究生命起源的问题。第{place}个问题的答案在这里。" for place in range(60)]) / "corpus.jsonl"
    settings = FECTEK.settings({"backbone": str(base), "beside": str(chinese)})
    with pytest.raises(UsageError, match="cut into other terms"):
        parts(str(own), settings, tmp_path, lambda _: None)


def test_epochs_become_steps_when_the_questions_are_counted(sets, base, tmp_path):
    judged, beside = (sets(name, TEXTS, [f"number {place}" for place in range(40)]) for name in ("judged", "beside"))
    given = {"backbone": str(base), "dev": 5, "batch": 4, "epochs": 1.5}
    for more, share in (({}, 1.0), ({"beside": str(beside)}, 0.5)):
        (first, *_) = parts(str(judged), FECTEK.settings({**given, **more}), tmp_path, lambda _: None)
        assert first.settings.steps == -(-1.5 * len(first.setup.train) // (4 * share))


# -- A backbone is a folder whose vectors termweave makes of its states as it was trained to

NORMAL = {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False, "include_prompt": True}
FIRST = {"pooling_mode_mean_tokens": False, "pooling_mode_cls_token": True}


@pytest.mark.parametrize(
    ("pooling", "settings", "more", "status", "said"),
    [
        (NORMAL, (), (), 0, ""),
        (FIRST, (), (), 0, ""),
        ({"pooling_mode": "max"}, ("outputs=weights",), (), 0, ""),  # weights alone need no vectors
        ({"pooling_mode": ["mean", "max"]}, (), (), 2, "was trained with mean+max pooling"),
        ({"pooling_mode": "mean"}, (), [("2_Dense", "Dense")], 2, "dense layers behind its pooling"),
        ({"pooling_mode": "mean", "include_prompt": False}, (), (), 2, "prompts that its pooling leaves out"),
        ("{", (), (), 1, "1_Pooling"),
    ],
)
def test_vectors_that_termweave_makes_and_others(folder, base, tmp_path, pooling, settings, more, status, said):
    pooled = describe_pooling(shutil.copytree(base, tmp_path / "pooled"), pooling, {"query": "about: "}, more)
    sets = ("max_length=64", "training_length=64", "dev=5", *settings)
    told = train(folder, pooled, tmp_path / "out", "--plan", settings=sets, status=status, json_too=False)
    assert said in told
    assert ("--set outputs=weights" in told) == (status == 2)


@pytest.mark.parametrize(("family", "most"), [("Bert", 66), ("MPNet", 64), ("Roberta", 64)])
def test_a_backbone_counts_so_far_and_no_further(family, most):
    """MPNet and RoBERTa give the padding a position and count from behind it."""
    sizes = {"vocab_size": 50, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = getattr(transformers, f"{family}Config")(**sizes, max_position_embeddings=66, pad_token_id=1)
    backbone = getattr(transformers, f"{family}Model")(config, add_pooling_layer=False).eval()
    model = JointModel(backbone, HeadShape(layer=1, hidden=4))
    assert backbone_model.length(model.backbone, 1000) == most
    assert backbone_model.length(model.backbone, 20) == 20
    backbone(torch.full((1, most), 7))
    with pytest.raises((IndexError, RuntimeError)):
        backbone(torch.full((1, most + 1), 7))


@pytest.mark.parametrize(
    ("file", "holds", "said"),
    [
        ("config.json", b'{"hid', "describes no model of transformers"),
        ("config.json", b"[]", "describes no model of transformers"),
        ("model.safetensors", b"x" * 500, "are damaged"),
        ("model.safetensors", save({"embeddings.odd": torch.zeros(3)}), r"lacks \d+ tensors that config.json describes"),
    ],
)
def test_a_damaged_backbone_is_named(base, tmp_path, file, holds, said):
    copy = shutil.copytree(base, tmp_path / "damaged")
    (copy / file).write_bytes(holds)
    with pytest.raises(ModelError, match=said) as refused:
        load_backbone(copy)
    assert str(copy) in refused.value.message
