"""What is not imported: torch anywhere, compiled libraries before they are needed."""

import subprocess
import sys

import pytest


def modules_after(code):
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    assert not done.stderr
    return {name.split(".")[0] for name in done.stdout.split()}


def test_encoding_needs_no_torch():
    loaded = modules_after("from termweave.encoders import load; load(threads=1).encode(['a cat'], kind='document')")
    assert not loaded & {"torch", "transformers", "onnx"}


@pytest.mark.parametrize(
    "code", ["import termweave", "import termweave.encoders", "import termweave.cli.verbs.weights, termweave.cli.verbs.export"]
)
def test_importing_opens_nothing(code):
    assert not modules_after(code) & {"torch", "onnxruntime", "tokenizers", "Stemmer", "transformers", "orjson"}


def test_listing_training_methods_needs_no_torch():
    """A method's file holds its loss, too; the declaration is read without torch and numpy."""
    code = "from termweave.training.methods import base; [base.get(name).settings({}) for name in base.names()]"
    assert not modules_after(code) & {"torch", "numpy", "transformers"}
