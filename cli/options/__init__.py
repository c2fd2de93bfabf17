"""Options that verbs share, and the values that they take."""
