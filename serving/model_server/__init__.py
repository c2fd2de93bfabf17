"""The model server `termweave serve --models`: gives vectors and term weights over HTTP to OpenSearch's connectors and clients of OpenAI's API."""
