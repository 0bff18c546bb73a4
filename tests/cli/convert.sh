# millet convert: what it writes, that it writes the same twice, and what it refuses.
. "$(dirname "$0")/lib.sh" || exit 1
cd "$work" || exit 1
model=$MILLET_SOURCE/models/tiny-qwen3.5
convert() { "$millet" convert "$@"; }
# OUT, and nothing else, is as it was: the directory holds just these names.
left() {
    local found
    found=$(ls -A place | tr '\n' ' ')
    [ "$found" = "$*${*:+ }" ] || fail "left behind: $found (expected: $*)"
}
mkdir place
weights=model.mlpackage/Data/com.apple.CoreML/weights/weight.bin
prompt='Once upon a time there was a small cat who liked to sing in the garden, and one day'

# --- the artifact ---
expect 0 '' convert "$model" -o place/a
grep -q '^place/a: tiny-qwen3.5 (qwen3_5), 8 layers' stdout || fail "summary: $(head -1 stdout)"
for word in 'preset chunks, precision mixed, state split, context 2048' 'bits per weight' '4096 rows of 256, fp16' \
    'tokenizer.json' 'model.visual.\*' 'mtp.\*'; do
    grep -q "$word" stdout || fail "the summary lacks $word"
done
left a
for file in model.mlpackage/Manifest.json model.mlpackage/Data/com.apple.CoreML/model.mlmodel tiny-qwen3.5_embed_tokens.fp16.bin \
    model.mlpackage/Data/com.apple.CoreML/weights/weight.bin metadata.json; do
    [ -s "place/a/$file" ] || fail "no $file"
done
for file in tokenizer.json tokenizer_config.json special_tokens_map.json vocab.json merges.txt chat_template.jinja \
    generation_config.json; do
    cmp -s "$model/$file" "place/a/Tokenizer/$file" || fail "Tokenizer/$file is not that of the checkpoint"
done
grep -q '"stop_ids": \[4063, 4065\]' place/a/metadata.json || fail "stop ids: $(grep stop_ids place/a/metadata.json)"
[ "$(stat -c %s place/a/tiny-qwen3.5_embed_tokens.fp16.bin)" = $((64 + 4096 * 256 * 2)) ] || fail "size of the table"
[ -z "$(find place/a -type f ! -perm 644)" ] || [ "$(umask)" != 0022 ] || fail "file modes"

# --- functions for several tokens: the same weights, the same text ---
expect 0 '' convert "$model" -o place/p --prefill 4,16
grep -q 'context 2048, prefill 4,16$' stdout || fail "summary: $(grep context stdout)"
cmp "place/a/$weights" "place/p/$weights" || fail "prefill functions have weights of their own"
"$millet" run place/a -p "$prompt" -n 8 >by_step 2>/dev/null || fail "run by steps"
"$millet" run place/p -p "$prompt" -n 8 >by_block 2>/dev/null || fail "run with prefill"
cmp by_block by_step || fail "prefill changes the text"
expect 2 'prefill size 65: expected 2 to 64, or a multiple of 64' convert "$model" -o place/q --prefill 4,65
rm -r place/p

# --- the same bytes, wherever and however often ---
expect 0 '' convert "$model/" -o place/b/ --quiet
[ ! -s stdout ] || fail "--quiet prints"
diff -r place/a place/b || fail "two conversions differ"
expect 1 'place/a: exists; --overwrite replaces it' convert "$model" -o place/a
expect 0 '' convert "$model" -o place/a --overwrite -q --context 96
cmp -s place/a/metadata.json place/b/metadata.json && fail "--overwrite did nothing"
cmp -s place/a/model.mlpackage/Data/com.apple.CoreML/weights/weight.bin \
    place/b/model.mlpackage/Data/com.apple.CoreML/weights/weight.bin || fail "weights depend on the context"
expect 0 '' convert "$model" -o new/dirs/c -q --precision float32
[ "$(stat -c %s new/dirs/c/tiny-qwen3.5_embed_tokens.fp32.bin)" = $((64 + 4096 * 256 * 4)) ] || fail "float32 table"
left a b

# --- places ---
expect 1 'no-such: no such checkpoint directory' convert no-such -o place/x
expect 2 'config.json: is a file' convert "$model/config.json" -o place/x
expect 2 'leave out ".mlpackage"' convert "$model" -o place/x.mlpackage
expect 2 'give the directory to write' convert "$model"
cp -r "$model" place/ckpt
expect 2 'lies in the checkpoint' convert place/ckpt -o place/ckpt/out
expect 2 'lies in the checkpoint' convert place/ckpt -o place/ckpt
expect 2 'lies in the checkpoint' convert place/ckpt -o place/a/../ckpt/x/y
expect 2 'holds the checkpoint' convert place/ckpt -o place --overwrite
rm -r place/ckpt
mkdir place/mine && touch place/mine/letter
expect 1 'place/mine: holds other things' convert "$model" -o place/mine --overwrite
expect 1 'place/mine/letter: exists and is not a directory' convert "$model" -o place/mine/letter --overwrite
[ -f place/mine/letter ] || fail "someone's file is gone"
rm -r place/mine
expect 1 '/proc/x: ' convert "$model" -o /proc/x
if [ "$(id -u)" != 0 ]; then
    mkdir place/locked && chmod 555 place/locked
    expect 1 'place/locked/x: .*Permission denied' convert "$model" -o place/locked/x
    rmdir place/locked
fi
left a b

# --- checkpoints that are broken: one line, nothing written ---
broken() { # broken PATTERN SHELL-COMMANDS, run in a copy of the checkpoint
    rm -rf ckpt
    cp -r "$model" ckpt
    (cd ckpt && eval "$2")
    expect 1 "$1" convert ckpt -o place/x
    left a b
}
weights=$(cd "$model" && ls ./*.safetensors)
expect 1 'is a converted model already, not a checkpoint' convert "$DEMO" -o place/x
broken 'there is no config.json in it; expected a checkpoint' 'rm config.json'
broken 'config.json: not valid JSON at line [0-9]+ column [0-9]+ .byte 100.: the text ends' 'head -c 100 "$model/config.json" >config.json'
broken 'safetensors: .*truncated' "truncate -s -1 $weights"
broken 'safetensors: .*short' "truncate -s 3 $weights"
broken 'No such file' "rm $weights"
broken 'quantiz' "sed -i 's/\"model_type\": \"qwen3_5\",/&\"quantization_config\": {\"bits\": 4},/' config.json"
broken 'gpt9' "sed -i 's/\"qwen3_5\"/\"gpt9\"/' config.json"
broken 'shape' "sed -i 's/\"intermediate_size\": [0-9]*/\"intermediate_size\": 640/' config.json"
broken 'hidden_size' "sed -i 's/\"hidden_size\": [0-9]*/\"hidden_size\": -5/' config.json"

broken 'tokenizer.json: not a regular file' 'rm tokenizer.json && mkfifo tokenizer.json'
broken 'generation_config.json: holds array' 'echo "[]" >generation_config.json'
limited() { (ulimit -f 100 && "$millet" convert "$@"); }
expect 1 'fp16.bin: can.t write: File too large' limited "$model" -o place/x
left a b

# --- no tokenizer is a warning; options that make no sense together ---
rm -rf ckpt && mkdir ckpt && cp "$model"/config.json "$model"/*.safetensors* ckpt
expect 0 'warning: ckpt has no tokenizer.json' convert ckpt -o place/a --overwrite
[ ! -e place/a/Tokenizer ] || fail "an empty Tokenizer"
grep -q '"tokenizer": null' place/a/metadata.json || fail "metadata.json names a tokenizer"
expect 1 'preset single is not for qwen3_5' convert "$model" -o place/x --preset single
expect 2 'state fp16 contradicts precision float32' convert "$model" -o place/x --precision float32 --state fp16
expect 2 'context' convert "$model" -o place/x --context -1
expect 0 '' convert "$model" -o place/a --overwrite -q --context 1 --state fp16
left a b

# --- names that are not UTF-8, and links as in a download cache ---
odd=$'place/o\xffd'
cp -r "$model" "$odd"
expect 0 '' convert "$odd" -o "$odd-out" -q
"$millet" inspect "$odd-out" | grep -q 'o?d (qwen3_5)' || fail "the description of a package with an odd name"
rm -r "$odd" "$odd-out"
mkdir cache && for file in "$model"/*; do ln -s "$file" cache; done
expect 0 '' convert cache -o place/x -q
[ -f place/x/Tokenizer/tokenizer.json ] && [ ! -L place/x/Tokenizer/tokenizer.json ] || fail "a link was not followed"
rm -r place/x

# --- a rule that decides nothing is a likely slip ---
echo '{"rules": [{"match": "*mlp_up*", "scheme": "w8"}, {"match": "no_such*", "scheme": "w8"}]}' >recipe
expect 0 'warning: recipe: rule 2: no weight that can be compressed is called no_such\*$' \
    convert "$model" -o place/a --overwrite -q --recipe recipe
echo '{"rules": [{"match": "*layernorm*", "scheme": "w8"}]}' >recipe
expect 0 'warning: recipe: rule 1: no weight' convert "$model" -o place/a --overwrite -q --recipe recipe
# --- a table for more rows than there are is one for all ---
echo '{"rules": [{"match": "layer_0_mlp_up*", "scheme": "lut4", "group_size": 2147483648}]}' >recipe
expect 0 '' timeout 20 "$millet" convert "$model" -o place/a --overwrite -q --recipe recipe

echo '{"rules": [], "scheme": "w8"}' >recipe
expect 1 'recipe: unknown key "scheme"' convert "$model" -o place/x --recipe recipe

# --- progress goes to stderr, and only when asked for ---
convert "$model" -o place/a --overwrite --progress >stdout 2>stderr || fail "--progress: $(cat stderr)"
grep -q '^100 %' stderr || fail "--progress: $(cat stderr)"
grep -q $'\r' stderr && fail "terminal progress in a pipe"
finish
