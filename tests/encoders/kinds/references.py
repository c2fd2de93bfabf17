"""The largest difference between what a folder gives here and what sentence-transformers computes with the same folder."""

import numpy as np
import torch

from termweave.encoders import DenseEncoder, Ranker, TermWeighter

QUERIES = ("the cat sat where", "", "Zürich", " ".join(["a long query of many words"] * 12))


def _sides(encoder, reference, texts):
    """Documents and queries: what we give, and what the reference gives."""
    yield encoder.encode(texts, kind="document"), reference.encode_document(texts)
    yield encoder.encode(texts, kind="query"), reference.encode_query(texts)


def of_vectors(path, reference, texts):
    sides = _sides(DenseEncoder.load(path), reference, texts)
    return max(float(np.abs(given - rows / np.linalg.norm(rows, axis=1, keepdims=True)).max()) for given, rows in sides)


def logits(reference, query, texts):
    """What CrossEncoder gives before its activation; of two labels the difference."""
    scores = reference.predict([(query, text) for text in texts], activation_fn=torch.nn.Identity())
    return scores if scores.ndim == 1 else scores[:, 1] - scores[:, 0]


def of_scores(path, reference, texts):
    scorer = Ranker.load(path)
    assert np.ptp(scorer.score(QUERIES[0], texts)) > 1e-2  # the texts are told apart
    return max(float(np.abs(scorer.score(query, texts) - logits(reference, query, texts)).max()) for query in QUERIES)


def terms(reference, vectors):
    """Term -> weight above 0 of each row of a SparseEncoder; special tokens are no terms."""
    vocabulary = {number: token for token, number in reference.tokenizer.get_vocab().items()}
    special = set(reference.tokenizer.all_special_ids)
    rows = vectors.to_dense().numpy()
    return [{vocabulary[at]: float(row[at]) for at in np.flatnonzero(row > 0) if at not in special} for row in rows]


def of_weights(path, reference, texts):
    difference = 0.0
    for given, vectors in _sides(TermWeighter.load(path), reference, texts):
        for weights, expected in zip((each.as_dict() for each in given), terms(reference, vectors), strict=True):
            either = weights.keys() | expected.keys()
            difference = max([difference, *(abs(weights.get(term, 0.0) - expected.get(term, 0.0)) for term in either)])
    return difference
