#!/bin/sh
# A reply as it is made: server-sent events, each "data: " and JSON, the last "data: [DONE]"; the one before it has the usage.
#   MILLET_URL=http://127.0.0.1:8080 MILLET_API_KEY=KEY examples/curl/stream.sh
set -eu
exec curl --fail-with-body -sSN "${MILLET_URL:-http://127.0.0.1:8080}/v1/chat/completions" \
    -H "Authorization: Bearer ${MILLET_API_KEY:-none}" -H "Content-Type: application/json" \
    -d @- <<'JSON'
{
  "messages": [{"role": "user", "content": "Tell me a story about a dog."}],
  "max_completion_tokens": 48,
  "temperature": 0.7,
  "seed": 1,
  "stream": true,
  "stream_options": {"include_usage": true}
}
JSON
