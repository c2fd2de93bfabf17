from tests.search.conftest import forty, index, own_index  # noqa: F401 - the fixtures
