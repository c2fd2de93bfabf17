"""The connection of an index with a model server: what `termweave connect` registers in OpenSearch."""
