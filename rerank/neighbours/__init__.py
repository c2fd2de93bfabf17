"""Reciprocal nearest neighbours (rNN) and evidence, as functions of arrays."""
