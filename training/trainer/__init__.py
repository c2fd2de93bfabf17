"""The training loop and its parts; they know no model family."""
