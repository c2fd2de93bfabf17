"""The demo corpus, a BEIR folder: the documentation of Python's standard library, with queries and judgements.

The documents are the docstrings of the public names of CPython 3.11.7 (their licence is beside them). The queries and their graded judgements
were written by hand: grade 2 answers the query, grade 1 helps.
"""
