# millet convert --format coreai: which schemes a bundle can have, however they are asked for, and what its metadata say.
. "$(dirname "$0")/lib.sh"
need_case models/rand-qwen2
model=$MILLET_SOURCE/models/tiny-qwen3.5
shows() { grep -qE -e "$1" "$work/stdout" || fail "'$1' is not shown"; }
cd "$work" || exit 1
bundle() { "$millet" convert "$model" --format coreai -q "$@"; }
rules() { printf '{"rules": [%s]}' "$1" >recipe.json; }
rule() { printf '{"match": "%s", "scheme": "%s"}' "$1" "$2"; }

# int8 per channel is refused in the same words wherever it is asked for, before anything is written.
channel='scheme w8 is not offered for format coreai: int8 per channel gives garbage on the GPU delegate; int8lin has a scale for each 32 weights$'
expect 2 "^millet: $channel" bundle -o none --quantize w8
rules "$(rule '*mlp*' w8)"
expect 2 "^millet: recipe.json: rule 1: $channel" bundle -o none --recipe recipe.json
expect 2 "^millet: recipe.json: rule 1: $channel" bundle --into none --recipe recipe.json
rules "$(rule '*mlp*' int8lin), $(rule '*' w8)"
expect 2 "^millet: recipe.json: rule 2: $channel" bundle -o none --recipe recipe.json
rules "$(rule '*mlp*' int8lin)"
expect 2 "^millet: $channel" bundle -o none --quantize w8 --recipe recipe.json
for scheme in w8 w8b32 lut4 keep fp16; do
    expect 2 '--vocab is for --format coreml; scheme int8hu compresses the head of a bundle$' bundle -o none --vocab $scheme --recipe recipe.json
done
# so is what is no scheme of the format, or none for one weight
for scheme in w8b32 w4 keep int8hu int2lin; do
    rules "$(rule '*mlp*' $scheme)"
    expect 2 "^millet: recipe.json: rule 1: scheme $scheme: rules for format coreai have none, int8lin, int4lin, lut4, lut6 and lut8$" \
        bundle -o none --recipe recipe.json
done
rules "$(rule '*mlp*' int8lin)"
expect 2 'recipe.json: rule 1: scheme int8lin: expected fp16, ' "$millet" convert "$model" -o none -q --recipe recipe.json
[ ! -e none ] || fail 'something was written'

# A package that has it (62 linear layers and the head) keeps its weights, and a warning is given.
expect 0 '' "$millet" convert "$model" -o package --quantize w8 -q
expect 0 '^millet: warning: 63 weights are in int8 per channel \(layer_0_.*, \.\.\.\), which gives garbage on the GPU delegate$' \
    "$millet" convert package/model.mlpackage -o w8.aimodel --format coreai -q
rm -r package
expect 0 '' "$millet" convert "$model" -o package --quantize w8b32 -q
expect 0 '' "$millet" convert package/model.mlpackage -o w8b32.aimodel --format coreai -q

# A recipe for each layer but the head is the scheme, to the byte.
for scheme in int8lin int4lin lut6; do
    rules "$(rule lm_head_weight none), $(rule '*' $scheme)"
    rm -rf a b
    expect 0 '' bundle -o a --quantize $scheme
    expect 0 '' bundle -o b --recipe recipe.json
    cmp a/tiny-qwen3.5.aimodel/main.mlirb b/tiny-qwen3.5.aimodel/main.mlirb || fail "a recipe of $scheme"
done

# Both: the file's rules first, the scheme for the rest; the metadata name both. [768,256] has 8 blocks of 32 along the input.
rules "$(rule 'layer_0_mlp_up*' int8lin), {\"match\": \"layer_1_mlp_up*\", \"scheme\": \"lut6\", \"group_size\": 16}"
expect 0 '' bundle -o c --quantize int4lin --recipe recipe.json --report report.json
expect 0 '' "$millet" inspect c --ops
shows ' resource_[0-9]+, 196608 bytes : int8\[768,256\]$'
shows ' resource_[0-9]+, 12288 bytes : fp16\[768,8\]$'
shows ' resource_[0-9]+, 6144 bytes : fp16\[48,1,64,1\]$' # palettes of 64 for 16 of 768 rows each
[ "$(grep -c ' : int8\[768,256\]$' stdout)" = 1 ] || fail 'more than one weight in int8'
digest=$(sha256sum recipe.json | cut -d ' ' -f 1)
grep -qF "\"compression\":{\"scheme\":\"int4lin-recipe\",\"recipe_sha256\":\"$digest\",\"precision\":\"mixed\"}" c/metadata.json || fail "$(cat c/metadata.json)"
grep -q '"name": "layer_0_mlp_up_proj_weight",.* "scheme": "int8lin"' report.json || fail 'the report does not name int8lin'
expect 0 '' "$millet" verify-manifest c --against "$model"
expect 0 '' bundle --into into --recipe recipe.json
[ -d into/tiny-qwen3.5_ctx2047_coreai_none-recipe ] || fail "$(ls into)"
grep -q '"compression":{"scheme":"none-recipe",' into/*/metadata.json || fail "$(cat into/*/metadata.json)"
grep -q '"compression":{"scheme":"int8lin","precision":"mixed"}' <(bundle -o d --quantize int8lin && cat d/metadata.json) || fail 'int8lin'

# --group-size is that of the palettes: a table for 16 of 512 rows
expect 0 '' bundle -o e --quantize lut4 --group-size 16
expect 0 '' "$millet" inspect e --ops
shows ' resource_[0-9]+, 1024 bytes : fp16\[32,1,16,1\]$'
expect 2 'a group size is for lut schemes' bundle -o none --quantize int8lin --group-size 16

# A checkpoint without a tokenizer: the bundle says so, and holds what it states.
for name in rand-qwen2 rand-qwen3.5-untied; do
    source=$MILLET_CASES/models/$name
    expect 0 'has no tokenizer.json: text needs --tokenizer DIR' "$millet" convert "$source" -o $name --format coreai -q
    grep -q "\"language\":{\"tokenizer\":\"$name\",.*\"embedded_tokenizer\":false," $name/metadata.json || fail "$(cat $name/metadata.json)"
    expect 0 '' "$millet" verify-manifest $name --against "$source"
    shows '^metadata.json: 1 package, .* all as stated$'
done
expect 0 '' "$millet" check rand-qwen2 --against "$MILLET_CASES/models/rand-qwen2" --only structure,ids,weights
sed -i 's/"embedded_tokenizer":false/"embedded_tokenizer":true/' rand-qwen2/metadata.json
expect 1 '' "$millet" verify-manifest rand-qwen2
shows '^tokenizer: embedded_tokenizer: expected a tokenizer, found nothing$'
grep -q '"language":{"tokenizer":"tokenizer",.*"embedded_tokenizer":true,' d/metadata.json || fail "$(cat d/metadata.json)"
finish
