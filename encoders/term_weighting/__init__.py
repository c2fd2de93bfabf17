"""Term weights from logits: the BM25 anchor, the weight function, and anchored terms."""
