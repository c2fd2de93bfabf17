"""What `preset=paper` trains, from the texts to the loss, against plain numpy written from the papers' equations.

A torch backbone gives the states H. All that follows is computed twice: by the objective that is trained, and here.
"""

import json
import shutil
import string
from dataclasses import asdict
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from termweave.encoders.analysis.analyses import PieceTerms
from termweave.encoders.analysis.word_pieces import ModelTokenizer, PieceTokenizer
from termweave.encoders.manifest import Manifest
from termweave.encoders.models import joint_model
from termweave.encoders.onnx.export import export
from termweave.encoders.term_weighting import BM25
from termweave.errors import UsageError
from termweave.training.data.pairs import Pairs, count
from termweave.training.data.sampler import BatchSampler
from termweave.training.dense import term_label_weights
from termweave.training.dense.model import DenseInputs, tokenise
from termweave.training.methods import base as methods
from termweave.training.methods import le_bs
from termweave.training.mixture import DataPart
from termweave.training.setup import analysis_of, set_up
from termweave.training.term_weights.model import TermWeightInputs, prepare
from termweave.training.trainer.trainer import Fit
from tests.beir_folder import beir_folder
from tests.training.conftest import small_backbone

#: Texts of unequal lengths, with words that repeat, words of several word-pieces, stop words and punctuation.
QUESTIONS = ["granada about, granada?", "the morino", "what is telust vexert xy about telust", "lumada"]
DOCUMENTS = [
    "granada, about the granada filler is padmon granada.",
    "morino, xy",
    "telust about the vexert; comers othing telust is xyz",
    "lumada about lumada othing and filler (padmon) comish the granada",
    "granino the about",
    "morada is, morino: vexert",
    "the telust",
    "padmon othing about lumada",
]

#: Chinese texts, each a question and its own answer, with words of one to four characters.
CHINESE = ["研究生命起源的科学家在北京？", "北京大学的历史很长，大学在北京。", "上海音乐和历史，历史", "计算机和火车与河流。"]


def weights_objective(base, method, length=64, texts=(QUESTIONS, DOCUMENTS), **given):
    """An objective over these texts whose heads are not zero, one batch of all questions, and the statistics of the documents."""
    method = methods.get(method)
    sizes = {"batch": len(texts[0]), "max_length": length, "training_length": length}
    settings = method.settings({"preset": "paper", **sizes, **given})
    torch.manual_seed(0)
    model = method.build(settings, base)
    for parameter in model.heads.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    tokenizer = PieceTokenizer(base / "tokenizer.json")
    analysis = analysis_of(settings.terms, texts[1], tokenizer)
    statistics = count([texts[1]], analysis)
    common = (analysis, tokenizer, statistics, BM25())
    documents = prepare(texts[1], *common, "document", length, settings.form())
    questions = prepare(texts[0], *common, "query", length, settings.form())
    pairs = Pairs(texts[0], [frozenset({place}) for place in range(4)])
    hard = [np.array([place + 4], dtype=np.int64) for place in range(4)]
    inputs = [TermWeightInputs(1.0, pairs, documents, questions, hard, statistics)]
    objective = Fit(method, model, inputs, settings).eval()
    return objective, BatchSampler(method, inputs, settings).draw(0)


def fit_of(name, base, collection, tmp_path, change, **given):
    """The fit of a method without dropout, its set-up and its inputs; `change` is done to the model before inputs are made."""
    method = methods.get(name)
    settings = method.settings({"backbone": str(base), **given})
    setup = set_up(str(collection), settings, tmp_path, lambda _: None)
    model = method.build(settings, base).eval()
    torch.manual_seed(0)
    with torch.no_grad():
        change(model)
    inputs = method.inputs(DataPart("toy", setup, settings), model, lambda _: None)
    return Fit(method, model, [inputs], settings).eval(), setup, inputs


def unlike(tower):
    """Give vectors unequal lengths and directions, as two encoders have after a step."""
    for module in tower.modules():
        if isinstance(module, torch.nn.LayerNorm):
            torch.nn.init.normal_(module.weight, 1.0, 0.5)


def mean_state(tower, ids):
    """The mean of the last states of one text, which is not padded: float64 ``(d,)``."""
    with torch.no_grad():
        states = tower(input_ids=torch.tensor([ids.tolist()])).last_hidden_state[0]
    return states.numpy().astype(np.float64).mean(axis=0)


class Reader:
    """Texts as a BERT reads them: tokens and states, one text at a time, so that nothing is padded."""

    def __init__(self, base, model, length=64):
        self.tokenizer, self.model, self.length = PieceTokenizer(base / "tokenizer.json").tokenizer, model, length

    def __call__(self, text):
        """The first tokens of a text without [CLS] and [SEP], and the states of the last layer with both: float64 ``(n + 2, d)``."""
        encoding = self.tokenizer.encode(text, add_special_tokens=False)
        read = encoding.tokens[: self.length - 2]
        ids = [self.tokenizer.token_to_id(token) for token in ("[CLS]", *read, "[SEP]")]
        pairs = zip(read, encoding.offsets, strict=False)
        tokens = [text[start:end] if token == "[UNK]" else token for token, (start, end) in pairs]
        with torch.no_grad():
            states = self.model.backbone(input_ids=torch.tensor([ids])).last_hidden_state[0]
        return tokens, states.numpy().astype(np.float64)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def arrays(module):
    return {name: parameter.detach().numpy().astype(np.float64) for name, parameter in module.named_parameters()}


def is_term(token):
    return not set(token) <= set(string.punctuation)


@pytest.mark.parametrize("length", [64, 8], ids=["whole", "cut"])
def test_fectek_is_equations_1_to_8(base, length):
    objective, batch = weights_objective(base, "fectek", length, drawn=1)
    for parameter in objective.knowledge.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    head, projector = arrays(objective.heads.document), arrays(objective.knowledge["document"])
    read = Reader(base, objective.model, length)

    def weights_and_chances(text):
        tokens, h = read(text)
        mean = h.mean(axis=0)
        narrow = np.maximum(head["gate.narrow.weight"] @ mean + head["gate.narrow.bias"], 0)
        f = h * sigmoid(head["gate.wide.weight"] @ narrow + head["gate.wide.bias"])  # Eq. 2
        w = np.log(1 + np.maximum(f @ head["outer.weight"][0] + head["outer.bias"][0], 0))  # Eq. 1
        p = sigmoid(h @ projector["weight"][0] + projector["bias"][0])  # Eq. 3
        kept = [place for place, token in enumerate(tokens) if is_term(token)]
        return [(tokens[place], w[place + 1], p[place + 1]) for place in kept]

    def similarity(question, document):
        best = {}
        for token, w, _ in document:
            best[token] = max(w, best.get(token, 0.0))
        return sum(w * best.get(token, 0.0) for token, w, _ in question)

    def cross_entropy(text, other):
        shared = {token for token, *_ in other}
        return -np.mean([np.log(p if token in shared else 1 - p) for token, _, p in text])  # Eq. 5 and 6

    asked = [weights_and_chances(QUESTIONS[place]) for place in batch.drawn.questions.tolist()]
    given = [weights_and_chances(DOCUMENTS[place]) for place in batch.drawn.documents.tolist()]
    text_loss = []
    for row, question in enumerate(asked):
        own = [place for place, owner in enumerate(batch.drawn.owner.tolist()) if owner == row]  # the right answer is the first
        powers = np.exp([similarity(question, given[place]) for place in own])
        text_loss.append(-np.log(powers[0] / powers.sum()))  # Eq. 4
    pairs = list(zip(asked, given[: len(asked)], strict=True))
    term_loss = np.mean([cross_entropy(x, y) for x, y in pairs]) + np.mean([cross_entropy(y, x) for x, y in pairs])  # Eq. 7
    with torch.no_grad():
        parts = objective(batch)
    assert float(parts["text"]) == pytest.approx(np.mean(text_loss), abs=1e-5)
    assert float(parts["term"]) == pytest.approx(term_loss, abs=1e-5)
    assert float(parts["loss"]) == pytest.approx(np.mean(text_loss) + term_loss, abs=1e-5)  # Eq. 8


def tokens_of(read, text):
    return [token for token in read(text)[0] if is_term(token)]


def test_bert_scorer_is_equations_1_to_4(base):
    objective, batch = weights_objective(base, "bert-scorer")
    head, read = arrays(objective.heads.document), Reader(base, objective.model)
    corpus = [tokens_of(read, text) for text in DOCUMENTS]
    errors = []
    for question, document in zip(batch.drawn.questions.tolist(), batch.drawn.documents.tolist(), strict=False):
        tokens, h = read(QUESTIONS[question])
        y = corpus[document]
        for place, w in enumerate(tokens):
            if is_term(w):
                frequency = sum(w in other for other in corpus)
                t = y.count(w) / len(y) * np.log(len(corpus) / (frequency + 1))  # Eq. 1
                errors.append((t - (h[place + 1] @ head["outer.weight"][0] + head["outer.bias"][0])) ** 2)  # Eq. 3, 4
    with torch.no_grad():
        assert float(objective(batch)["loss"]) == pytest.approx(np.mean(errors), rel=1e-5)
    assert "##h" in tokens_of(read, "the")  # a stop word of several word-pieces is weighed, too


@pytest.fixture
def characters(tmp_path):
    """A BERT whose vocabulary is the characters of the Chinese texts."""
    return small_backbone(tmp_path, sorted(set("".join(CHINESE).replace(" ", ""))))


def test_bert_scorer_in_chinese_is_section_3_2_1(characters):
    """A word's target is shared by its characters, and each gets the embedding of its place in the word."""
    rjieba = pytest.importorskip("rjieba")
    objective, batch = weights_objective(characters, "bert-scorer", texts=(CHINESE, CHINESE), preset="paper-chinese")
    model, head, errors = objective.model, arrays(objective.heads.document), []
    corpus = [[word for word in rjieba.cut(text) if word not in "，。？"] for text in CHINESE]
    vocabulary = PieceTokenizer(characters / "tokenizer.json").tokenizer
    for question, document in zip(batch.drawn.questions.tolist(), batch.drawn.documents.tolist(), strict=False):
        words, y = list(rjieba.cut(CHINESE[question])), corpus[document]
        ids = [vocabulary.token_to_id(each) for each in ("[CLS]", *"".join(words), "[SEP]")]
        tags = [tag for word in words for tag in ([4] if len(word) == 1 else [1, *[2] * (len(word) - 2), 3])]  # S, or B M E
        embedded = model.backbone.get_input_embeddings()(torch.tensor([ids])).detach()
        embedded[0, 1:-1] += model.heads.tags.weight.detach()[tags]
        with torch.no_grad():
            h = model.backbone(inputs_embeds=embedded).last_hidden_state[0, 1:-1].numpy().astype(np.float64)
        predicted = iter(h @ head["outer.weight"][0] + head["outer.bias"][0])
        for word in words:
            frequency = sum(word in other for other in corpus)
            t = y.count(word) / len(y) * np.log(len(corpus) / (frequency + 1))
            own = [next(predicted) for _ in word]
            errors += [(t / len(word) - each) ** 2 for each in own if word not in "，。？"]
    with torch.no_grad():
        assert float(objective(batch)["loss"]) == pytest.approx(np.mean(errors), rel=1e-5)


def label_distribution(x, y):
    """Eq. 5 of two texts, each a list of tokens with weights; a token that repeats has its largest weight."""
    x, y = ({w: max(t for other, t in text if other == w) for w, _ in text} for text in (x, y))
    shared = [w for w in x if w in y and x[w] >= 0 and y[w] >= 0]
    return np.tanh(sum(y[w] * x[w] for w in shared) / len(shared)) if shared else 0.0


@pytest.fixture
def scorer(base, tmp_path):
    """A BERT-Scorer on word-pieces as an exported folder, and the weights that Eq. 3 gives to the tokens of a text."""
    method = methods.get("bert-scorer")
    settings = method.settings({"preset": "paper"})
    torch.manual_seed(0)
    model = method.build(settings, base)
    for parameter in model.heads.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    shutil.copytree(base, tmp_path / "scorer")
    anchor = {**asdict(settings.form()), "k1": 1.2, "b": 0.75}
    contents = Manifest("scorer", "anchored", ("weights",), "", 64, terms="piece", analysis=PieceTerms.id, anchor=anchor)
    joint_model.save(model, tmp_path / "scorer", contents)
    export(tmp_path / "scorer")
    head, read = arrays(model.heads.document), Reader(base, model)

    def weights(text):
        tokens, h = read(text)
        values = h[1:-1] @ head["outer.weight"][0] + head["outer.bias"][0]
        return [(token, value) for token, value in zip(tokens, values, strict=True) if is_term(token)]

    return tmp_path / "scorer", weights


@pytest.fixture
def collection(tmp_path):
    """These texts as a folder; each question is asked in three ways."""
    asked = [(way.format(text), n) for n, text in enumerate(QUESTIONS) for way in ("{}", "about {}", "{} padmon the padmon")]
    documents, queries = {f"d{n}": text for n, text in enumerate(DOCUMENTS)}, {f"q{n}": text for n, (text, _) in enumerate(asked)}
    rows = [(f"q{n}", f"d{document}") for n, (_, document) in enumerate(asked)]
    return beir_folder(tmp_path / "collection", documents, queries, train=rows)


def test_le_bs_is_equations_5_to_8_with_the_weights_of_a_scorer_on_word_pieces(base, scorer, collection, tmp_path):
    folder, weights = scorer
    method = methods.get("le-bs")
    settings = method.settings({"preset": "paper", "backbone": str(base), "scorer": str(folder), "alpha": 0.4, "batch": 3})
    setup = set_up(str(collection), settings, tmp_path, lambda _: None)
    context = SimpleNamespace(setup=setup, settings=settings, part=SimpleNamespace(name="toy"), say=lambda _: None)
    source = le_bs.LabelSource(*term_label_weights.scorer_weights(context))
    tokenizer = ModelTokenizer(base / "tokenizer.json", lower=False)
    documents, questions = (tokenise(tokenizer, texts, 64) for texts in (setup.texts, setup.train.questions))
    negatives = [np.array([7, 6])] * len(questions)
    inputs = DenseInputs(1.0, setup.train, negatives, questions, documents, source)
    model = method.build(settings, base)
    objective = Fit(method, model, [inputs], settings).eval()
    batch = objective.batches().draw(0)

    total, pairs = 0.0, batch.drawn.pairs()
    for (x, y), label in zip(pairs, batch.drawn.labels.tolist(), strict=True):
        u, v = (mean_state(model.backbone, texts.padded([row])[0][0]) for texts, row in ((questions, x), (documents, y)))
        f = (1 - u @ v / np.linalg.norm(u) / np.linalg.norm(v)) / 2  # Eq. 6
        d = label_distribution(weights(setup.train.questions[x]), weights(setup.texts[y]))  # Eq. 5
        assert label == float(y in setup.train.relevant[x])
        total += 0.4 * (f + d - 1) ** 2 + 0.6 * (f + label - 1) ** 2  # Eq. 7
    with torch.no_grad():
        assert float(objective(batch)["loss"]) == pytest.approx(total / len(pairs), abs=1e-5)  # Eq. 8, divided by the pairs
    for x, question in enumerate(setup.train.questions):
        for y, document in enumerate(setup.texts):
            slow = label_distribution(weights(question), weights(document))
            assert source.distributions([(x, y)], np.zeros(1))[0] == pytest.approx(slow, abs=1e-4), (question, document)


def test_a_scorer_of_another_vocabulary_is_refused(base, scorer, collection, tmp_path):
    other = shutil.copytree(base, tmp_path / "other")
    tokenizer = json.loads((base / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["another"] = len(tokenizer["model"]["vocab"])
    (other / "tokenizer.json").write_text(json.dumps(tokenizer))
    settings = methods.get("le-bs").settings({"backbone": str(other), "scorer": str(scorer[0])})
    setup = set_up(str(collection), settings, tmp_path, lambda _: None)
    with pytest.raises(UsageError, match="another vocabulary than the backbone other"):
        term_label_weights.scorer_folder(str(scorer[0]), setup)
    with pytest.raises(UsageError, match="is not a BERT-Scorer"):
        term_label_weights.scorer_folder(str(base), setup)


def reciprocal_similarity(x, k, k_exp, tau):
    """Geometric similarity and s_J of all elements of a context, Eq. 3 to 11; Eq. 5 with "at least two thirds"."""
    s, m = x @ x.T, len(x)
    columns = min(k + 1, m)
    lists = [sorted(range(m), key=lambda j, row=row: (-row[j], j))[:columns] for row in s]
    close = [row[: min(round(tau * columns) + 2, columns)] for row in lists]

    def reciprocal(i, lists):
        return {j for j in lists[i] if i in lists[j]}  # Eq. 4

    v = np.zeros((m, m))
    for i in range(m):
        first = reciprocal(i, lists)
        members = set(first)
        for other in (reciprocal(j, close) for j in first) if tau else ():
            if 3 * len(first & other) >= 2 * len(other):  # Eq. 5
                members |= other
        for j in members:
            v[i, j] = s[i, j]  # Eq. 7, with the similarity as weight
        v[i] /= v[i].sum() or 1.0
    v = np.array([v[row[:k_exp]].mean(axis=0) for row in lists])  # Eq. 8
    return s, np.array([[np.minimum(a, b).sum() / np.maximum(a, b).sum() for b in v] for a in v])  # Eq. 9 to 11


@pytest.mark.parametrize(
    ("preset", "given"),
    [
        ("paper", {"k": 4, "k_exp": 2}),
        ("cocondenser", {"k": 4, "tau": 0.2, "k_exp": 2, "keep_labels": 6, "evidence_weight": 0.05}),
    ],
    ids=["paper", "cocondenser"],
)
@pytest.mark.usefixtures("own_cache")
def test_coder_is_algorithm_1_with_inner_products_of_the_base_models_vectors(base, collection, tmp_path, preset, given):
    given = {"preset": preset, "batch": 5, "candidates": 6, **given}
    objective, setup, inputs = fit_of("coder", base, collection, tmp_path, unlike, **given)
    model, settings, batch = objective.model, objective.settings, objective.batches().draw(0)
    documents = np.stack([mean_state(model.backbone, inputs.documents.padded([n])[0][0]) for n in range(len(DOCUMENTS))])
    losses, expanded = [], []
    for row in batch.drawn.tolist():
        query = mean_state(model.query_backbone, inputs.questions.padded([row])[0][0])
        candidates = sorted(range(len(documents)), key=lambda c, query=query: -(query @ documents[c]))[:6]  # line 3
        judged = set(setup.train.relevant[row])
        if not judged & set(candidates):
            candidates[-1] = min(judged)
        relevant = [place + 1 for place, c in enumerate(candidates) if c in judged]
        s, s_j = reciprocal_similarity(np.stack([query, *documents[candidates]]), settings.k, settings.k_exp, settings.tau)
        mixed = settings.evidence_weight * s + (1 - settings.evidence_weight) * s_j
        r = np.mean([mixed[probe, 1:] for probe in relevant], axis=0)  # line 5
        spread = np.ptp(r) if settings.normalisation == "max-min" else r.std()
        powers = (r - r.min()) / spread  # Eq. 13, Eq. 14
        best = np.argsort(-r)[: settings.keep_labels]
        powers = [
            settings.boost * power if place + 1 in relevant else power if place in best else -np.inf
            for place, power in enumerate(powers)
        ]  # line 6
        target = np.exp(powers) / np.exp(powers).sum()
        scores = query @ documents[candidates].T
        predicted = scores - scores.max() - np.log(np.exp(scores - scores.max()).sum())
        losses.append(sum(t * (np.log(t) - p) for t, p in zip(target, predicted, strict=True) if t > 0))  # line 9, T = 1
        expanded.append(s.max() > 2)  # not of length 1
    assert all(expanded)
    with torch.no_grad():
        assert float(objective(batch)["loss"]) == pytest.approx(np.mean(losses), rel=2e-4)


@pytest.mark.usefixtures("own_cache")
def test_dtr_is_equations_4_1_to_4_4_with_two_encoders(base, collection, tmp_path):
    given = {"preset": "paper", "batch": 4, "weights": "1,0.5,0.25,0.125"}
    objective, setup, inputs = fit_of("dtr", base, collection, tmp_path, lambda model: unlike(model.query_backbone), **given)
    model, batch = objective.model, objective.batches().draw(1)

    def unit(ids, tower):
        vector = mean_state(tower, ids)
        return vector / np.linalg.norm(vector)

    label = {query: min(setup.train.relevant[query]) for query in batch.drawn.queries.tolist()}
    assert len(set(label.values())) < len(label)  # two queries of one template: Eq. 4.4 differs from a cross-entropy
    q = [(unit(inputs.questions.padded([each])[0][0], model.query_backbone), own) for each, own in label.items()]
    t = [(unit(inputs.documents.padded([each])[0][0], model.backbone), each) for each in batch.drawn.templates.tolist()]

    def term(a, b):
        total = 0.0
        for x, own in a:
            positives = [np.exp(x @ y) for y, other in b if other == own]  # Eq. 4.1: s is a cosine, without a factor
            negatives = sum(np.exp(x @ y) for y, other in b if other != own)
            total += np.mean([-np.log(each / (each + negatives)) for each in positives]) if positives else 0.0
        return total / len(a)

    with torch.no_grad():
        found = float(objective(batch)["loss"])
    assert found == pytest.approx(term(q, t) + 0.5 * term(q, q) + 0.25 * term(t, t) + 0.125 * term(t, q), abs=1e-5)  # Eq. 4.3


@pytest.mark.parametrize("variant", ["v3", "v4"])
@pytest.mark.usefixtures("own_cache")
def test_sir_is_equations_1_to_9_with_one_model_for_all_levels(complete, collection, tmp_path, variant):
    given = {"blocks": "6,4,2", "batch": 3, "candidates": 8, "max_length": 64, "training_length": 64, "candidates_from": "bm25"}

    def apart(model):  # scores apart from each other
        torch.nn.init.normal_(model.head_layers()[-1].weight, std=2.0)

    objective, setup, _ = fit_of("sir", complete, collection, tmp_path, apart, preset="paper", variant=variant, **given)
    model, batch = objective.model, objective.batches().draw(0)
    tokenizer = PieceTokenizer(complete / "tokenizer.json").tokenizer

    def score(question, document):
        pair = tokenizer.encode(question, document)
        ids, types = torch.tensor([[pair.ids], [pair.type_ids]])
        with torch.no_grad():
            return float(model.classifier(input_ids=ids, token_type_ids=types).logits)

    def softmax(values):
        powers = np.exp(np.array(values) - max(values))
        return powers / powers.sum()

    def block_loss(p):
        return -np.log(p[0]) - np.log(1 - p[1:]).sum()  # Eq. 1

    losses = []
    for row, question in enumerate(batch.drawn.questions.tolist()):
        level = [each for each in batch.drawn.documents[row].tolist() if each >= 0]
        assert level[0] in setup.train.relevant[question]
        scores = {each: score(setup.train.questions[question], setup.texts[each]) for each in level}
        chain, own = dict.fromkeys(level, 1.0), []
        for size in (6, 4, 2):
            level = [level[0], *sorted(level[1:], key=lambda each: -scores[each])[: size - 1]]  # Eq. 4
            p = softmax([scores[each] for each in level])  # Eq. 2
            chain = {each: chain[each] * share for each, share in zip(level, p, strict=True)}
            own.append(block_loss(p if variant == "v3" else softmax([chain[each] for each in level])))  # Eq. 7, 8
        losses.append(own[0] + own[-1] if variant == "v3" else sum(own))  # Eq. 5, 9
    with torch.no_grad():
        assert float(objective(batch)["loss"]) == pytest.approx(np.mean(losses), abs=1e-4)
