#!/bin/sh
# What no model of text generation can do is refused in words: status 400, so that curl ends with 22.
#   MILLET_URL=http://127.0.0.1:8080 MILLET_API_KEY=KEY examples/curl/embeddings.sh
set -eu
exec curl --fail-with-body -sS "${MILLET_URL:-http://127.0.0.1:8080}/v1/embeddings" \
    -H "Authorization: Bearer ${MILLET_API_KEY:-none}" -H "Content-Type: application/json" \
    -d @- <<'JSON'
{
  "input": "A sentence."
}
JSON
