# millet inspect, predict, run, score and bench on Core AI assets and bundles (tests/golden/test_coreai.c has the numbers).
. "$(dirname "$0")/lib.sh"
need_case coreai
case=$MILLET_CASES/coreai
shows() { grep -qE -e "$1" "$work/stdout" || fail "'$1' is not shown"; }

expect 0 '' "$millet" inspect "$case/tiny_none"
shows 'Core AI asset 20260317'
shows 'keyCache +fp16\[2,1,2,128,32\]'
shows 'a composite: scaled_dot_product_attention'
expect 0 '' "$millet" inspect "$case/tiny_none" --ops
shows '^graph @main'
shows 'primitive.gather_nd_v1'
expect 0 '' "$millet" inspect "$case/tiny_none" --verify
shows '^every rule is kept$'
expect 0 '' "$millet" inspect "$case/tiny_none/tiny_none.aimodel" --plan
shows '^plan of main: .* 0 without a kernel'
expect 0 '' "$millet" inspect "$case/tiny_none" --json
shows '"asset_version":20260317'

# One that can't be run can be looked at.
expect 0 '' "$millet" inspect "$case/tiny_ios_b2"
shows 'graph extend'
expect 1 'op ax.copy_with_constraints_v1 .*a layout for one processor' "$millet" run "$case/tiny_ios_b2" --prompt a

printf 'a text of some bytes' >"$work/text"
expect 0 '' "$millet" score "$case/tiny_4bit" --text-file "$work/text"
expect 0 '.' "$millet" run "$case/tiny_none" --prompt hello -n 4 --ignore-eos
for bundle in tiny_none tiny_qwen35_decode_s1_fp16_dynkv; do
    expect 0 '' "$millet" bench "$case/$bundle" -n 4 -r 1
    shows '^n4 '
done

# Damage, and what it is called.
cp -r "$case/tiny_none" "$work/bundle"
chmod -R u+w "$work/bundle"
asset=$work/bundle/tiny_none.aimodel
printf x >>"$asset/main.mlirb"
expect 1 'main.hash: it is not the SHA-256 of main.mlirb|malformed section' "$millet" inspect "$work/bundle" --verify
head -c 1000 "$case/tiny_none/tiny_none.aimodel/main.mlirb" >"$asset/main.mlirb"
expect 1 'main.mlirb: byte [0-9]+: malformed section' "$millet" run "$work/bundle" --prompt a
sed -i 's/"0.2"/"0.9"/' "$work/bundle/metadata.json"
expect 1 'metadata_version 0.9; 0.2 is known' "$millet" run "$work/bundle" --prompt a
finish

# Our own: gated like a package, and back to a package.
model=$MILLET_SOURCE/models/tiny-qwen3.5
expect 0 '' "$millet" convert "$model" -o "$work/bundle" --format coreai --quantize int8lin -q
expect 0 '' "$millet" check "$work/bundle" --against "$model" --only structure,ids,scores --budget 16
shows '^passed'
cp -r "$work/bundle" "$work/odd"
sed -i 's/"max_context_length":[0-9]*/"max_context_length":"x"/' "$work/odd/metadata.json"
expect 1 'metadata.json: language.max_context_length: expected a number from 1' "$millet" run "$work/odd" --prompt a
expect 1 'inspect --verify' "$millet" verify-manifest "$work/bundle"
expect 0 '' "$millet" inspect "$work/bundle" --verify
expect 0 '' "$millet" convert "$work/bundle/tiny-qwen3.5.aimodel" -o "$work/back.mlpackage" -q
expect 0 '' "$millet" inspect "$work/back.mlpackage" --verify
