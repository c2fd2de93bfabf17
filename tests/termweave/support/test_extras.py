"""Advice on extras works from a clone as well."""

from importlib import metadata

import pytest

from termweave.support import extras


@pytest.mark.parametrize(
    ("said", "command"),
    [
        (None, "pip install 'termweave[train]'"),
        ('{"url": "file:///home/me/my%20clone", "dir_info": {"editable": true}}', "pip install '/home/me/my clone[train]'"),
        ('{"url": "https://x/termweave.whl", "archive_info": {}}', "pip install 'termweave[train]'"),
    ],
)
def test_an_extra_is_installed_from_where_termweave_came(said, command, monkeypatch):
    class Distribution:
        def read_text(self, _):
            return said

    monkeypatch.setattr(metadata, "distribution", lambda _: Distribution())
    extras._folder.cache_clear()
    assert extras.install("train") == command
    extras._folder.cache_clear()


def test_in_the_image_they_are_built_into_it(monkeypatch):
    monkeypatch.setenv(extras.IMAGE, "ui")
    build = "docker build . -f docker/Dockerfile -t termweave --build-arg"
    assert extras.install("train") == f"{build} EXTRAS=ui,train"
    assert extras.install_model("small", "termweave-model-small") == f"{build} MODELS=small"
