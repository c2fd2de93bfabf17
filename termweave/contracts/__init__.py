"""Contracts: what a part that is added to termweave must offer, one file for each kind of part."""
