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
expect 0 "" "$millet" check "$DEMO" --against "$model" --ids-file "$work/ids" --ranges --json
json "d['passed'] is True and d['failures'] == [] and d['positions'] == 12 and d['candidates'] == 0"
json "d['certain_agreement'] == 1 and d['mean_cosine'] > 0.999999 and 0 <= d['mean_kl'] < 1e-5"
json "d['weights']['exact'] > 80 and d['weights']['compressed'] == d['weights']['unmatched'] == d['weights']['missing'] == 0"
json "len(d['worst']) == 5 and all(isinstance(w['token_text'], str) for w in d['worst'])"
json "[w['kl'] for w in d['worst']] == sorted((w['kl'] for w in d['worst']), reverse=True)"
json "d['ranges']['nonfinite'] == 0 and d['ranges']['first_nonfinite'] is None and d['ranges']['hidden'] > 0"
json "(lambda m: m == sorted(m, reverse=True) and m[0] > 0)([v['largest'] for v in d['ranges']['values']])"
json "all(v['largest'] <= 65504 for v in d['ranges']['values'] if v['dtype'] == 'fp16')"
[ -z "$(ls -A "$TMPDIR")" ] || fail "left behind: $(ls -A "$TMPDIR")"
expect 0 "" "$millet" check "$DEMO" --against "$model" --ids-file "$work/ids"
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
expect 1 "" "$millet" check "$work/flipped_out" --against "$model" --ids-file "$work/ids" --json
json "not d['passed'] and len(d['failures']) == 1 and len(d['weights']['bad']) == 1"
json "(lambda w: 'layer_2_mlp_gate_proj' in w['name'] and w['differ'] == 1)(d['weights']['bad'][0])"
json "d['weights']['bad'][0]['name'] in d['failures'][0]"
damage swap "$model" "$work/swapped"
expect 0 "" "$millet" convert "$work/swapped" -o "$work/swapped_out" --quiet --quantize w8
expect 1 "" "$millet" check "$work/swapped_out" --against "$model" --ids-file "$work/ids" --json
json "len(d['weights']['bad']) == 2 and d['certain_agreement'] < 0.99 and len(d['failures']) == 3"
json "all('layer_%d_mlp_up_proj' % i in ' '.join(d['failures']) for i in (1, 5))"

# a stale table: that of another checkpoint; one that was damaged
cp -r "$DEMO" "$work/stale"
"$python" - "$work/stale/tiny-qwen3.5_embed_tokens.fp16.bin" <<'END'
import struct, sys, zlib
data = bytearray(open(sys.argv[1], "rb").read())
data[64 + 2 * 1000] ^= 1
open(sys.argv[1] + ".bad", "wb").write(data)
data[40:44] = struct.pack("<I", zlib.crc32(bytes(data[64:])))
data[60:64] = struct.pack("<I", zlib.crc32(bytes(data[:60])))
open(sys.argv[1], "wb").write(data)
END
expect 1 "" "$millet" check "$work/stale" --against "$model" --ids-file "$work/ids" --json
json "[(w['name'], w['differ'], w['first']) for w in d['weights']['bad']] == [('embed_tokens.bin', 1, 1000)]"
mv "$work/stale/tiny-qwen3.5_embed_tokens.fp16.bin.bad" "$work/stale/tiny-qwen3.5_embed_tokens.fp16.bin"
expect 1 "rows do not match their checksum" "$millet" check "$work/stale" --against "$model" --ids-file "$work/ids"

# ranges: a projection scaled by 2^14 overflows fp16 where every op rounds
damage scale "$model" "$work/scaled"
expect 0 "" "$millet" convert "$work/scaled" -o "$work/scaled_out" --quiet --precision float16
expect 1 "" "$millet" check "$work/scaled_out" --against "$work/scaled" --ids-file "$work/ids" --ranges --json
json "any('NaN or infinite in strict mode, first in layer_2_mlp_' in f for f in d['failures'])"

# metadata that is not the package's
cp -r "$DEMO" "$work/said"
sed -i 's/"context": 2048/"context": 4096/; s/"hidden_size": 256/"hidden_size": 255/' "$work/said/metadata.json"
rm -r "$work/said/Tokenizer"
expect 1 "" "$millet" check "$work/said" --against "$model" --ids-file "$work/ids" --json
json "d['failures'] == ['metadata.json: context is not 2048, as in the package', 'metadata.json: hidden_size is not 256, as in the package', 'metadata.json: tokenizer is not there']"
json "all(w['token_text'] is None for w in d['worst'])"

# refusals
expect 2 "give the checkpoint" "$millet" check "$DEMO"
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
    expect 0 "" "$millet" check "$work/$name" --against "$MILLET_CASES/models/$name" --ids-file "$work/forced" --json
    oracle="json.load(open('$MILLET_CASES/oracles/$name/oracle.json'))['teacher_forced']"
    # The reference: the same fp32 arithmetic in another order, 1e-4 of a mean. Mixed: fp16 weights and caches.
    json "(lambda t: abs(math.log(d['perplexity_reference']) - t['mean_nll']) < 1e-4)($oracle)"
    json "(lambda t: abs(math.log(d['perplexity']) - t['mean_nll']) < 2e-3)($oracle)"
    json "(lambda t: d['certain'] == sum(m >= 0.1 for m in t['margin']) or min(abs(m - 0.1) for m in t['margin']) < 1e-3)($oracle)"
done
# candidates
"$millet" convert "$MILLET_CASES/models/tiny-qwen3" -o "$work/best" --quiet --top-k 8 || fail "convert --top-k 8"
expect 0 "" "$millet" check "$work/best" --against "$MILLET_CASES/models/tiny-qwen3" --ids-file "$work/forced" --json
json "d['candidates'] == 8 and d['bad_ids'] == 0 and d['passed'] and d['outside_candidates'] > 0 and d['mean_cosine'] > 0.99999"
# every row of a vocabulary of 151936 in five pieces; one of the ids' offsets moved by a piece
"$millet" convert "$MILLET_CASES/models/rand-qwen3-bigvocab" -o "$work/big" --quiet --context 64 2>/dev/null || fail "convert big"
echo '80182 70136 150000 65535 65536' >"$work/large"
expect 0 "" "$millet" check "$work/big" --against "$MILLET_CASES/models/rand-qwen3-bigvocab" --ids-file "$work/large" --json
json "d['ids'] == {'pieces': 5, 'rows': 151936, 'audited': 151936, 'wrong': 0}"
"$python" - "$work/big/model.mlpackage/Data/com.apple.CoreML/model.mlmodel" <<'END'
import struct, sys
data = open(sys.argv[1], "rb").read()
old, new = (struct.pack("<f", x) for x in (32768, 65536))
assert data.count(old) == 1
open(sys.argv[1], "wb").write(data.replace(old, new))
END
expect 1 "" "$millet" check "$work/big" --against "$MILLET_CASES/models/rand-qwen3-bigvocab" --ids-file "$work/large" --json
json "d['ids']['wrong'] == 32768 and any('row 32768 returns 65536' in f for f in d['failures'])"

# of another model
expect 1 "vocabulary|token ids|no preset|preset" "$millet" check "$work/best" --against "$model" --ids-file "$work/ids"
finish
