"""Shards: a corpus encoded into Parquet files, on one host or many, and an index built of them without a model."""
