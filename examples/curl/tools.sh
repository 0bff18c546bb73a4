#!/bin/sh
# A call of a tool: tool_choice "required" lets the model do nothing else. A chat template without tools is refused; the
# small model of the demo has one such: serve it with --template qwen3 to try this.
# choices[0].message.tool_calls has name and arguments; the caller runs it, appends the message and one
# {"role": "tool", "tool_call_id": ..., "content": ...}, and asks again.
#   MILLET_URL=http://127.0.0.1:8080 MILLET_API_KEY=KEY examples/curl/tools.sh
set -eu
exec curl --fail-with-body -sS "${MILLET_URL:-http://127.0.0.1:8080}/v1/chat/completions" \
    -H "Authorization: Bearer ${MILLET_API_KEY:-none}" -H "Content-Type: application/json" \
    -d @- <<'JSON'
{
  "messages": [{"role": "user", "content": "How warm is it in Oslo?"}],
  "tools": [{
    "type": "function",
    "function": {
      "name": "temperature",
      "description": "The temperature at a place, in degrees Celsius.",
      "parameters": {
        "type": "object",
        "properties": {"place": {"type": "string", "maxLength": 20}},
        "required": ["place"],
        "additionalProperties": false
      }
    }
  }],
  "tool_choice": "required",
  "parallel_tool_calls": false,
  "max_completion_tokens": 96,
  "temperature": 0
}
JSON
