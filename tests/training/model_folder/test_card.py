"""The model card: what it calls a backbone."""

from pathlib import Path

import pytest

from termweave.training.model_folder.card import name_of


@pytest.mark.parametrize(
    ("given", "folder", "name"),
    [
        ("", "package/model", "all-MiniLM-L6-v2"),
        ("scratch", "out/backbone", "scratch"),
        ("bge-small-en", "cache/bge-small-en", "bge-small-en"),
        ("hf:BAAI/bge-m3", "snapshots/5617a9f", "hf:BAAI/bge-m3"),
        ("/home/me/mine", "/home/me/mine", "mine"),
        ("..", "/home/me", "me"),
    ],
)
def test_the_name_of_a_backbone(given, folder, name):
    assert name_of(given, Path(folder)) == name
