"""A small BERT-like backbone with random weights, for languages without a backbone: every character is a word-piece.

The vocabulary is the corpus's most frequent characters, each also as the inside of a word (``##x``), so that any text can be cut.
It knows nothing until it has been trained; all its layers are trained by default (`methods.parameters`).
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from typing import TYPE_CHECKING

from termweave.encoders.manifest import TOKENIZER
from termweave.support import atomic_files

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_CHARACTERS = 6000
_LAYERS, _WIDTH, _HEADS = 2, 128, 4
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def make(corpus: Sequence[str], folder: Path, max_length: int, seed: int) -> Path:
    """Write the backbone, unless the folder holds it already.

    Args:
        corpus: Texts, for the vocabulary.
        folder: To write in transformers' layout.
        max_length: Pieces it will see at most.
        seed: Of its weights.
    """
    if (folder / TOKENIZER).is_file():
        return folder
    import torch  # noqa: PLC0415 - seconds
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers  # noqa: PLC0415
    from transformers import BertConfig, BertModel  # noqa: PLC0415
    from transformers.utils import logging as chatter  # noqa: PLC0415

    chatter.disable_progress_bar()
    normalizer = normalizers.BertNormalizer()
    counts: Counter[str] = Counter()
    for text in corpus:
        counts.update(normalizer.normalize_str(text))
    characters = [each for each, _ in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])) if _is_written(each)][
        :_CHARACTERS
    ]
    tokens = [*_SPECIAL, *characters, *(f"##{each}" for each in characters)]
    tokenizer = Tokenizer(models.WordPiece({token: place for place, token in enumerate(tokens)}, unk_token="[UNK]"))  # noqa: S106
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(tokens),
        hidden_size=_WIDTH,
        num_hidden_layers=_LAYERS,
        num_attention_heads=_HEADS,
        intermediate_size=4 * _WIDTH,
        max_position_embeddings=max_length,
    )
    folder.mkdir(parents=True, exist_ok=True)
    BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    atomic_files.write(folder / TOKENIZER, tokenizer.to_str(pretty=True).encode())  # last: with it the folder is whole
    return folder


def _is_written(character: str) -> bool:
    return not character.isspace() and unicodedata.category(character) not in {"Cc", "Cf", "Cs", "Co", "Cn"}
