"""Encoders: they make term weights, vectors and scores of texts, with ONNX Runtime. Torch is imported only by `models` and `onnx.export`.

>>> from termweave.encoders import load
>>> encoder = load()                                             # the shipped model: weights and vectors in one pass
>>> encoding = encoder.encode(["the cat sat on the mat"], kind="document")[0]
>>> sorted(encoding.weights.terms)
['cat', 'mat', 'sat']
>>> encoding.vector.shape
(384,)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from termweave.support import lazy_names

if TYPE_CHECKING:
    from termweave.encoders.text_encoder import DenseEncoder, Ranker, TermWeighter, TextEncoder, load
    from termweave.records import ModelInfo

__all__ = ["DenseEncoder", "ModelInfo", "Ranker", "TermWeighter", "TextEncoder", "load"]

__getattr__, __dir__ = lazy_names(__name__, dict.fromkeys(__all__, "text_encoder"))
