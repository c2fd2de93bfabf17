"""A small backbone whose tokeniser joins pairs."""

import pytest

from tests.training.conftest import with_special_tokens


@pytest.fixture(scope="module")
def complete(base, tmp_path_factory):
    """The small backbone with special tokens between the texts of a pair."""
    return with_special_tokens(base, tmp_path_factory.mktemp("complete") / "complete", "BertTokenizer")
