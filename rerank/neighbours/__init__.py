"""Reciprocal nearest neighbours (rNN) and soft evidence (similarity to documents known to be relevant), as functions of arrays."""
