#!/bin/sh
# A reply in the form of a JSON Schema: no other can come, whatever the model is.
#   MILLET_URL=http://127.0.0.1:8080 MILLET_API_KEY=KEY examples/curl/schema.sh
set -eu
exec curl --fail-with-body -sS "${MILLET_URL:-http://127.0.0.1:8080}/v1/chat/completions" \
    -H "Authorization: Bearer ${MILLET_API_KEY:-none}" -H "Content-Type: application/json" \
    -d @- <<'JSON'
{
  "messages": [{"role": "user", "content": "A pet, as JSON."}],
  "response_format": {
    "type": "json_schema",
    "json_schema": {
      "name": "pet",
      "strict": true,
      "schema": {
        "type": "object",
        "properties": {
          "kind": {"enum": ["cat", "dog", "bird"]},
          "name": {"type": "string", "maxLength": 12},
          "age": {"type": "integer", "minimum": 0, "maximum": 30}
        },
        "required": ["kind", "name", "age"],
        "additionalProperties": false
      }
    }
  },
  "max_completion_tokens": 96,
  "temperature": 0
}
JSON
