"""Training methods: one paper's method is one file."""
