# millet inspect on the small model's package: text, listing, JSON, verification, errors.
. "$(dirname "$0")/lib.sh" || exit 1

shows() { grep -qE -e "$1" "$work/stdout" || fail "inspect does not show '$1'"; }

expect 0 '' "$millet" inspect "$DEMO"
shows 'Core ML specification 9'
shows 'function main, opset CoreML8'
shows 'hidden +fp16\[1,1,256\]  512 B'
shows 'logits +fp32\[1,4096\]  16.0 KiB'
shows 'k_3 +state<fp16\[1,2,2048,64\]>  512.0 KiB'
shows 'linear [0-9]+'
shows '^  fp16 +[0-9]+ +[0-9]+ +16\.00 +[0-9.]+$'
cp "$work/stdout" "$work/whole"
expect 0 '' "$millet" inspect "$DEMO/model.mlpackage/"
diff <(tail -n +2 "$work/stdout") <(tail -n +2 "$work/whole") >/dev/null || fail "an artifact and its package differ"

expect 0 '' "$millet" inspect "$DEMO" --ops
shows '^function main'
shows '%logits: fp32\[1,4096\] = '
shows '%layer_7_out: fp32\[1,1,256\] = '

expect 0 '' "$millet" inspect "$DEMO" --verify
shows '^every rule is kept$'
expect 2 '--ops and --json exclude' "$millet" inspect "$DEMO" --ops --json

# Every function runs on made-up inputs; our own packages have a fast path for everything.
expect 0 '' "$millet" inspect "$DEMO" --profile --position 3
shows '^profile of main: [0-9.]+ ms a call .* without a fast path 0\.0 % \(0 steps\), in plain loops [0-9.]+ %$'
shows '^ +[0-9.]+ % +[0-9.]+ ms +[0-9]+  gated linear'
expect 1 'function main' "$millet" inspect "$DEMO" --profile --position 1000000
expect 2 '--profile excludes' "$millet" inspect "$DEMO" --profile --plan

# A description that does not fit its program: every violation is printed.
cp -r "$DEMO/model.mlpackage" "$work/broken.mlpackage"
sed -i '0,/logits/s//lagits/' "$work/broken.mlpackage/Data/com.apple.CoreML/model.mlmodel"
expect 1 '' "$millet" inspect "$work/broken.mlpackage" --verify
shows 'lagits'
shows '^[0-9]+ violations?$'
expect 1 '' "$millet" inspect "$work/broken.mlpackage" --verify --json
shows '^\{"violations":\[\{"rule":".*"message":'
expect 0 '' "$millet" inspect "$work/broken.mlpackage"

# So is an embedding table with other rows than were written.
cp -r "$DEMO" "$work/table"
printf 'xx' | dd of="$work/table/tiny-qwen3.5_embed_tokens.fp16.bin" bs=1 seek=5000 conv=notrunc 2>/dev/null
expect 1 '' "$millet" inspect "$work/table" --verify
shows 'embedding-table: .*embed_tokens.fp16.bin: the rows do not match their checksum'

expect 1 'no such package' "$millet" inspect "$work/none"
mkdir "$work/nothing"
expect 1 'neither a package' "$millet" inspect "$work/nothing"
head -c 1000 "$DEMO/model.mlpackage/Data/com.apple.CoreML/model.mlmodel" >"$work/broken.mlpackage/Data/com.apple.CoreML/model.mlmodel"
expect 1 'model.mlmodel' "$millet" inspect "$work/broken.mlpackage"
finish
