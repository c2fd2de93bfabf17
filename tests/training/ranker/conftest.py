"""A small backbone whose tokeniser joins pairs."""

import json
import shutil

import pytest


@pytest.fixture(scope="module")
def complete(base, tmp_path_factory):
    """The small backbone with special tokens between the texts of a pair, as transformers would read it."""
    from tokenizers import Tokenizer, processors

    path = tmp_path_factory.mktemp("complete") / "complete"
    shutil.copytree(base, path)
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    special = [(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", special)
    tokenizer.save(str(path / "tokenizer.json"))
    tokens = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    (path / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizer", "model_max_length": 64, **tokens})
    )
    return path
