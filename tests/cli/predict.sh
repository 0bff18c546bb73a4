# millet predict: its errors, one line each. (Results: python/test_predict.py and the golden tests.)
. "$(dirname "$0")/lib.sh" || exit 1
need_case coreml/op_state.json
case=$MILLET_CASES/coreml/op_state
out=$work/out.safetensors

expect 2 '--output is missing' "$millet" predict "$case.mlpackage" --calls "$case.json"
expect 2 'give --inputs or --calls' "$millet" predict "$case.mlpackage" -o "$out"
expect 2 '--function and --calls exclude each other' "$millet" predict "$case.mlpackage" -o "$out" --calls "$case.json" --function main
expect 1 'no such package' "$millet" predict "$work/none" --calls "$case.json" -o "$out"
expect 1 'none.json: No such file' "$millet" predict "$case.mlpackage" --calls "$work/none.json" -o "$out"
expect 1 'none.safetensors: No such file' "$millet" predict "$case.mlpackage" --inputs "$work/none.safetensors" -o "$out"
expect 1 'no-such-function' "$millet" predict "$case.mlpackage" --inputs "$case.safetensors" -o "$out" --function no-such-function
expect 1 '.' "$millet" predict "$case.mlpackage" --inputs "$case.safetensors" -o "$out"
echo '{"calls": 1}' >"$work/calls.json"
expect 1 'names no "tensors" file' "$millet" predict "$case.mlpackage" --calls "$work/calls.json" -o "$out"
expect 1 'calls' "$millet" predict "$case.mlpackage" --calls "$work/calls.json" --inputs "$case.safetensors" -o "$out"
[ ! -e "$out" ] || fail "an output file after an error"
expect 1 'No such file|No space|full' "$millet" predict "$case.mlpackage" --calls "$case.json" -o "$work/none/out.safetensors"
expect 0 '' "$millet" predict "$case.mlpackage/" --calls "$case.json" -o "$out" --precision strict
[ -s "$out" ] || fail "no output file"

# Paths may hold any bytes.
odd=$work/$'b\xe9'
cp -r "$case.mlpackage" "$odd.mlpackage"
expect 0 '' "$millet" predict "$odd.mlpackage" --calls "$case.json" -o "$odd.safetensors"
"$millet" predict "$case.mlpackage" --calls "$case.json" -o "$out"
cmp -s "$odd.safetensors" "$out" || fail "the same package under another name gives other results"
finish
