"""The connection to an OpenSearch server: credentials, requests, errors, capabilities."""
