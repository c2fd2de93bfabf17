"""The stored description of an index: lineage, collection statistics, models and profiles."""
