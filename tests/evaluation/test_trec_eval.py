"""Our figures are trec_eval's, on every query of sets with one and many right answers, with grades, and of several languages."""

import math
import warnings

import numpy as np
import pytest

from termweave import corpora
from termweave.evaluation import per_query
from termweave.evaluation.measures import MEASURES
from termweave.records import Run

#: Data set, with the split whose judgements are read.
SETS = (
    *(
        "banking77:test",
        "cmrc2018:test",
        "cranfield:test",
        "medquad:test",
        "movies:dev",
        "nfcorpus:test",
        "trec-dl-2019-2020:test",
    ),
    "twitter-airlines:test",
)


def ranking(random, grades, strangers):
    """Some of the judged documents among others, in any order, a few with equal scores; now and then nothing."""
    documents = [each for each in grades if random.random() < 0.8] + [f"other {n}" for n in range(random.integers(0, strangers))]
    random.shuffle(documents)
    scores = np.round(np.sort(random.uniform(-5, 30, len(documents)))[::-1], int(random.integers(0, 6)))
    return dict(zip(documents, scores.tolist(), strict=True))


def by_hand(documents, grades, relevant_from):
    """The definitions as they are printed: gains are grades, discounts log2(rank + 1)."""
    gains = [max(0, grades.get(document, 0)) for document in documents[:10]]
    ideal = sorted((max(0, grade) for grade in grades.values()), reverse=True)[:10]
    best = sum(gain / math.log2(rank + 1) for rank, gain in enumerate(ideal, 1))
    found = [rank for rank, document in enumerate(documents, 1) if grades.get(document, 0) >= relevant_from]
    relevant = sum(grade >= relevant_from for grade in grades.values())
    return {
        "nDCG@10": sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, 1)) / best if best else 0.0,
        "MRR@10": 1 / found[0] if found and found[0] <= 10 else 0.0,
        "recall@100": sum(rank <= 100 for rank in found) / relevant if relevant else 0.0,
    }


@pytest.mark.parametrize("name", SETS)
def test_every_query_of_a_set_has_trec_evals_figures(name, shared):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pytrec_eval

    dataset = corpora.open_dataset(str(shared / "data" / name))
    qrels, level = dataset.qrels(), dataset.relevant_from
    random = np.random.default_rng(len(name))
    run = {query: ranking(random, grades, 130 if len(qrels) < 1500 else 20) for query, grades in qrels.items()}
    queries = list(qrels)
    ours = per_query(Run("x", run), qrels, queries, relevant_from=level)
    # trec_eval orders equal scores by id and keeps float32; what it is shown here is the order, as scores it can tell apart.
    shown = {query: {document: -rank for rank, document in enumerate(scores)} for query, scores in run.items() if scores}
    cut = {query: dict(list(scores.items())[:10]) for query, scores in shown.items()}
    graded = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut.10"}).evaluate(shown)
    binary = pytrec_eval.RelevanceEvaluator(qrels, {"recall.100"}, relevance_level=level).evaluate(shown)
    first = pytrec_eval.RelevanceEvaluator(qrels, {"recip_rank"}, relevance_level=level).evaluate(cut)
    theirs = (("nDCG@10", graded, "ndcg_cut_10"), ("MRR@10", first, "recip_rank"), ("recall@100", binary, "recall_100"))
    for measure, found, key in theirs:
        np.testing.assert_allclose(ours[measure], [found.get(query, {}).get(key, 0.0) for query in queries], atol=1e-9)
    slow = [by_hand(list(run[query]), qrels[query], level) for query in queries]
    for measure in MEASURES:
        np.testing.assert_allclose(ours[measure], [each[measure] for each in slow], atol=1e-9)
