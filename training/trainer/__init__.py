"""The training loop and its parts; they know no kind of model."""
