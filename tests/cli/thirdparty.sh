# millet run, score and bench on packages that other converters wrote (tests/golden/test_thirdparty.c has the details).
. "$(dirname "$0")/lib.sh"
need_case thirdparty
python=$(command -v python3) || {
    echo "skipped: no python3"
    exit 77
}
cat >"$work/compare.py" <<'END'
"""compare.py DIR ids: writes prompt and full ids. compare.py DIR run|score: what the program said against the oracles."""
import array, json, math, os, struct, sys
case, what = sys.argv[1:3]
work = os.environ["WORK"]

def tensors(path):
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    head = {k: v for k, v in json.loads(data[8:8 + n]).items() if k != "__metadata__"}
    code = {"F32": "f", "I32": "i", "I64": "q"}
    return {k: (v["shape"], array.array(code[v["dtype"]], data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]]))
            for k, v in head.items() if v["dtype"] in code}

oracle = json.load(open(case + "/oracle.json"))
if what == "ids":
    json.dump(oracle["prompt_ids"], open(work + "/prompt", "w"))
    json.dump(list(tensors(case + "/oracle.safetensors")["greedy_full_ids"][1]), open(work + "/full", "w"))
    sys.exit()
got = json.load(open(work + "/stdout"))
if what == "run":
    sys.exit(got["ids"] != oracle["greedy_new_ids"] and "ids: %s" % got["ids"])
package, logits = tensors(case + "/pkg_oracle.safetensors"), tensors(work + "/logits")["logits"]
width, positions = logits[0][1], package["positions"][1]
worst = flips = 0
for row, at in enumerate(positions):
    want, have = package["pkg_logits"][1][row * width:(row + 1) * width], logits[1][at * width:(at + 1) * width]
    worst = max(worst, max(abs(a - b) for a, b in zip(want, have)))
    best = max(range(width), key=have.__getitem__)
    flips += best != max(range(width), key=want.__getitem__) and (2 if max(want) - want[best] > 0.05 else 1)
if not worst < float(sys.argv[3]) or flips > 1:
    sys.exit("logits differ by %g, %d flips" % (worst, flips))
if "argmax" in got and not (got["argmax_only"] and got["mean_nll"] is None) or "argmax_only" not in got and not got["mean_nll"] > 0:
    sys.exit("score: %s" % got)
END
export WORK=$work
for set in "$MILLET_CASES"/thirdparty/*/; do
    set=${set%/}
    name=$(basename "$set")
    "$python" "$work/compare.py" "$set" ids
    for precision in fast strict; do
        most=0.2
        [ "$name $precision" = "bhctsntrk-anemll-qwen3.5-lut4-2chunk strict" ] && most=0.25 # see test_thirdparty.c
        expect 0 "" "$millet" score "$set" --ids-file "$work/full" --logits "$work/logits" --precision $precision --json
        "$python" "$work/compare.py" "$set" score $most || fail "$name, $precision: score"
        [ "$name" = anemll035-llama-lut6-4pertensor-6 ] && continue # its converter changed the model
        expect 0 "" "$millet" run "$set" --raw-ids "$work/prompt" -n 24 --ignore-eos --repetition-penalty 1 \
            --precision $precision --json
        "$python" "$work/compare.py" "$set" run || fail "$name, $precision: run"
    done
    expect 0 "prompt: .*decode: " "$millet" run "$set" --prompt "Once upon a time" -n 4 --ignore-eos # its own tokenizer
    expect 0 "" "$millet" bench "$set" -n 4 -d 16 -r 1 --json
    packages=$(find "$set" -maxdepth 1 -name '*.mlpackage' | wc -l)
    expect 0 "" "$millet" inspect "$set"
    [ "$(grep -c '^  Core ML specification' "$work/stdout")" = "$packages" ] || fail "$name: inspect does not show $packages packages"
    [ "$packages" = 1 ] || grep -q '^  contract [a-z]' "$work/stdout" || fail "$name: inspect names no contract"
    expect 0 "" "$millet" inspect "$set" --verify
done
# A set is held against a checkpoint as what it is, here another model.
if [ -e "$MILLET_CASES/models/tiny-qwen3" ]; then
    expect 1 'the artifact returns 512 logits, the checkpoint has a vocabulary of 4160' \
        "$millet" check "$MILLET_CASES/thirdparty/anemll035-qwen3-lut46-2chunk" --against "$MILLET_CASES/models/tiny-qwen3"
fi

best=$MILLET_CASES/thirdparty/johnrocky-qwen3-fp16-monolithic
expect 1 "model.mlpackage: its graph returns the best token only, no scores: it can't sample or penalise" \
    "$millet" run "$best" --raw-ids "$work/prompt" --temperature 0.8
expect 0 "" "$millet" score "$best" --ids-file "$work/full"
grep -q "returns the best token of each position only, no probabilities" "$work/stdout" || fail "score says: $(cat "$work/stdout")"
"$python" -c "import json; print(json.dumps(json.load(open('$MILLET_SOURCE/share/contracts/argmax-monolithic.json'))))" >"$work/own.json"
expect 0 "" "$millet" run "$best" --contract "$work/own.json" --raw-ids "$work/prompt" -n 24 --ignore-eos --json
"$python" "$work/compare.py" "$best" run || fail "--contract"
expect 0 "" "$millet" bench "$best" --contract "$work/own.json" -n 4 -r 1 --start --json
sed -i 's/update_mask/write_mask/' "$work/own.json"
expect 1 "argmax-monolithic, as model_config.json says: .*lacks input write_mask" \
    "$millet" run "$best" --contract "$work/own.json" --raw-ids "$work/prompt"
echo '{"format": "millet contract", "version": 1, "name": 5}' >"$work/own.json"
expect 1 "own.json: name: expected a text" "$millet" run "$best" --contract "$work/own.json" --raw-ids "$work/prompt"
expect 1 "no contract fits .*Found op_state.mlpackage.*function main of op_state.mlpackage has inputs x fp16.* The nearest contract, chunks, lacks input hidden and more$" \
    "$millet" run "$MILLET_CASES/coreml/op_state.mlpackage" --raw-ids "$work/prompt"
# What has nothing of a language model is said to be none, in a short line, unless a contract was given.
expect 1 "op_misc_mil.mlpackage: not a language model: function main has inputs x fp16.*; expected token ids or rows of embeddings as input and scores of a vocabulary as output" \
    "$millet" chat "$MILLET_CASES/coreml/op_misc_mil.mlpackage"
[ "$(sed 's/.*: not a language/not a language/' "$work/stderr" | wc -c)" -lt 320 ] || fail "a long line: $(cat "$work/stderr")"
finish
