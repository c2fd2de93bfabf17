"""The score that a server should give: the exact dot product of the weights of a query and of a document; statistics of terms."""

import math

from termweave.statistics import StatisticsCounter


def dot(query, document):
    """The dot product of both weights."""
    weights = dict(zip(document.terms, document.weights.tolist(), strict=True))
    return math.fsum(weight * weights.get(term, 0.0) for term, weight in zip(query.terms, query.weights.tolist(), strict=True))


def counted(analysis, texts):
    """The statistics of texts, each the list of its terms."""
    counter = StatisticsCounter(analysis)
    for terms in texts:
        counter.add(terms)
    return counter.result()
