"""Reading of ``tokenizer.json``, as every tokeniser of this package needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from termweave.errors import ModelError

if TYPE_CHECKING:
    from pathlib import Path


def read(file: Path) -> Any:
    """The tokeniser of a file, which pads and cuts nothing and takes special tokens in a text for text.

    Raises:
        ModelError: The file is not a tokeniser.
    """
    from tokenizers import Tokenizer  # noqa: PLC0415 - compiled libraries load when an encoder does

    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # tokenizers raises plain Exceptions
        raise ModelError(f"{file} cannot be read: {error}.", "Copy the model folder again.") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokenizer.encode_special_tokens = True  # "[SEP]" in a text is five characters of text
    return tokenizer
