"""What `preset=paper` trains, from the texts to the loss, against plain numpy written from the papers' equations.

A torch backbone gives the states H. All that follows is computed twice: by the objective that is trained, and here.
"""

import string

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs the extra [train]")

from termweave.encoders.analysis.word_pieces import PieceTokenizer  # noqa: E402 - after the check
from termweave.encoders.term_weighting.bm25_anchor import BM25  # noqa: E402
from termweave.training import families  # noqa: E402
from termweave.training.data.pairs import Pairs, count  # noqa: E402
from termweave.training.data.sampler import BatchSampler  # noqa: E402
from termweave.training.methods import base as methods  # noqa: E402
from termweave.training.setup import analysis_of  # noqa: E402
from termweave.training.term_weights.inputs import TermWeightInputs, prepare  # noqa: E402

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


def weights_objective(base, method, **given):
    """An objective over these texts whose heads are not zero, one batch of all questions, and the statistics of the documents."""
    method = methods.get(method)
    settings = method.settings(
        {"preset": "paper", "batch": len(QUESTIONS), "drawn": 1, "max_length": 64, "training_length": 64, **given}
    )
    family = families.get("term_weights")
    torch.manual_seed(5)
    model = family.build_model(method, settings, base)
    for parameter in model.heads.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    tokenizer = PieceTokenizer(base / "tokenizer.json")
    analysis = analysis_of(settings["terms"], DOCUMENTS, tokenizer)
    statistics = count([DOCUMENTS], analysis)
    common = (analysis, tokenizer, statistics, BM25())
    documents = prepare(DOCUMENTS, *common, "document", 64, method.form(settings))
    questions = prepare(QUESTIONS, *common, "query", 64, method.form(settings))
    pairs = Pairs(QUESTIONS, [frozenset({place}) for place in range(4)])
    hard = [np.array([place + 4], dtype=np.int64) for place in range(4)]
    inputs = [TermWeightInputs(1.0, pairs, documents, questions, None, None, hard, statistics)]
    objective = family.objective(method, model, inputs, settings).eval()
    return objective, BatchSampler(inputs, settings).draw(0)


class Reader:
    """Texts as a BERT reads them: tokens and states, one text at a time, so that nothing is padded."""

    def __init__(self, base, model):
        self.tokenizer, self.model = PieceTokenizer(base / "tokenizer.json").tokenizer, model

    def __call__(self, text):
        """The tokens of a text without [CLS] and [SEP], and the states of the last layer with both: float64 ``(n + 2, d)``."""
        encoding = self.tokenizer.encode(text, add_special_tokens=False)
        ids = [self.tokenizer.token_to_id(token) for token in ("[CLS]", *encoding.tokens, "[SEP]")]
        pairs = zip(encoding.tokens, encoding.offsets, strict=True)
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


def test_fectek_is_equations_1_to_8(base):
    objective, batch = weights_objective(base, "fectek")
    for parameter in objective.knowledge.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    head, projector = arrays(objective.heads.document), arrays(objective.knowledge["document"])
    read = Reader(base, objective.model)

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

    asked = [weights_and_chances(QUESTIONS[place]) for place in batch.questions.tolist()]
    given = [weights_and_chances(DOCUMENTS[place]) for place in batch.documents.tolist()]
    text_loss = []
    for row, question in enumerate(asked):
        own = [place for place, owner in enumerate(batch.owner.tolist()) if owner == row]  # the right answer is the first
        powers = np.exp([similarity(question, given[place]) for place in own])
        text_loss.append(-np.log(powers[0] / powers.sum()))  # Eq. 4
    pairs = list(zip(asked, given[: len(asked)], strict=True))
    term_loss = np.mean([cross_entropy(x, y) for x, y in pairs]) + np.mean([cross_entropy(y, x) for x, y in pairs])  # Eq. 7
    with torch.no_grad():
        parts = objective(batch)
    assert float(parts["text"]) == pytest.approx(np.mean(text_loss), abs=1e-5)
    assert float(parts["term"]) == pytest.approx(term_loss, abs=1e-5)
    assert float(parts["loss"]) == pytest.approx(np.mean(text_loss) + term_loss, abs=1e-5)  # Eq. 8
    pooled = sum(-np.log(p if any(token == other for other, *_ in y) else 1 - p) for x, y in pairs for token, _, p in x)
    assert np.mean([cross_entropy(x, y) for x, y in pairs]) != pytest.approx(pooled / sum(map(len, asked)), abs=1e-3)
