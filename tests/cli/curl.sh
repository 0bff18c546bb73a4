# The examples for curl, against a server of the small model; its own template has no tools.
. "$(dirname "$0")/lib.sh"
command -v curl >/dev/null || { echo "skipped: no curl"; exit 77; }
printf 'sk-key-for-the-examples\n' >"$work/keys"
"$millet" serve "$DEMO" --port 0 --quiet --template qwen3 --api-key-file "$work/keys" >"$work/serve" 2>"$work/log" &
server=$!
trap 'kill "$server" 2>/dev/null; wait "$server" 2>/dev/null; rm -rf "$work"' EXIT
for _ in $(seq 600); do grep -q listening "$work/serve" && break || sleep 0.1; done
MILLET_URL=$(sed -n 's/.*listening at //p' "$work/serve")
export MILLET_URL MILLET_API_KEY=sk-key-for-the-examples
# example NAME CODE EXPRESSION: its exit code, and a Python expression about d, its output as JSON (or text t)
example() {
    local code=0
    "$MILLET_SOURCE/examples/curl/$1.sh" >"$work/out" 2>"$work/err" || code=$?
    [ "$code" = "$2" ] || fail "$1: exit code $code: $(cat "$work/out" "$work/err")"
    python3 - "$work/out" "$3" <<'PY' || fail "$1: not $3: $(head -c 600 "$work/out")"
import json, sys
t = open(sys.argv[1]).read()
try:
    d = json.loads(t)
except ValueError:
    d = [json.loads(line.removeprefix("data: ")) for line in t.splitlines() if line.startswith(("data: {", "{"))]
sys.exit(not eval(sys.argv[2]))
PY
}
example models 0 'd[0]["data"][0]["object"] == "model" and d[1]["status"] == "ok"'
example completions 0 'len(d["choices"][0]["logprobs"]["tokens"]) == 16 == d["usage"]["completion_tokens"]'
example chat 0 'd["choices"][0]["message"]["role"] == "assistant" and d["usage"]["completion_tokens"] <= 64'
example stream 0 't.rstrip().endswith("data: [DONE]") and d[-1]["usage"]["completion_tokens"] <= 48 and any(c["delta"].get("content") or c["delta"].get("reasoning_content") for e in d for c in e["choices"])'
example json 0 'type(json.loads(d["choices"][0]["message"]["content"])) is dict'
example schema 0 'set(json.loads(d["choices"][0]["message"]["content"])) == {"kind", "name", "age"}'
example tools 0 'd["choices"][0]["finish_reason"] == "tool_calls" and [(c["function"]["name"], type(json.loads(c["function"]["arguments"])["place"])) for c in d["choices"][0]["message"]["tool_calls"]] == [("temperature", str)]'
example embeddings 22 '"embeddings" in d["error"]["message"]'
MILLET_API_KEY=wrong
example models 22 'd["error"]["code"] == "invalid_api_key"'
kill "$server"
wait "$server" || fail "the server ended with $?"
finish
