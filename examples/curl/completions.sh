#!/bin/sh
# How a text goes on, with the log-probabilities of its tokens and of their two best rivals.
#   MILLET_URL=http://127.0.0.1:8080 MILLET_API_KEY=KEY examples/curl/completions.sh
set -eu
exec curl --fail-with-body -sS "${MILLET_URL:-http://127.0.0.1:8080}/v1/completions" \
    -H "Authorization: Bearer ${MILLET_API_KEY:-none}" -H "Content-Type: application/json" \
    -d @- <<'JSON'
{
  "prompt": "Once upon a time",
  "max_tokens": 16,
  "temperature": 0,
  "logprobs": 2
}
JSON
