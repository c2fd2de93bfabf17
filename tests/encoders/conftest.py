"""The shipped model, opened once; statistics of a small corpus."""

import pytest

from termweave.encoders import load
from termweave.statistics import StatisticsCounter

CORPUS = [
    "The cat sat on the mat.",
    "A dog barked at the cat; the cat ran.",
    "Photosynthesis happens in the chloroplasts of plant cells.",
    "os.path joins path components with the right separator.",
    "The mitochondrion is the powerhouse of the cell.",
    "",
    "Zürich is a city in Switzerland, and so is Genève.",
]


@pytest.fixture(scope="session")
def encoder():
    return load(threads=2)


@pytest.fixture(scope="session")
def statistics(encoder):
    counter = StatisticsCounter(encoder.analysis)
    for terms in encoder.analyse(CORPUS):
        counter.add(terms)
    return counter.result()


@pytest.fixture(scope="session")
def analysis(encoder):
    return encoder._analysis()
