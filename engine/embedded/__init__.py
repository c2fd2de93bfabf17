"""The embedded OpenSearch: its archives, Java, processes, starting and stopping."""
