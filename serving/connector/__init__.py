"""The connection of an index with a model server: the pipelines, models and templates that `termweave connect` registers in the cluster."""
