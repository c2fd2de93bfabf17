#!/bin/sh
# Usage: sh search.sh http://localhost:9200 docs < questions.txt
url=$1 index=$2
while IFS= read -r question || [ -n "$question" ]; do
  # jq writes the question as JSON.
  body=$(printf '%s' "$question" | jq -Rs '{query: {match: {text: .}}, size: 10, _source: ["id"]}')
  curl -sS --fail-with-body -H 'Content-Type: application/json' \
    "$url/$index/_search?search_pipeline=$index-learned" -d "$body" | jq -r '[.hits.hits[]._id] | join(" ")'
done
