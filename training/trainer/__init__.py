"""The training loop and its parts, which are the same for every kind of model."""
