"""Signals: the ways to score a document for a query (BM25, learned term weights, dense vectors), one file each.

To add a signal, write a subclass of `termweave.contracts.signal.Signal` and an entry point in the group ``termweave.signals``.
"""
