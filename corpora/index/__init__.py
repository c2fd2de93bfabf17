"""An existing index of OpenSearch or Elasticsearch as a corpus: ``opensearch:NAME`` or ``https://host:9200/NAME``."""
