"""Enrichment: write the fields of the signals into an existing index of another application, and remove these fields again."""
