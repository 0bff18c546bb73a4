# millet do: what scripts rely on. The small model knows little; what is tested is form, not wisdom.
. "$(dirname "$0")/lib.sh" || exit 1
task() { # task INPUT ARGUMENTS...: standard output in $work/out, errors in $work/err
    local input=$1 code=0
    shift
    printf '%b' "$input" | "$millet" do "$@" >"$work/out" 2>"$work/err" || code=$?
    return $code
}
text='Ben found a red ball near the road.\nThen he saw a horse.\n'

for t in summarize proofread 'translate --to German'; do
    task "$text" ${t%% *} "$DEMO" $(cut -s -d' ' -f2- <<<"$t") || fail "$t: $(cat "$work/err")"
    [ -s "$work/out" ] && [ ! -s "$work/err" ] && [ "$(tail -c 1 "$work/out" | od -An -tx1)" = ' 0a' ] || fail "$t: $(cat "$work/out" "$work/err")"
    grep -qE '<think>|im_end' "$work/out" && fail "$t: markers in the result"
done
task "$text" summarize "$DEMO" && cp "$work/out" "$work/want"
task "$text" summarize "$DEMO" && cmp -s "$work/out" "$work/want" || fail 'two runs differ'
printf "$text" >"$work/text"
"$millet" do summarize "$DEMO" --input "$work/text" | cmp -s - "$work/want" || fail '--input'
task "$text" summarize "$DEMO" --think on && grep -q 'user' "$work/out" && fail '--think: thoughts are printed'

# extract: JSON, held to a schema
schema='{"type":"object","properties":{"animal":{"type":"string","maxLength":10},"legs":{"type":"integer","minimum":0,"maximum":9}},"required":["animal","legs"],"additionalProperties":false}'
echo "$schema" >"$work/schema.json"
task "$text" extract "$DEMO" --json-schema "$work/schema.json" || fail "extract: $(cat "$work/err")"
python3 - "$work/out" <<'END' || fail "extract: $(cat "$work/out")"
import json, sys
x = json.load(open(sys.argv[1]))
assert set(x) == {"animal", "legs"} and len(x["animal"]) <= 10 and 0 <= x["legs"] <= 9
END
task "$text" extract "$DEMO" -n 400 && python3 -c 'import json,sys; assert isinstance(json.load(sys.stdin), dict)' <"$work/out" || fail "extract without a schema: $(cat "$work/out" "$work/err")"

# decide: one of the options; probabilities of all
task "$text" decide "$DEMO" --options 'yes,no, not sure' && grep -qxE 'yes|no|not sure' "$work/out" || fail "decide: $(cat "$work/out" "$work/err")"
choice=$(cat "$work/out")
task "$text" decide "$DEMO" --options 'yes,no, not sure' --json || fail "decide --json: $(cat "$work/err")"
python3 - "$work/out" "$choice" <<'END' || fail "decide --json: $(cat "$work/out")"
import json, sys
x, options = json.load(open(sys.argv[1])), ["yes", "no", "not sure"]
p = x["probabilities"]
assert x["choice"] == sys.argv[2] == options[x["index"]] and len(p) == 3
assert abs(sum(p) - 1) < 1e-12 and max(p) == p[x["index"]] and 0 < x["share"] <= 1
END

# Long texts: whole paragraphs in pieces, what lies between them kept; each piece is as if it were alone.
"$millet" convert "$MILLET_SOURCE/models/tiny-qwen3.5" -o "$work/short" --context 256 --quiet || fail convert
a='Ben found a red ball near the road. "What a nice red ball!" said Ben. Then he saw a horse. It was big and very kind to him.'
b='The horse asked for the ball. Ben gave it back, for it was not his. They were happy, and went to the lake to look at it.'
c='At the lake they saw a snail. The snail was hungry. Ben had some bread and gave it to the snail, who said thank you.'
alone() { printf '%s' "$1" | "$millet" do proofread "$work/short" 2>>"$work/err"; }
task "\n$a\n\n\n$b\n \n$c\n" proofread "$work/short" || fail "pieces: $(cat "$work/err")"
printf '\n%s\n\n\n%s\n \n%s\n' "$(alone "$a")" "$(alone "$b")" "$(alone "$c")" | cmp -s - "$work/out" || fail "pieces: $(cat "$work/out")"
task "$a\n\n$b\n\n$c" proofread "$work/short" --json && grep -qE '"pieces":3,.*"reused_tokens":[1-9]' "$work/out" || fail "pieces: $(cat "$work/out" "$work/err")"
long=$(for i in 1 2 3 4 5 6 7 8; do echo "$a"; done)
for t in summarize extract 'decide --options a,b'; do
    task "$long" ${t%% *} "$work/short" $(cut -s -d' ' -f2- <<<"$t") && fail "$t: a text that is too long"
    grep -qE 'too long: .* tokens|context is full' "$work/err" && [ "$(wc -l <"$work/err")" = 1 ] && [ ! -s "$work/out" ] || fail "$t: $(cat "$work/out" "$work/err")"
done
task "$long" proofread "$work/short" && fail 'a paragraph that is too long'
grep -q 'paragraph 1 has [0-9]* tokens' "$work/err" || fail "a paragraph that is too long: $(cat "$work/err")"
task "$text" summarize "$DEMO" -n 2 && fail 'an incomplete result is a success'
grep -q 'incomplete: cut at the largest number of tokens' "$work/err" || fail "incomplete: $(cat "$work/err")"

expect 2 'TASK must be' "$millet" do dance "$DEMO"
expect 2 'translate needs --to' "$millet" do translate "$DEMO"
expect 2 'decide needs --options' "$millet" do decide "$DEMO"
expect 2 '--words is for summarize' "$millet" do proofread "$DEMO" --words 5
expect 2 'standard input is the text' "$millet" do extract "$DEMO" --json-schema -
expect 1 'the text is empty' "$millet" do summarize "$DEMO"
expect 2 '--options: 1 option, expected 2 to 26' "$millet" do decide "$DEMO" --options one
expect 2 '--options: option 2 is empty' "$millet" do decide "$DEMO" --options a,,b
expect 2 "--options: options 1 and 3 are both 'yes'" "$millet" do decide "$DEMO" --options 'yes,no, yes'
expect 2 '--options: 27 options, expected 2 to 26' "$millet" do decide "$DEMO" --options "$(seq -s, 27)"
echo '{"type": "object", "not": {}}' >"$work/bad.json"
task "$text" extract "$DEMO" --json-schema "$work/bad.json" && fail 'a schema that can not be kept'
grep -q 'not' "$work/err" || fail "schema: $(cat "$work/err")"
finish
