#!/bin/sh
# A reply that is a JSON object: no other can come, whatever the model is.
#   MILLET_URL=http://127.0.0.1:8080 MILLET_API_KEY=KEY examples/curl/json.sh
set -eu
exec curl --fail-with-body -sS "${MILLET_URL:-http://127.0.0.1:8080}/v1/chat/completions" \
    -H "Authorization: Bearer ${MILLET_API_KEY:-none}" -H "Content-Type: application/json" \
    -d @- <<'JSON'
{
  "messages": [
    {"role": "system", "content": "You answer in JSON."},
    {"role": "user", "content": "A city and its country."}
  ],
  "response_format": {"type": "json_object"},
  "max_completion_tokens": 96,
  "temperature": 0
}
JSON
