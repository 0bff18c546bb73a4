# millet predict: its errors, one line each. (Results: python/test_predict.py and the golden tests.)
. "$(dirname "$0")/lib.sh" || exit 1
need_case coreml/op_state.json
python=$(command -v python3) || {
    echo "skipped: no python3"
    exit 77
}
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

# A value that is an output too, or is named twice, comes once.
"$python" - "$work/in.safetensors" <<'END'
import json, struct, sys
head = json.dumps({"x": {"dtype": "F32", "shape": [1, 4], "data_offsets": [0, 16]},
                   "pos": {"dtype": "I32", "shape": [1], "data_offsets": [16, 20]}}).encode()
open(sys.argv[1], "wb").write(struct.pack("<Q", len(head)) + head + struct.pack("<4fi", 1, 2, 3, 4, 0))
END
expect 0 '' "$millet" predict "$case.mlpackage" --inputs "$work/in.safetensors" -o "$out" --values a,a,x,x
for name in a x; do
    [ "$(grep -ao "\"$name\":" "$out" | wc -l)" = 1 ] || fail "not one tensor $name: $(head -c 300 "$out")"
done
mkfifo "$work/pipe"
expect 1 'pipe: not a regular file' timeout 20 "$millet" predict "$case.mlpackage" --inputs "$work/pipe" -o "$out"
echo '{"calls": [{"function": "none"}]}' >"$work/calls.json"
expect 1 'calls.json: call 0: the package has no function none' "$millet" predict "$case.mlpackage" \
    --calls "$work/calls.json" --inputs "$work/in.safetensors" -o "$out"

# Calls through standard input: the tensors' file is looked for in the current directory.
same() { # same HOW COMMAND...: what the calls file alone gives
    local how=$1
    shift
    rm -f "$work/other.safetensors"
    (cd "$(dirname "$case")" && "$@" -o "$work/other.safetensors" <"$case.json") || fail "$how"
    cmp -s "$work/other.safetensors" "$out" || fail "$how: other results"
}
"$millet" predict "$case.mlpackage" --calls "$case.json" -o "$out"
same 'calls through a pipe' "$millet" predict "$case.mlpackage" --calls -
same 'with --inputs' "$millet" predict "$case.mlpackage" --calls - --inputs "$case.safetensors"
expect 1 'standard input: empty, expected JSON' "$millet" predict "$case.mlpackage" --calls - -o "$out"
rm -f "$out"

# Paths may hold any bytes.
odd=$work/$'b\xe9'
cp -r "$case.mlpackage" "$odd.mlpackage"
expect 0 '' "$millet" predict "$odd.mlpackage" --calls "$case.json" -o "$odd.safetensors"
"$millet" predict "$case.mlpackage" --calls "$case.json" -o "$out"
cmp -s "$odd.safetensors" "$out" || fail "the same package under another name gives other results"
finish
