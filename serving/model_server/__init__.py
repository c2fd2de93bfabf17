"""`termweave serve --models`: vectors and term weights over HTTP, for OpenSearch's connectors and for clients of OpenAI's API."""
