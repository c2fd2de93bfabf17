"""Contracts: base classes that parts added to termweave must implement, one file for each kind of part (signals)."""
