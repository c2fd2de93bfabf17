from tests.ui.conftest import attacked, client, hasty, unreachable  # noqa: F401 - the fixtures
