#!/bin/sh
# A reply in one piece. choices[0].message has it, in content; what was thought before, in reasoning_content.
#   MILLET_URL=http://127.0.0.1:8080 MILLET_API_KEY=KEY examples/curl/chat.sh
set -eu
exec curl --fail-with-body -sS "${MILLET_URL:-http://127.0.0.1:8080}/v1/chat/completions" \
    -H "Authorization: Bearer ${MILLET_API_KEY:-none}" -H "Content-Type: application/json" \
    -d @- <<'JSON'
{
  "messages": [
    {"role": "system", "content": "You answer in one sentence."},
    {"role": "user", "content": "What is millet?"}
  ],
  "max_completion_tokens": 64,
  "temperature": 0
}
JSON
