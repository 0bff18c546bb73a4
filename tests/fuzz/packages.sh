# Plan against evaluator over every package of the shared cases and over converted ones of every form (GRAPHS: the program).
source "$MILLET_SOURCE/tests/cli/lib.sh"
need_case coreml
out=$work/out
convert() { # MODEL NAME OPTIONS...: into $out/NAME
    "$millet" convert "$MILLET_CASES/models/$1" -o "$out/$2" --context 128 --quiet "${@:3}" >"$work/log" 2>&1 ||
        fail "convert $1 ${*:3}: $(head -c 400 "$work/log")"
}
mkdir "$out"
convert tiny-qwen3 single
convert rand-qwen2 single-lut6 --quantize lut6
convert rand-llama stacked-w8b32 --preset chunks --kv stacked --quantize w8b32 --prefill 8
convert rand-qwen2 w8 --preset chunks --quantize w8 --precision float16
convert rand-llama lut4 --preset chunks --quantize lut4 --prefill 16 --chunks 2
convert rand-qwen3.5-untied fp16 --prefill 8,16
convert rand-qwen3.5-untied float32 --precision float32 --prefill 16
convert rand-qwen3.5-textonly w4 --quantize w4 --precision float16 --state fp16 --chunks 2
"${GRAPHS:?}" --packages "$out" "$MILLET_CASES/coreml" "$MILLET_CASES/thirdparty" || fail "plan and evaluator differ"
finish
