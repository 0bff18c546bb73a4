# millet convert --variants: the packages, the manifest (digests and signature made anew by Python), what is refused.
. "$(dirname "$0")/lib.sh"
python=$(command -v python3) || {
    echo "skipped: no python3"
    exit 77
}
need_case models/tiny-qwen3/config.json
model=$MILLET_CASES/models/tiny-qwen3
cd "$work" || exit 1
convert() { "$millet" convert "$@"; }
json() { "$python" -c "import json,sys; d=json.load(open('$1/conversion_manifest.json')); v={x['name']: x for x in d['variants']}; sys.exit(not ($2))" || fail "not so in $1: $2"; }

expect 0 '' convert "$model" -o out --variants fp16,w8,w4 --context 96 --top-k 16
grep -q 'recommended: W8' stdout || fail "summary: $(grep recommended stdout)"
[ "$(cd out && echo *)" = "Tokenizer conversion_manifest.json tiny-qwen3-TopK16-FP16.mlpackage tiny-qwen3-TopK16-W4.mlpackage tiny-qwen3-TopK16-W8.mlpackage" ] ||
    fail "holds: $(cd out && echo *)"
json out "d['recommended'] == 'W8' and d['format_version'] == 1 and d['lm_head_strategy'] == 'chunked_32768_fp32_ids'"
json out "[x['scheme'] for x in d['variants']] == ['fp16', 'w8', 'w4'] and d['options']['context'] == 96 and d['options']['top_k'] == 16"
json out "v['FP16']['bits_per_weight'] > 16 > 9 > v['W8']['bits_per_weight'] > 8 > 5 > v['W4']['bits_per_weight'] > 4.4"
json out "all(x['gate'] is None and not x['removed'] for x in d['variants']) and d['model']['revision'] is None"

# what it states about files, and the signature, from nothing but the documentation (docs/formats.md)
"$python" - out "$model" <<'END' || fail "the manifest states what is not so"
import glob, hashlib, json, os, struct, sys
out, model = sys.argv[1:]
d = json.load(open(out + "/conversion_manifest.json"))
names = {"BF16": "bf16", "F16": "fp16", "F32": "fp32"}
stated = [f for v in d["variants"] for f in v["files"]] + d["tokenizer"]["files"]
for f in stated:
    data = open(os.path.join(out, f["path"]), "rb").read()
    assert len(data) == f["bytes"] and hashlib.sha256(data).hexdigest() == f["sha256"], f
on_disk = {os.path.relpath(os.path.join(p, n), out) for p, _, ns in os.walk(out) for n in ns}
assert on_disk == {f["path"] for f in stated} | {"conversion_manifest.json"}
assert all(v["bytes"] == sum(f["bytes"] for f in v["files"]) for v in d["variants"])
text = json.dumps({k: d[k] for k in ("converter", "options")}, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
lines = []
for path in glob.glob(model + "/*.safetensors"):
    raw = open(path, "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    for name, t in json.loads(raw[8:8 + n]).items():
        if name == "__metadata__": continue
        a, b = t["data_offsets"]
        lines.append("%s %s [%s] %s\n" % (name, names[t["dtype"]], ",".join(map(str, t["shape"])),
                                          hashlib.sha256(raw[8 + n + a:8 + n + b]).hexdigest()))
assert hashlib.sha256((text + "\n" + "".join(sorted(lines))).encode()).hexdigest() == d["signature"]
END
# the same again
expect 0 '' convert "$model" -o again --variants fp16,w8,w4 --context 96 --top-k 16 -q
diff -r out again || fail "two conversions differ"
# each package is what --quantize makes
expect 0 '' convert "$model" -o alone --quantize w8 --context 96 --top-k 16 -q
diff -r alone/model.mlpackage out/tiny-qwen3-TopK16-W8.mlpackage || fail "W8 is not what --quantize w8 makes"

# the fp16 package goes at the end; a vocabulary apart; a schemes' list of one; all logits; a snapshot's revision
expect 0 '' convert "$model" -o out --variants w8,fp16 --remove-fp16 --context 96 --top-k 16 -q --overwrite
[ "$(cd out && echo *)" = "Tokenizer conversion_manifest.json tiny-qwen3-TopK16-W8.mlpackage" ] || fail "holds: $(cd out && echo *)"
json out "v['FP16']['removed'] and len(v['FP16']['files']) == 3 and v['FP16']['bytes'] > v['W8']['bytes'] and not v['W8']['removed']"
sum=$(sha256sum <again/tiny-qwen3-TopK16-FP16.mlpackage/Data/com.apple.CoreML/weights/weight.bin | cut -d' ' -f1)
grep -q "$sum" out/conversion_manifest.json || fail "no digest of the removed package"
commit=0123456789abcdef0123456789abcdef01234567
mkdir -p snapshots && ln -s "$model" "snapshots/link" && cp -r "$model" "snapshots/$commit"
expect 0 '' convert "snapshots/$commit" -o one --variants w4 --vocab w8b32 --context 32 --top-k 0 -q
json one "d['recommended'] == 'W4' and d['model']['revision'] == '$commit' and d['options']['vocab'] == 'w8b32'"
json one "v['W4']['package'] == '$commit-Logits-W4.mlpackage' and d['lm_head_strategy'] is None"
expect 0 '' convert snapshots/link/ -o linked --variants lut6 --group-size 16 --context 32 -q
json linked "v['LUT6']['package'] == 'tiny-qwen3-TopK64-LUT6.mlpackage' and d['options']['group_size'] == 16"

# the dtype of the source
expect 1 'holds bfloat16: cast to float16 first, values and mask constants beyond 65504' convert "$model" -o x --source-dtype float16
expect 0 '' convert "$model" -o x --source-dtype bfloat16 -q --context 32
expect 0 '' convert "$model" -o y --source-dtype float32 --variants w8 -q --context 32
json y "d['options']['source_dtype'] == 'float32'"
json out "d['options']['source_dtype'] == 'bfloat16'"
rm -r x y

# refusals
expect 2 'w8 stands there twice' convert "$model" -o x --variants w8,w4,w8
expect 2 'variants w8,w9: scheme w9: expected' convert "$model" -o x --variants w8,w9
expect 2 'variants w8,: scheme : expected' convert "$model" -o x --variants w8,
expect 2 'remove-fp16 needs fp16 and another' convert "$model" -o x --variants w8,w4 --remove-fp16
expect 2 'remove-fp16 needs fp16 and another' convert "$model" -o x --variants fp16 --remove-fp16
expect 2 'remove-fp16 is for --variants' convert "$model" -o x --remove-fp16
expect 2 'leave out --quantize' convert "$model" -o x --variants w8 --quantize w4
expect 2 'not for chunks' convert "$model" -o x --variants w8 --preset chunks
expect 1 'preset single is not for' convert "$MILLET_SOURCE/models/tiny-qwen3.5" -o x --variants w8
expect 2 'prefill is for preset chunks' convert "$model" -o x --variants w8 --prefill 4
[ ! -e x ] || fail "written although refused"
finish
