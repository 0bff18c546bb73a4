# run and score on the small model's package: forms, refusals, interrupts.
. "$(dirname "$0")/lib.sh"
out=$DEMO
python=$(command -v python3) || {
    echo "skipped: no python3"
    exit 77
}
json() { "$python" -c "import json,sys; d=json.load(open('$work/stdout')); sys.exit(not ($1))" || fail "not so: $1: $(head -c 300 "$work/stdout")"; }

# ids as a JSON array or as words, from a file
echo '[493, 535, 258]' >"$work/array"
printf '493\n535 258\n' >"$work/words"
expect 0 "" "$millet" run "$out" --raw-ids "$work/array" --json --max-new-tokens 5
json "len(d['ids']) == 5 and d['prompt_tokens'] == 3 and d['finish_reason'] == 'length' and d['text'].startswith(' ')"
json "set(d) == {'ids', 'text', 'prompt_tokens', 'finish_reason', 'timings'} and d['timings']['decode_s'] > 0"
cp "$work/stdout" "$work/first"
expect 0 "" "$millet" run "$out" --raw-ids "$work/words" --json --max-new-tokens 5
json "d['ids'] == json.load(open('$work/first'))['ids']"

# without a tokenizer: the package alone, moved away from it
mkdir "$work/bare" && cp -r "$out/model.mlpackage" "$out/tiny-qwen3.5_embed_tokens.fp16.bin" "$work/bare"
expect 0 "" "$millet" run "$work/bare" --raw-ids "$work/array" --json --max-new-tokens 5
json "d['ids'] == json.load(open('$work/first'))['ids'] and d['text'] is None"
expect 0 "" "$millet" run "$work/bare/model.mlpackage/" --raw-ids "$work/array" --json --max-new-tokens 1
expect 1 "needs a tokenizer" "$millet" run "$work/bare" --prompt Once
expect 0 "" "$millet" run "$work/bare" --tokenizer "$out/Tokenizer" --prompt Once --json --max-new-tokens 2
json "len(d['text']) > 0"
rm "$work/bare/tiny-qwen3.5_embed_tokens.fp16.bin"
expect 1 "no embed_tokens.bin beside it" "$millet" run "$work/bare" --raw-ids "$work/array"

# files of an artifact that are damaged, or of another model
damaged() { # damaged FILE CONTENT PATTERN
    rm -rf "$work/bare" && cp -r "$out" "$work/bare" && printf '%s' "$2" >"$work/bare/$1"
    expect 1 "$3" "$millet" run "$work/bare" --prompt Once --max-new-tokens 1
}
damaged metadata.json '[]' 'metadata.json: holds array, expected an object'
damaged metadata.json '{"stop_ids": [-1]}' 'metadata.json: stop_ids: expected a token id'
damaged Tokenizer/generation_config.json 'null' 'generation_config.json: holds null'
damaged Tokenizer/generation_config.json '{"eos_token_id": "x"}' 'generation_config.json: eos_token_id: expected a token id'
damaged Tokenizer/generation_config.json '{"top_k": 1.5}' 'generation_config.json: top_k is 1.5, expected a whole number'
damaged Tokenizer/tokenizer_config.json '5' 'tokenizer_config.json: holds integer'
damaged tiny-qwen3.5_embed_tokens.fp16.bin 'MLTEMBED' 'embed_tokens.fp16.bin: not an embedding table'
rm -rf "$work/bare"

# text streams to standard output, one line of figures to standard error
printf 'Once upon a' >"$work/prompt"
expect 0 "prompt: 3 tokens.*decode: 8 tokens.*\(length\)" "$millet" run "$out" --prompt-file "$work/prompt" --max-new-tokens 8
cp "$work/stdout" "$work/text"
expect 0 "prompt: 3 tokens" "$millet" run "$out" --prompt "Once upon a" --max-new-tokens 8
cmp -s "$work/stdout" "$work/text" || fail "--prompt and --prompt-file differ"
expect 0 "prompt: 3 tokens" "$millet" run "$out" --prompt "Once upon a" --max-new-tokens 8 --precision strict

# several packages with compressed weights, prefill functions and a table of int8 rows beside the directory
"$millet" convert "$MILLET_SOURCE/models/tiny-qwen3.5" --into "$work/sets" --chunks 3 --prefill 4,16 --quantize lut6 \
    --context 64 --quiet || fail "convert --chunks 3"
set=$(echo "$work"/sets/*_ctx64_*)
expect 0 "prompt: 3 tokens.*decode: 8 tokens" "$millet" run "$set" --prompt "Once upon a" --max-new-tokens 8
grep -q "time" "$work/stdout" || fail "the set says: $(cat "$work/stdout")"
expect 0 "" "$millet" inspect "$set" --verify
expect 1 "one package of a set, which runs as a whole: give the directory" "$millet" run "$set/chunk_2_of_3.mlpackage" --prompt x
mv "$set/chunk_2_of_3.mlpackage" "$work/sets/away"
expect 1 "metadata.json: names the package chunk_2_of_3.mlpackage, which is not there" "$millet" run "$set" --prompt x
mv "$work/sets/away" "$set/chunk_2_of_3.mlpackage"
mv "$work"/sets/*_embed_tokens.int8.bin "$work/sets/away"
expect 1 "metadata.json: names the table .*embed_tokens.int8.bin, which is not there" "$millet" run "$set" --prompt x
rm -r "$work/sets"

# refusals: one line each
expect 2 "give one of --prompt" "$millet" run "$out"
expect 2 "give one of --prompt" "$millet" run "$out" --prompt a --raw-ids "$work/array"
expect 2 "--seed needs a --temperature above 0" "$millet" run "$out" --prompt a --seed 1
expect 2 "--top-p needs a --temperature above 0" "$millet" run "$out" --prompt a --temperature 0 --top-p 0.9
expect 1 "text is empty" "$millet" run "$out" --prompt ""
echo '[]' >"$work/empty"
expect 1 "prompt is empty" "$millet" run "$out" --raw-ids "$work/empty"
expect 1 "no tokens" "$millet" score "$out" --ids-file "$work/empty"
echo '[1, 4096]' >"$work/beyond"
expect 1 "4096 at index 1 is outside the vocabulary \(0 to 4095\)" "$millet" run "$out" --raw-ids "$work/beyond"
expect 1 "4096 at index 1 is outside the vocabulary \(0 to 4095\)" "$millet" score "$out" --ids-file "$work/beyond"
echo '[1, "x"]' >"$work/wrong"
expect 1 "element 1 is not a token id" "$millet" run "$out" --raw-ids "$work/wrong"
echo '5 -7' >"$work/wrong"
expect 1 "'-7' is not a token id" "$millet" run "$out" --raw-ids "$work/wrong"
expect 1 "/nowhere: No such file" "$millet" run "$out" --raw-ids /nowhere
expect 1 "fit the context of 2048 positions: ask for at most 2046" "$millet" run "$out" --raw-ids "$work/array" --max-new-tokens 2047
expect 1 "no such package" "$millet" run /nowhere --prompt x
expect 1 "neither a package" "$millet" run "$work" --prompt x
tiny=$MILLET_SOURCE/models/tiny-qwen3.5
expect 1 "tiny-qwen3.5: is a checkpoint; convert it first: millet convert $tiny -o OUT$" "$millet" run "$tiny" --prompt x
expect 1 "is a file of the checkpoint $tiny; convert it first" "$millet" run "$tiny/config.json" --prompt x
printf 'GGUF' >"$work/small.gguf"
expect 1 "small.gguf: is a GGUF file; convert it first: millet convert $work/small.gguf -o OUT$" "$millet" run "$work/small.gguf" --prompt x
expect 1 "is a part of $DEMO: give that$" "$millet" run "$DEMO/Tokenizer" --prompt x
expect 1 "is a part of $DEMO/model.mlpackage: give that$" "$millet" run "$DEMO/model.mlpackage/Data/com.apple.CoreML" --prompt x
mkdir "$work/hollow"
expect 1 'neither a package .*: it is empty$' "$millet" run "$work/hollow" --prompt x
expect 1 'no such package .*models are not fetched' "$millet" run Qwen/Qwen3-0.6B --prompt x
expect 2 "not UTF-8" "$millet" run "$out" --prompt $'a\xff'
printf 'a\xff' >"$work/latin"
expect 1 "not UTF-8 at byte 1" "$millet" run "$out" --prompt-file "$work/latin"
expect 0 "" "$millet" run "$out" --raw-ids "$work/array" --json --temperature 0.8 --top-k 1000000 --max-new-tokens 3
json "len(d['ids']) == 3"
LC_ALL=de_DE.UTF-8 expect 0 "" "$millet" run "$out" --raw-ids "$work/array" --json --temperature 0.8 --max-new-tokens 1

# a reader that goes away, an interrupt, a full disk
code=0
timeout 60 bash -c 'set -o pipefail; "$1" run "$2" --prompt "Once upon a" --ignore-eos --max-new-tokens 1500 2>"$3/stderr" | head -c 5 >/dev/null' _ "$millet" "$out" "$work" || code=$?
[ "$code" = 0 ] || fail "closed pipe: exit code $code: $(head -c 300 "$work/stderr")"
"$millet" run "$out" --prompt "Once upon a" --ignore-eos --max-new-tokens 2000 >"$work/stdout" 2>"$work/stderr" &
pid=$!
for _ in $(seq 200); do [ -s "$work/stdout" ] && break || sleep 0.05; done
kill -INT $pid
code=0
wait $pid || code=$?
[ "$code" = 130 ] || fail "interrupt: exit code $code"
grep -q "cancelled" "$work/stderr" || fail "interrupt: no figures: $(head -c 300 "$work/stderr")"
if [ -e /dev/full ]; then
    code=0
    "$millet" run "$out" --prompt "Once upon a" --max-new-tokens 3 >/dev/full 2>"$work/stderr" || code=$?
    [ "$code" = 1 ] && grep -q "standard output" "$work/stderr" || fail "full disk: exit code $code"
    expect 1 "/dev/full" "$millet" score "$out" --ids-file "$work/array" --logits /dev/full
fi

# score
expect 0 "" "$millet" score "$out" --ids-file "$work/array" --logits "$work/l.safetensors" --json
json "d['tokens'] == 3 and d['compared'] == 2 and d['mean_nll'] > 0 and 0 <= d['top1_agreement'] <= 1"
[ "$(stat -c %s "$work/l.safetensors")" = $((3 * 4096 * 4 + 8 + $("$python" -c "print(int.from_bytes(open('$work/l.safetensors','rb').read(8),'little'))"))) ] || fail "size of the logits file"
expect 0 "" "$millet" score "$out" --text-file "$work/prompt"
grep -q "perplexity" "$work/stdout" || fail "score as text"
echo '[493]' >"$work/one"
expect 0 "" "$millet" score "$out" --ids-file "$work/one" --json
json "d['mean_nll'] is None and d['tokens'] == 1"
expect 2 "give --ids-file or --text-file" "$millet" score "$out"
finish

# --json-object: whatever the seed, one object and nothing else
for seed in 1 2 3 4; do
    expect 0 "\(stop\)" "$millet" run "$out" --prompt "The" --json-object -t 1.2 --seed "$seed" -n 400
    "$python" -c "import json; assert isinstance(json.load(open('$work/stdout')), dict)" || fail "seed $seed: $(cat "$work/stdout")"
done
expect 2 "give one of --json-object and --json-schema" "$millet" run "$out" --prompt x --json-object --json-schema x
expect 2 "can't go with JSON" "$millet" run "$out" --prompt x --json-object --ignore-eos

# --json-schema: the document has the schema's form; what can't be kept is named
echo '{"type":"object","properties":{"n":{"type":"integer","minimum":10,"maximum":99},"s":{"enum":["a","b"]}},"required":["n","s"],"additionalProperties":false}' >"$work/schema"
for seed in 1 2 3; do
    expect 0 "\(stop\)" "$millet" run "$out" --prompt "The" --json-schema "$work/schema" -t 1.2 --seed "$seed" -n 100
    "$python" -c "import json; d = json.load(open('$work/stdout')); assert 10 <= d['n'] <= 99 and d['s'] in 'ab' and len(d) == 2" ||
        fail "seed $seed: $(cat "$work/stdout")"
done
printf '{\n "type": "object",\n "properties": {,}}' >"$work/schema"
expect 1 "schema: not valid JSON at line 3 column 17 .byte 37.: " "$millet" run "$out" --prompt x --json-schema "$work/schema"
expect 1 "standard input: not valid JSON at line 3 column 17 .byte 37.: " \
    bash -c "'$millet' run '$out' --prompt x --json-schema - <'$work/schema'"
expect 1 "the JSON text is incomplete: it was cut at 2 tokens; --max-new-tokens allows more" "$millet" run "$out" --prompt x --json-object -n 2
expect 1 "is incomplete: it was cut at 1 token;" "$millet" run "$out" --prompt x --json-object -n 1 --json
grep -q '"finish_reason":"length"' "$work/stdout" || fail "cut, --json: $(cat "$work/stdout")"
echo '{"type":"object","properties":{"a":{"not":{}}}}' >"$work/schema"
expect 1 "schema: schema /properties/a/not: keyword not supported" "$millet" run "$out" --prompt x --json-schema "$work/schema"
