"""Filters, which say which documents may be found: the grammar, the translation into clauses for the server, and the search option."""
