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
shows '^2 of 2 composites rms_norm run as declared, at most '
shows '^1 of 1 composite rope run as declared, at most '
made=$(dirname "$0")/../data/coreai
expect 1 '' "$millet" inspect "$made/composite_untrue.aimodel" --verify
shows '^composite: 1 of 1 composite rms_norm run as declared, at most .* from the decomposition'
expect 1 '' "$millet" inspect "$made/composite_untrue.aimodel" --verify --json
shows '^{"violations":\[{"rule":"composite","message":"1 of 1 composite rms_norm'
expect 0 '' "$millet" inspect "$case/tiny_none/tiny_none.aimodel" --plan
shows '^plan of main: .* 0 without a kernel'
expect 0 '' "$millet" inspect "$case/tiny_none" --json
shows '"asset_version":20260317'

# One of several functions, for one processor: they can be called, but it isn't a language model of a contract known here.
expect 0 '' "$millet" inspect "$case/tiny_ios_b2"
shows 'graph extend'
shows 'embedding_table  int8\[256,1,64\]{align 1,1,1,1; interleave 8,1,1; memory 1}'
expect 0 '' "$millet" inspect "$case/tiny_ios_b2" --plan
shows '^plan of prompt_opt: '
expect 1 'contract coreai: .*function load_embeddings lacks input input_ids' "$millet" run "$case/tiny_ios_b2" --prompt a
# which contradicts nothing that its metadata state
expect 0 '' "$millet" verify-manifest "$case/tiny_ios_b2"
shows '^metadata.json: vocabulary, context and states are not compared: no contract known here fits: .*function load_embeddings lacks input input_ids'
shows '^metadata.json: 1 package, .* all as stated$'
expect 0 '' "$millet" verify-manifest "$case/tiny_ios_b2" --json
shows '"passed":true,.*"failures":\[\],"not_compared":\["tokenizer","language"\]}'
expect 0 '' "$millet" verify-manifest "$case/tiny_none" --json
shows '"not_compared":\["tokenizer"\]}'
# but what stops it from being opened does, and what it says it has and hasn't
cp -r "$case/tiny_ios_b2" "$work/ios"
chmod -R u+w "$work/ios"
rm -r "$work/ios/tokenizer"
expect 1 '' "$millet" verify-manifest "$work/ios"
shows '^tokenizer: embedded_tokenizer: expected a tokenizer, found nothing$'
sed -i 's/primitive.slice_v/primitive.slick_v/' "$work/ios/tiny_ios.aimodel/main.mlirb"
expect 1 '' "$millet" verify-manifest "$work/ios"
shows '^tiny_ios.aimodel: bundle: expected one that can generate, found '

printf 'a text of some bytes' >"$work/text"
expect 0 '' "$millet" score "$case/tiny_4bit" --text-file "$work/text"
expect 0 '.' "$millet" run "$case/tiny_none" --prompt hello -n 4 --ignore-eos
for bundle in tiny_none tiny_qwen35_decode_s1_fp16_dynkv; do
    expect 0 '' "$millet" bench "$case/$bundle" -n 4 -r 1
    shows '^n4 '
done

# Damage, and what it is called.
cp -r "$case/tiny_none" "$work/damaged"
chmod -R u+w "$work/damaged"
asset=$work/damaged/tiny_none.aimodel
printf x >>"$asset/main.mlirb"
expect 1 'main.hash: it is not the SHA-256 of main.mlirb|malformed section' "$millet" inspect "$work/damaged" --verify
head -c 1000 "$case/tiny_none/tiny_none.aimodel/main.mlirb" >"$asset/main.mlirb"
expect 1 'main.mlirb: byte [0-9]+: malformed section' "$millet" run "$work/damaged" --prompt a
sed -i 's/"0.2"/"0.9"/' "$work/damaged/metadata.json"
expect 1 'metadata_version 0.9; 0.2 is known' "$millet" run "$work/damaged" --prompt a

# An op that nobody knows, in a copy of the bundle: no rule is kept that way.
cp -r "$case/tiny_none" "$work/unknown"
chmod -R u+w "$work/unknown"
sed -i 's/primitive.gather_nd_v1/primitive.gather_no_v1/' "$work/unknown/tiny_none.aimodel/main.mlirb"
rm -f "$work/unknown/tiny_none.aimodel/main.hash"
expect 1 'op primitive.gather_no_v1 \(byte [0-9]+\): an unknown op' "$millet" run "$work/unknown" --prompt a
expect 1 '' "$millet" inspect "$work/unknown" --verify
shows '^program: .*/tiny_none.aimodel: graph main, op primitive.gather_no_v1 \(byte [0-9]+\): an unknown op$'
shows '^1 violation$'

# Hostile bundle directories: one line each, whatever is asked of them.
hostile() { # PATTERN STATEMENTS: a fresh copy, damaged; b is its directory, a its asset
    local b=$work/hostile a=$work/hostile/tiny_none.aimodel
    rm -rf "$b" && cp -r "$case/tiny_none" "$b" && chmod -R u+w "$b" && eval "$2"
    expect 1 "$1" "$millet" run "$b" --prompt a -n 1
    expect 1 "$1" "$millet" inspect "$b"
}
hostile 'metadata.json: names the package tiny_none.aimodel, which is not there' 'rm "$a/main.mlirb"'
expect 1 'hostile/tiny_none.aimodel: an .aimodel without main.mlirb, its program$' "$millet" inspect "$work/hostile/tiny_none.aimodel"
expect 1 'hostile/tiny_none.aimodel: an .aimodel without main.mlirb, its program$' "$millet" run "$work/hostile/tiny_none.aimodel" --prompt a
expect 1 'tiny_none.aimodel: an asset, which states nothing; expected the bundle around it$' "$millet" verify-manifest "$work/hostile/tiny_none.aimodel"
mkdir "$work/nothing" && echo '{}' >"$work/nothing/metadata.json"
expect 1 'nothing: its metadata.json names no package, and there is none in it$' "$millet" inspect "$work/nothing"
hostile 'main.mlirb: Too many levels of symbolic links' 'ln -sf main.mlirb "$a/main.mlirb"'
hostile 'main.mlirb: not a regular file' 'rm "$a/main.mlirb"; mkdir "$a/main.mlirb"'
hostile 'main.mlirb: not a regular file' 'rm "$a/main.mlirb"; mkfifo "$a/main.mlirb"'
hostile 'main.mlirb: byte 0: ' ': >"$a/main.mlirb"'
hostile 'tiny_none.aimodel/metadata.json: No such file' 'rm "$a/metadata.json"'
hostile 'assetVersion 3.1, expected 2.0' 'sed -i s/2\\.0/3.1/ "$a/metadata.json"'
hostile 'a path relative to it, without .. parts' 'sed -i "s|tiny_none.aimodel|../hostile/tiny_none.aimodel|" "$b/metadata.json"'
hostile 'a bundle of kind vlm, expected llm' 'sed -i "s/\"llm\"/\"vlm\"/" "$b/metadata.json"'
hostile 'max_context_length: expected a number from 1' 'sed -i "s/\"max_context_length\": *[0-9]*/\"max_context_length\":99999999999/" "$b/metadata.json"'

# Our own: gated like a package, and back to a package.
model=$MILLET_SOURCE/models/tiny-qwen3.5
expect 0 '' "$millet" convert "$model" -o "$work/bundle" --format coreai --quantize int8lin -q
expect 0 '' "$millet" check "$work/bundle" --against "$model" --only structure,ids,scores,weights --budget 16
shows '^passed'
# 62 linear layers; norms, convolutions, decays and the table as they are in the checkpoint
shows '^weights +28 compared exactly, 62 compressed'
shows '^structure .* [1-9][0-9.]* MB of weights;'

# Blocks of a prompt go through prefill functions: the same ids, states within rounding; weights and single steps are gated.
expect 0 '' "$millet" convert "$model" -o "$work/blocks" --format coreai --prefill 4,16 -q
expect 0 '' "$millet" convert "$model" -o "$work/plain" --format coreai -q
expect 0 '' "$millet" inspect "$work/blocks" --profile
shows '^profile of prefill_16: .* without a fast path 0.0 %'
expect 0 '' "$millet" check "$work/blocks" --against "$model" --only steps,weights,prefill --budget 40
shows '^single steps +16 of 16 agree from the reference'
shows '^prefill = decode +([0-9]+) of \1 cases'
shows '^weights +90 compared exactly, 0 compressed$'
printf 'It was a bright cold day in April, and the clocks were striking thirteen. The hall smelt of cabbage and old rag mats.' >"$work/text"
for bundle in plain blocks; do
    "$millet" run "$work/$bundle" --prompt-file "$work/text" -n 24 --linear int16 --json >"$work/stdout" || fail "run $bundle"
    grep -o '"ids":\[[0-9,]*\]' "$work/stdout" >"$work/$bundle.ids" || fail "no ids of $bundle"
done
cmp -s "$work/plain.ids" "$work/blocks.ids" || fail "other ids with prefill functions: $(cat "$work/plain.ids" "$work/blocks.ids")"
# One weight changed is found.
printf '\377' | dd of="$work/blocks/tiny-qwen3.5.aimodel/main.mlirb" bs=1 seek=8000000 conv=notrunc 2>"$work/dd" || fail dd
expect 1 '' "$millet" check "$work/blocks" --against "$model" --only weights
shows 'weight [0-9]+, fp16\[[0-9,]+\]: 1 elements differ'
cp -r "$work/bundle" "$work/odd"
sed -i 's/"max_context_length":[0-9]*/"max_context_length":"x"/' "$work/odd/metadata.json"
expect 1 'metadata.json: language.max_context_length: expected a number from 1' "$millet" run "$work/odd" --prompt a
# What has nothing in common with the checkpoint doesn't pass.
for only in weights steps,weights; do
    expect 1 '' "$millet" check "$case/tiny_none" --against "$model" --only $only
    shows 'weights: none of [0-9]+ has a counterpart'
    shows 'nothing of what was asked for could be compared'
done
expect 1 '' "$millet" check "$work/plain" --against "$model" --only prefill
expect 0 '' "$millet" verify-manifest "$work/bundle" --against "$model"
shows '^metadata.json: 1 package, .* all as stated$'
rm -rf "$work/odd" && cp -r "$work/bundle" "$work/odd"
printf x >"$work/odd/tiny-qwen3.5.aimodel/main.hash"
sed -i 's/"recState":"fixed"/"recState":"kv_cache"/; s/"max_context_length":2047/"max_context_length":100/; s/"vocab_size":4096/"vocab_size":4000/g' "$work/odd/metadata.json"
expect 1 '' "$millet" verify-manifest "$work/odd"
shows 'tiny-qwen3.5.aimodel: main.hash: expected the SHA-256 of main.mlirb'
shows 'tiny-qwen3.5.aimodel: recState: expected kv_cache, found fixed'
shows 'tiny-qwen3.5.aimodel: vocab_size: expected 4000, found 4096'
shows 'metadata.json: stop_ids: expected ids below 4000, found 4063'
expect 0 '' "$millet" verify-manifest "$case/tiny_none"
shows "^metadata.json: states nothing about the tokenizer's files\$"
# Files of the tokenizer are stated by bundles of ours.
rm -rf "$work/odd" && cp -r "$work/bundle" "$work/odd"
echo >>"$work/odd/tokenizer/vocab.json"
rm "$work/odd/tokenizer/merges.txt"
expect 1 '' "$millet" verify-manifest "$work/odd"
shows '^tokenizer/vocab.json: sha256: expected [0-9a-f]{64}, found [0-9a-f]{64}$'
shows '^tokenizer/merges.txt: file: expected listed, found nothing$'
rm "$work/odd/tokenizer/tokenizer.json"
expect 1 '' "$millet" verify-manifest "$work/odd"
shows '^tokenizer/tokenizer.json: file: expected listed, found nothing$'
# A directory around a program is no program, and no output has a program's name.
expect 2 "odd: a directory around a program: give the program in it, $work/odd/tiny-qwen3.5.aimodel$" "$millet" convert "$work/odd" -o "$work/none.mlpackage"
expect 2 'none.aimodel: the output is a directory that will hold an asset; leave out ".aimodel"$' "$millet" convert "$model" -o "$work/none.aimodel" --format coreai
expect 2 '--chunks is for --format coreml$' "$millet" convert "$model" -o "$work/none" --format coreai --chunks 4
[ ! -e "$work/none.mlpackage" ] && [ ! -e "$work/none.aimodel" ] && [ ! -e "$work/none" ] || fail 'something was written'
expect 0 '' "$millet" convert "$model" -o "$work/int4" --format coreai --quantize int4lin
shows '^  int4lin: 62 tensors, 4.50 bits each'
shows '^  as they are: 1 tensor, .*: left alone by the scheme \(lm_head_weight\)$'
expect 0 '' "$millet" check "$work/int4" --against "$model" --only steps,weights --budget 8
shows '^single steps +none were compared$'
expect 0 '' "$millet" inspect "$work/bundle" --verify
expect 0 '' "$millet" convert "$work/bundle/tiny-qwen3.5.aimodel" -o "$work/back.mlpackage" -q
expect 0 '' "$millet" inspect "$work/back.mlpackage" --verify
# what a package can't be, by name
cannot() { # ASSET PATTERN
    expect 1 "^millet: .*$1: $2" "$millet" convert "$case/$1" -o "$work/stopped.mlpackage" -q
    [ ! -e "$work/stopped.mlpackage" ] || fail "$1: something was written"
}
for name in tiny_none tiny_4bit tiny_qwen35_decode_s1_fp16; do
    cannot "$name/$name.aimodel" 'opset: function main, op broadcast_to broadcast_to_[0-9]+: Core ML has no such op$'
done
cannot ops/f_tbf16.aimodel 'opset: function main, op round_as round_as_0: Core ML has no such op$'
cannot ops/f_state.aimodel 'state: acc: state<fp32\[4\]> is not allowed'
# loops pass one way
expect 0 '' "$millet" convert "$case/ops/f_while.aimodel" -o "$work/while.mlpackage" -q
expect 1 'op while_loop .*: it has no counterpart in Core AI$' "$millet" convert "$work/while.mlpackage" -o "$work/while.aimodel" --format coreai -q
expect 1 'back.mlpackage: no contract fits .*The nearest contract, single, lacks input causal_mask and more$' "$millet" run "$work/back.mlpackage" --prompt a
finish
