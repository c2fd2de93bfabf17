"""The embedded OpenSearch: its archives, its Java, its process, and how it is started and stopped."""
