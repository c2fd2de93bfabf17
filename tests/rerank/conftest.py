from tests.search.conftest import built, forty, index, own_index  # noqa: F401 - the fixtures
