from tests.ui.conftest import attacked, client, unreachable  # noqa: F401 - the fixtures
