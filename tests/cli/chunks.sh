# millet convert into several packages: names, shared tables and weights, what is refused.
. "$(dirname "$0")/lib.sh" || exit 1
cd "$work" || exit 1
model=$MILLET_SOURCE/models/tiny-qwen3.5
convert() { "$millet" convert "$@"; }
name() { echo "tiny-qwen3.5_ctx$1_chunks3_multifunction_lut6_kvslice_gqagrouped"; }
listed() { # listed DIR NAMES: the directory holds just these
    local found
    found=$(ls -A "$1" | tr '\n' ' ')
    shift
    [ "$found" = "$* " ] || fail "found: $found (expected: $*)"
}
inode() { stat -c %i "$1"; }
chunks='chunk_1_of_3.mlpackage chunk_2_of_3.mlpackage chunk_3_of_3.mlpackage'
weights=Data/com.apple.CoreML/weights/weight.bin
table=tiny-qwen3.5_embed_tokens.int8.bin
lut6=(--quantize lut6 --prefill 4,16 --chunks 3)

# --- a directory of artifacts: names of their own, one table ---
expect 0 '' convert "$model" --into place "${lut6[@]}" --share-weights place # nothing is there yet
grep -q "^  chunk_3_of_3.mlpackage .* layers 6 to 7 and the head$" stdout || fail "summary: $(cat stdout)"
listed place "$(name 2048)" $table
# shellcheck disable=SC2086 # the names are words
listed "place/$(name 2048)" Tokenizer $chunks metadata.json
[ "$(stat -c %s place/$table)" = $((64 + 4096 * 258)) ] || fail "size of the table"
grep -q "\"path\": \"../$table\"" "place/$(name 2048)/metadata.json" || fail "metadata.json does not name the table"
before=$(inode place/$table)
expect 0 '' convert "$model" --into place "${lut6[@]}" --context 512 --share-weights place
grep -q 'int8, there already$' stdout || fail "summary: $(cat stdout)"
grep -q 'shared with other artifacts: 3 weight files' stdout || fail "summary: $(cat stdout)"
[ "$(inode place/$table)" = "$before" ] || fail "the table was written again"
for chunk in $chunks; do
    [ "$(inode "place/$(name 512)/$chunk/$weights")" = "$(inode "place/$(name 2048)/$chunk/$weights")" ] ||
        fail "$chunk: the weights are not shared"
done
for context in 512 2048; do
    expect 0 '' "$millet" verify-manifest "place/$(name $context)"
    "$millet" run "place/$(name $context)" -p 'Once upon a time there was' -n 6 >"text$context" 2>/dev/null || fail "run"
done
cmp -s text512 text2048 || fail "the context changes the text"
expect 1 "place/$(name 512): exists; --overwrite replaces it" convert "$model" --into place "${lut6[@]}" --context 512

# --- another table is not replaced unasked; metadata alone is not trusted ---
printf x | dd of=place/$table bs=1 seek=70 conv=notrunc 2>/dev/null
expect 1 "place/$table: another table is there" convert "$model" --into place "${lut6[@]}" --context 256
listed place "$(name 2048)" "$(name 512)" $table
first=place/$(name 2048)/chunk_1_of_3.mlpackage/$weights
printf x | dd of="$first" bs=1 seek=9000 conv=notrunc 2>/dev/null
expect 0 '' convert "$model" --into place "${lut6[@]}" --context 256 --overwrite --share-weights place
grep -q 'shared with other artifacts: 2 weight files' stdout || fail "a damaged file is shared: $(cat stdout)"
expect 0 '' "$millet" verify-manifest "place/$(name 256)"
rm -r place

# --- every other shape of output ---
expect 0 '' convert "$model" -o place/a --chunks auto --max-file-size 5M -q
listed place/a Tokenizer chunk_1_of_4.mlpackage chunk_2_of_4.mlpackage chunk_3_of_4.mlpackage chunk_4_of_4.mlpackage \
    metadata.json tiny-qwen3.5_embed_tokens.fp16.bin
expect 0 '' convert "$model" -o place/a --overwrite --chunks 1 --table fp32 --precision float16 -q
listed place/a Tokenizer metadata.json model.mlpackage tiny-qwen3.5_embed_tokens.fp32.bin
expect 0 '' convert "$model" --into place --quantize w4 --vocab w8b32 --kv stacked -q
[ -d place/tiny-qwen3.5_ctx2048_chunks1_decode_w4-vocab-w8b32_kvstacked_gqagrouped ] || fail "names: $(ls place)"

# --- what does not apply or can't be ---
expect 2 'give the directory to write with -o OUT, or one to write into' convert "$model"
expect 2 'give the directory to write with -o OUT, or one to write into' convert "$model" -o x --into y
for size in 0 -1 5MB 5.5M 5m M '' 99999999999G; do
    expect 2 'max-file-size must be a whole number from 1' convert "$model" -o x --max-file-size "$size"
done
expect 1 'layer 0 takes .* raise --max-file-size' convert "$model" -o x --max-file-size 1MiB
expect 1 'chunks 2: the largest file would have .* 4 chunks fit' convert "$model" -o x --max-file-size 5MiB --chunks 2
expect 2 'chunks 10: at most 9 for this model' convert "$model" -o x --chunks 10
expect 2 '--top-k is for preset single, this is preset chunks' convert "$model" -o x --top-k 5
expect 2 'a group size is for lut schemes' convert "$model" -o x --group-size 16 --quantize w8
expect 1 'nowhere: no such directory of artifacts' convert "$model" -o x --share-weights nowhere
expect 2 'lies in the checkpoint' convert "$model" --into "$model/x"
[ ! -e x ] || fail "something was written"
single=${MILLET_CASES:-}/models/tiny-qwen3
if [ -d "$single" ]; then
    for option in '--chunks 2' '--chunks auto' '--kv split' '--table fp16' '--prefill 4' '--max-file-size 1G'; do
        # shellcheck disable=SC2086 # an option and its value
        expect 2 "is for preset chunks, this is preset single" convert "$single" -o x $option
    done
    expect 0 '' convert "$single" --into place --quantize w8 --top-k 16 -q
    [ -f place/tiny-qwen3_ctx2048_single_topk16_w8/model.mlpackage/Manifest.json ] || fail "names: $(ls place)"
fi
finish
