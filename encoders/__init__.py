"""Text -> numbers: analysis, term weights and vectors, by ONNX Runtime; no torch outside `models` and `export`.

>>> from termweave.encoders import load
>>> encoder = load()                                             # the shipped model: weights and vectors in one pass
>>> encoding = encoder.encode(["the cat sat on the mat"], kind="document")[0]
>>> sorted(encoding.weights.terms)
['cat', 'mat', 'sat']
>>> encoding.vector.shape
(384,)
"""

from __future__ import annotations

from termweave.encoders.facades import DenseEncoder, TermWeighter
from termweave.encoders.text import ModelInfo, TextEncoder, load

__all__ = ["DenseEncoder", "ModelInfo", "TermWeighter", "TextEncoder", "load"]
