from tests.training.conftest import base, folder, model, own_cache, texts, toy, trained_folder  # noqa: F401 - the fixtures
from tests.training.data.test_pairs import collection  # noqa: F401 - likewise
