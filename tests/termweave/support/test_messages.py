"""Words that messages share."""

import pytest

from termweave.support import messages as words


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1 kB"),
        (64 << 20, "67.1 MB"),
        (99_940_000, "99.9 MB"),
        (1_900_000_000, "1.9 GB"),
        (2.5e15, "2,500 TB"),
    ],
)
def test_a_size_is_decimal(count, said):
    assert words.sized(count) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.2, "0 s"), (89, "89 s"), (90, "1.5 minutes"), (5400, "1.5 hours"), (73_895, "20.5 hours"), (172_800, "2.0 days")],
)
def test_a_duration_is_in_the_unit_that_people_would_say(seconds, said):
    assert words.duration(seconds) == said
