# millet check: a right artifact passes with the figures that transformers gives, wrong ones fail and are named.
. "$(dirname "$0")/lib.sh"
model=$MILLET_SOURCE/models/tiny-qwen3.5
python=$(command -v python3) || {
    echo "skipped: no python3"
    exit 77
}
json() { "$python" -c "import json,math,sys; d=json.load(open('$work/stdout')); sys.exit(not ($1))" || fail "not so: $1: $(head -c 600 "$work/stdout")"; }
export TMPDIR=$work/tmp
mkdir "$TMPDIR"
echo '[493, 535, 258, 449, 11, 448, 317, 258, 1608, 818, 711, 441]' >"$work/ids"

# passes; nothing stays behind
expect 0 "" "$millet" check "$DEMO" --against "$model" --ids-file "$work/ids" --budget 16 --json
json "d['passed'] is True and d['failures'] == [] and d['positions'] == 12 and d['candidates'] == 0"
json "d['certain_agreement'] == 1 and d['mean_cosine'] > 0.999999 and 0 <= d['mean_kl'] < 1e-5"
json "d['weights']['exact'] > 80 and d['weights']['compressed'] == d['weights']['unmatched'] == d['weights']['missing'] == 0"
json "len(d['worst']) == 5 and all(isinstance(w['token_text'], str) for w in d['worst'])"
json "[w['kl'] for w in d['worst']] == sorted((w['kl'] for w in d['worst']), reverse=True)"
json "d['ranges']['nonfinite'] == 0 and d['ranges']['first_nonfinite'] is None and d['ranges']['hidden'] > 0"
json "(lambda m: m == sorted(m, reverse=True) and m[0] > 0)([v['largest'] for v in d['ranges']['values']])"
json "all(v['largest'] <= 65504 for v in d['ranges']['values'] if v['dtype'] == 'fp16')"
[ -z "$(ls -A "$TMPDIR")" ] || fail "left behind: $(ls -A "$TMPDIR")"
json "d['ranges']['tokens'] == 12 and sum(v['reference'] is None for v in d['ranges']['values']) < 0.05 * d['ranges']['ops']"
json "d['steps']['steps'] == 11 and d['steps']['agree'] == d['steps']['own_agree'] == 11 and d['steps']['kl'] < 1e-5"
json "[l['layer'] for l in d['layers']] == list(range(8)) and all(0 < l['error'] < 1e-3 for l in d['layers'])"
json "d['repetition'] == d['repetition_reference'] and d['repetition']['tokens'] == 64"
json "d['skipped'] == ['repetition: 1 of 9 prompts (--budget)']"
json "d['structure']['states'] == 22 and sum(c['bytes'] for c in d['structure']['classes']) == d['structure']['bytes']"
only() { # MEASUREMENTS ARTIFACT CHECKPOINT OPTIONS...: the command to expect something of
    local what=$1 artifact=$2 checkpoint=$3
    shift 3
    "$millet" check "$artifact" --against "$checkpoint" --ids-file "$work/ids" --only "$what" "$@"
}
expect 0 "" only scores "$DEMO" "$model"
grep -q '^passed$' "$work/stdout" || fail "no verdict: $(tail -1 "$work/stdout")"

# a checkpoint with one byte of one tensor changed, with two equal tensors swapped: named
damage() { # KIND FROM TO: a copy of the checkpoint
    cp -r "$2" "$3" && "$python" - "$1" "$3" <<'END'
import glob, json, struct, sys
kind, path = sys.argv[1:]
file = glob.glob(path + "/*.safetensors")[0]
data = bytearray(open(file, "rb").read())
size = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + size])
def place(suffix):
    name = [k for k in header if k.endswith(suffix) and "mtp" not in k][0]
    a, b = header[name]["data_offsets"]
    return slice(8 + size + a, 8 + size + b)
if kind == "flip": # the last byte: sign of the last element
    data[place("layers.2.mlp.gate_proj.weight").stop - 1] ^= 0x80
elif kind == "norm": # the norm in front of layer 1's MLP multiplies by 64
    p = place("layers.1.post_attention_layernorm.weight")
    data[p] = struct.pack("<H", 0x4280) * ((p.stop - p.start) // 2)
elif kind == "row": # row 1000 of the embedding, which is the head, becomes row 7
    p = place("embed_tokens.weight")
    data[p.start + 512 * 1000:p.start + 512 * 1001] = data[p.start + 512 * 7:p.start + 512 * 8]
elif kind == "scale": # bf16: 14 more in the exponents of numbers that are not 0
    p = place("layers.2.mlp.up_proj.weight")
    for i in range(p.start, p.stop, 2):
        v = data[i] | data[i + 1] << 8
        if v & 0x7F80: data[i:i + 2] = struct.pack("<H", v + (14 << 7))
else:
    a, b = place("layers.1.mlp.up_proj.weight"), place("layers.5.mlp.up_proj.weight")
    data[a], data[b] = data[b], data[a]
open(file, "wb").write(data)
END
}
damage flip "$model" "$work/flipped"
expect 0 "" "$millet" convert "$work/flipped" -o "$work/flipped_out" --quiet
expect 1 "" only weights "$work/flipped_out" "$model" --json
json "not d['passed'] and len(d['failures']) == 1 and len(d['weights']['bad']) == 1"
json "(lambda w: 'layer_2_mlp_gate_proj' in w['name'] and w['differ'] == 1)(d['weights']['bad'][0])"
json "d['weights']['bad'][0]['name'] in d['failures'][0]"
damage swap "$model" "$work/swapped"
expect 0 "" "$millet" convert "$work/swapped" -o "$work/swapped_out" --quiet --quantize w8 --context 64
expect 1 "" only weights,scores "$work/swapped_out" "$model" --json
json "len(d['weights']['bad']) == 2 and d['certain_agreement'] < 0.99 and len(d['failures']) == 3"
json "all('layer_%d_mlp_up_proj' % i in ' '.join(d['failures']) for i in (1, 5))"

# a stale table: that of another checkpoint; one that was damaged
table=tiny-qwen3.5_embed_tokens.fp16.bin
cp -r "$DEMO" "$work/stale"
"$python" - "$work/stale/$table" <<'END'
import struct, sys, zlib
data = bytearray(open(sys.argv[1], "rb").read())
data[64 + 2 * 1000] ^= 1
open(sys.argv[1] + ".bad", "wb").write(data)
data[40:44] = struct.pack("<I", zlib.crc32(bytes(data[64:])))
data[60:64] = struct.pack("<I", zlib.crc32(bytes(data[:60])))
open(sys.argv[1], "wb").write(data)
END
expect 1 "" only weights "$work/stale" "$model" --json
json "[(w['name'], w['differ'], w['first']) for w in d['weights']['bad']] == [('$table', 1, 1000)]"
mv "$work/stale/$table.bad" "$work/stale/$table"
expect 1 "rows do not match their checksum" only weights "$work/stale" "$model"

# a row of the head that is another's: by name, and found below all the rounding of a compressed head
damage row "$model" "$work/aliased"
for scheme in fp16 w4; do
    expect 0 "" "$millet" convert "$work/aliased" -o "$work/aliased_$scheme" --quiet --context 64 --quantize $scheme --table fp16
    cp "$DEMO/$table" "$work/aliased_$scheme/"*_embed_tokens.fp16.bin
    expect 1 "" only weights "$work/aliased_$scheme" "$model" --json
    json "len(d['weights']['bad']) == 1 and d['weights']['bad'][0]['name'] == 'lm_head_weight'"
done
json "d['weights']['bad'][0]['row'] == 1000 and 'row 1000 is not' in d['failures'][0]"

# ranges: a projection scaled by 2^14 overflows fp16 where every op rounds; the plan says what must be fp32, and then
# nothing overflows
damage scale "$model" "$work/scaled"
expect 0 "" "$millet" convert "$work/scaled" -o "$work/scaled_out" --quiet --context 64 --precision float16
expect 1 "" only ranges "$work/scaled_out" "$work/scaled" --json --precision-plan "$work/plan"
json "any('NaN or infinite in strict mode, first in layer_2_mlp_' in f for f in d['failures'])"
json "'main, $work/ids, token ' in d['ranges']['first_path'] and ': layer_2_mlp_' in d['ranges']['first_path']"
"$python" - "$work/plan" <<'END' || fail "the plan"
import json, sys
plan = json.load(open(sys.argv[1]))
assert plan["format"] == "millet-precision-plan" and plan["format_version"] == 1
names = [v["value"] for v in plan["fp32"]]
assert len(set(names)) == len(names) and {"layer_2_mlp_product", "layer_2_out", "layer_7_out"} <= set(names), names
assert all(v["largest"] * 2 > 65504 for v in plan["fp32"] if v["reason"] == "range")
assert not any(n.startswith("layer_1_mlp") or n.startswith("layer_2_self") for n in names), names
END
expect 0 "" "$millet" convert "$work/scaled" -o "$work/planned" --quiet --context 64 --precision float16 --precision-plan "$work/plan"
expect 0 "" only ranges,scores,structure "$work/planned" "$work/scaled" --json --min-agreement 0
json "d['ranges']['nonfinite'] == 0 and d['mean_cosine'] > 0.999"
expect 0 "" "$millet" convert "$work/scaled" -o "$work/planned" --quiet --context 64 --precision mixed --precision-plan "$work/plan" --overwrite
expect 0 "" only ranges "$work/planned" "$work/scaled"
expect 2 "contradicts precision float32" "$millet" convert "$work/scaled" -o "$work/none" --precision float32 --precision-plan "$work/plan"
echo '{"fp32": []}' >"$work/no_plan"
expect 1 "expected a precision plan" "$millet" convert "$work/scaled" -o "$work/none" --precision-plan "$work/no_plan"

# prefill and decode
expect 0 "" "$millet" convert "$model" -o "$work/prefill" --quiet --prefill 4,16 --context 64
expect 0 "" "$millet" check "$work/prefill" --against "$model" --only prefill,structure --budget 0 --json
json "d['prefill']['failed'] == d['prefill']['skipped'] == 0 and d['prefill']['longest'] == 63"
json "{t['sizes'] for t in d['prefill']['tests']} == {'4', '16', '16,4,1', '1,4,16', '16,4'}"
json "all(t['state_error'] < 2 ** -8 and t['expected'] == t['found'] for t in d['prefill']['tests'] if t['margin'] >= 0.02)"
json "(lambda p: p['functions'] == 3 and p['stored_twice'] == 0 and p['shared_bytes'] == p['bytes'])(d['structure']['packages'][0])"
expect 0 "" "$millet" check "$work/prefill" --against "$model" --only prefill --budget 4 --json
json "d['prefill']['cases'] == 1 and d['skipped'][0].startswith('prefill: 1 of ')"

# the threshold is that of the weights, whatever is measured; the page's file is tried before
expect 0 "" "$millet" convert "$model" -o "$work/lut6" --quiet --quantize lut6 --context 64
only scores "$work/lut6" "$model" >"$work/stdout"
grep -q 'at least 97 %: 6-bit weights' "$work/stdout" || fail "another threshold: $(sed -n 4p "$work/stdout")"
expect 1 "none/x.html: can't write" "$millet" check "$DEMO" --against "$model" --html "$work/none/x.html"

# several artifacts side by side, as a table and as a page
expect 0 "" "$millet" convert "$model" -o "$work/w4" --quiet --quantize w4 --context 64
expect 0 "" "$millet" check "$DEMO" --against "$model" --ids-file "$work/ids" --only scores,structure \
    --compare-with "$work/w4" --compare-with "$work/prefill" --json --html "$work/report.html"
json "[a['path'] for a in d['artifacts']] == ['$DEMO', '$work/w4', '$work/prefill']"
json "(lambda a: a[0]['mean_kl'] < a[1]['mean_kl'] and a[1]['bits_per_weight'] < 8 < a[0]['bits_per_weight'])(d['artifacts'])"
"$python" - "$work/report.html" <<'END' || fail "report.html"
import html.parser, sys
page = open(sys.argv[1], encoding="utf-8").read()
class Check(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.seen = [], set()
    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        assert not any(k in ("src", "href") or k.startswith("on") for k, _ in attrs), attrs
        if tag != "meta": self.open.append(tag)
    def handle_startendtag(self, tag, attrs): self.seen.add(tag)
    def handle_endtag(self, tag): assert self.open.pop() == tag, tag
check = Check()
check.feed(page)
assert not check.open and {"svg", "rect", "table", "style"} <= check.seen and "script" not in check.seen
assert "http" not in page and "url(" not in page and 'name="viewport"' in page and "prefers-color-scheme" in page
places = [page.index(x) for x in ("Passed", "Agreement by position", "Error by layer", "Bits per weight", "reference</th>", "In words", "\nstructure ")]
assert places == sorted(places)
END

# metadata that is not the package's
cp -r "$DEMO" "$work/said"
sed -i 's/"context": 2048/"context": 4096/; s/"hidden_size": 256/"hidden_size": 255/' "$work/said/metadata.json"
rm -r "$work/said/Tokenizer"
expect 1 "" only structure,scores "$work/said" "$model" --json
for what in 'context.* states 4096, found 2048' 'hidden_size.* states 255, found 256' Tokenizer; do
    grep -q "$what" "$work/stdout" || fail "$what is not named: $(head -c 600 "$work/stdout")"
done
json "all(w['token_text'] is None for w in d['worst'])"

# a set of packages: every boundary, also when one hands on what it should not; two packages swapped, a state that is missing, one byte of a weight file
expect 0 "" "$millet" convert "$model" -o "$work/set" --quiet --quantize lut6 --chunks 3 --prefill 4 --context 64
expect 0 "" "$millet" check "$work/set" --against "$model" --ids-file "$work/ids" --json --min-agreement 0
json "[b['package'] for b in d['boundaries']] == ['chunk_%d_of_3.mlpackage' % i for i in (1, 2)]"
json "(lambda e: all(abs(b['error'] - e[b['layer']]) < 1e-3 * b['error'] for b in d['boundaries']))({l['layer']: l['error'] for l in d['layers']})"
json "d['weights']['unmatched'] == d['weights']['missing'] == 0 and d['structure']['states'] == 22"
json "all(p['shared_bytes'] == p['bytes'] for p in d['structure']['packages']) and d['structure']['checked_files'] > 9"
damage norm "$model" "$work/zero_norm"
expect 0 "" "$millet" convert "$work/zero_norm" -o "$work/wrong" --quiet --quantize lut6 --chunks 3 --prefill 4 --context 64
expect 1 "" only scores "$work/wrong" "$model" --json --min-agreement 0
json "[f.split(':')[0] for f in d['failures']] == ['chunk_1_of_3.mlpackage', 'chunk_2_of_3.mlpackage'] and 'behind layer 2' in d['failures'][0]"
mv "$work/set/chunk_1_of_3.mlpackage" "$work/first"
mv "$work/set/chunk_2_of_3.mlpackage" "$work/set/chunk_1_of_3.mlpackage"
mv "$work/first" "$work/set/chunk_2_of_3.mlpackage"
expect 1 "chunk_2_of_3.mlpackage .*wrong order" only structure "$work/set" "$model"
mv "$work/set/chunk_2_of_3.mlpackage" "$work/first"
mv "$work/set/chunk_1_of_3.mlpackage" "$work/set/chunk_2_of_3.mlpackage"
mv "$work/first" "$work/set/chunk_1_of_3.mlpackage"
sed -i '0,/"k_3"/s//"k_9"/' "$work/set/metadata.json"
expect 1 "" only structure "$work/set" "$model" --json
json "any('k_9' in f or 'k_3' in f for f in d['failures'])"
sed -i '0,/"k_9"/s//"k_3"/' "$work/set/metadata.json"
"$python" - "$work/set/chunk_2_of_3.mlpackage/Data/com.apple.CoreML/weights/weight.bin" <<'END'
import sys
data = bytearray(open(sys.argv[1], "rb").read())
data[len(data) // 2] ^= 1
open(sys.argv[1], "wb").write(data)
END
expect 1 "" only structure "$work/set" "$model" --json
json "len(d['failures']) == 1 and 'chunk_2_of_3.mlpackage/Data/com.apple.CoreML/weights/weight.bin: sha256' in d['failures'][0]"

# refusals
expect 2 "give the checkpoint" "$millet" check "$DEMO"
expect 2 "no measurement" "$millet" check "$DEMO" --against "$model" --only scores,speed
expect 2 "needs the measurement ranges" "$millet" check "$DEMO" --against "$model" --only scores --precision-plan "$work/none"
expect 2 "name the same file" "$millet" check "$DEMO" --against "$model" --html "$work/none" --precision-plan "$work/none"
expect 2 "8 times, not 9" "$millet" check "$DEMO" --against "$model" $(printf ' --compare-with x%.0s' 1 2 3 4 5 6 7 8 9)
expect 2 "not both" "$millet" check "$DEMO" --against "$model" --ids-file "$work/ids" --text-file "$work/ids"
expect 1 "reference: .*nowhere" "$millet" check "$DEMO" --against /nowhere --ids-file "$work/ids"
echo 4096 >"$work/beyond"
expect 1 "4096 at index 0 is outside the vocabulary" "$millet" check "$DEMO" --against "$model" --ids-file "$work/beyond"
[ -z "$(ls -A "$TMPDIR")" ] || fail "left behind: $(ls -A "$TMPDIR")"

# both forms against transformers: top-1 and NLL of a teacher-forced text (oracles/README.md)
need_case oracles/tiny-qwen3/oracle.json
for name in tiny-qwen3.5 tiny-qwen3; do
    "$python" -c "import json,sys; json.dump(json.load(open(sys.argv[1]))['teacher_forced']['ids'], sys.stdout)" \
        "$MILLET_CASES/oracles/$name/oracle.json" >"$work/forced"
    "$millet" convert "$MILLET_CASES/models/$name" -o "$work/$name" --quiet --top-k 0 || fail "convert $name"
    expect 0 "" "$millet" check "$work/$name" --against "$MILLET_CASES/models/$name" --ids-file "$work/forced" --json --only scores
    oracle="json.load(open('$MILLET_CASES/oracles/$name/oracle.json'))['teacher_forced']"
    # The reference: the same fp32 arithmetic in another order, 1e-4 of a mean. Mixed: fp16 weights and caches.
    json "(lambda t: abs(math.log(d['perplexity_reference']) - t['mean_nll']) < 1e-4)($oracle)"
    json "(lambda t: abs(math.log(d['perplexity']) - t['mean_nll']) < 2e-3)($oracle)"
    json "(lambda t: d['certain'] == sum(m >= 0.1 for m in t['margin']) or min(abs(m - 0.1) for m in t['margin']) < 1e-3)($oracle)"
done
# candidates
"$millet" convert "$MILLET_CASES/models/tiny-qwen3" -o "$work/best" --quiet --top-k 8 || fail "convert --top-k 8"
expect 0 "" "$millet" check "$work/best" --against "$MILLET_CASES/models/tiny-qwen3" --ids-file "$work/forced" --json --only scores,ids
json "d['candidates'] == 8 and d['bad_ids'] == 0 and d['passed'] and d['outside_candidates'] > 0 and d['mean_cosine'] > 0.99999"
# every row of a vocabulary of 151936 in five pieces; one of the ids' offsets moved by a piece
"$millet" convert "$MILLET_CASES/models/rand-qwen3-bigvocab" -o "$work/big" --quiet --context 64 2>/dev/null || fail "convert big"
echo '80182 70136 150000 65535 65536' >"$work/large"
expect 0 "" "$millet" check "$work/big" --against "$MILLET_CASES/models/rand-qwen3-bigvocab" --ids-file "$work/large" --json --only ids,weights
json "d['ids'] == {'pieces': 5, 'rows': 151936, 'audited': 151936, 'wrong': 0}"
"$python" - "$work/big/model.mlpackage/Data/com.apple.CoreML/model.mlmodel" <<'END'
import struct, sys
data = open(sys.argv[1], "rb").read()
old, new = (struct.pack("<f", x) for x in (32768, 65536))
assert data.count(old) == 1
open(sys.argv[1], "wb").write(data.replace(old, new))
END
expect 1 "" "$millet" check "$work/big" --against "$MILLET_CASES/models/rand-qwen3-bigvocab" --ids-file "$work/large" --json --only ids,weights
json "d['ids']['wrong'] == 32768 and any('row 32768 returns 65536' in f for f in d['failures'])"

# of another model
expect 1 "vocabulary|token ids|no preset|preset" "$millet" check "$work/best" --against "$model" --ids-file "$work/ids"
finish
