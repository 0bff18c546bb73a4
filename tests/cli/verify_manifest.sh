# millet verify-manifest: right artifacts pass; each damage is named, by it or, where the digests were made anew, by check.
. "$(dirname "$0")/lib.sh"
python=$(command -v python3) || {
    echo "skipped: no python3"
    exit 77
}
need_case models/tiny-qwen3/config.json
model=$MILLET_CASES/models/tiny-qwen3
cd "$work" || exit 1
verify() { "$millet" verify-manifest "$@"; }
# edit DIR STATEMENTS: Python over d (the document), v (its variants by name), out (DIR); the document is written back. Files
# are replaced, never written in place: they may be links.
edit() {
    "$python" - "$1" "$2" <<'END' || fail "edit: $2"
import hashlib, json, os, shutil, struct, sys
out, statements = sys.argv[1:]
path = next(p for p in (out + "/metadata.json", out + "/conversion_manifest.json") if os.path.exists(p))
d = json.load(open(path))
v = {x["name"]: x for x in d.get("variants", [])}
def weights(package): return out + "/" + package + "/Data/com.apple.CoreML/weights/weight.bin"
def program(package): return out + "/" + package + "/Data/com.apple.CoreML/model.mlmodel"
def write(file, data):
    os.remove(file)
    open(file, "wb").write(data)
def change(file, f):
    data = bytearray(open(file, "rb").read())
    write(file, f(data) or data)
def flip(at): return lambda data: data.__setitem__(at, data[at] ^ 1)
def exchange(a, b):
    os.rename(a, a + ".x"), os.rename(b, a), os.rename(a + ".x", b)
def seal():  # digests, sizes made anew: what is left is what hashes can't see
    for x in d.get("variants", []) + d.get("packages", []):
        for f in x["files"]:
            data = open(os.path.join(out, f["path"]), "rb").read()
            f["bytes"], f["sha256"] = len(data), hashlib.sha256(data).hexdigest()
        if "bytes" in x: x["bytes"] = sum(f["bytes"] for f in x["files"])
    if "table" in d:
        data = open(os.path.join(out, d["table"]["path"]), "rb").read()
        d["table"]["bytes"], d["table"]["sha256"] = len(data), hashlib.sha256(data).hexdigest()
exec(statements)
write(path, json.dumps(d).encode())
END
}
# damaged FROM STATEMENTS PATTERN...: after the statements each pattern matches a line, and the exit status is 1.
damaged() {
    rm -rf bad && cp -rl "$1" bad && edit bad "$2"
    expect 1 '' verify bad
    local from=$1 statements=$2
    shift 2
    for pattern; do
        grep -qE -e "$pattern" stdout || fail "no line '$pattern' after $statements in $from: $(head -5 stdout)"
    done
    grep -qE 'contradictions?$' stdout || fail "no count of contradictions: $(tail -1 stdout)"
}

# --- variants ---
"$millet" convert "$model" -o out --variants fp16,w8,w4 --context 96 -q || fail convert
expect 0 '' verify out
grep -qE '^conversion_manifest.json: 3 packages, 15 files .*: all as stated$' stdout || fail "says: $(cat stdout)"
expect 0 '' verify out/ --against "$model" --json
"$python" -c "import json; d=json.load(open('stdout')); assert d['passed'] and not d['failures'] and d['signature_checked'] and d['packages'] == 3" || fail "$(cat stdout)"

P=tiny-qwen3-TopK64
damaged out "change(weights('$P-W8.mlpackage'), flip(100000))" "^$P-W8.mlpackage/.*/weight.bin: sha256: expected [0-9a-f]{64}, found [0-9a-f]{64}$"
[ "$(grep -c expected stdout)" = 1 ] || fail "more than one line: $(cat stdout)"
damaged out "exchange(out + '/$P-W8.mlpackage', out + '/$P-W4.mlpackage')" "^$P-W8.mlpackage/.*weight.bin: sha256" \
    "^$P-W4.mlpackage: scheme of layer_0_.*: expected w4, found w8" "^$P-W8.mlpackage: bits_per_weight: expected 8.1024, found 4.5295"
damaged out "change(out + '/Tokenizer/vocab.json', lambda x: x + b' ')" "^Tokenizer/vocab.json: bytes: " "^Tokenizer/vocab.json: sha256: "
damaged out "os.remove(out + '/Tokenizer/merges.txt')" "^Tokenizer/merges.txt: file: expected listed, found nothing"
damaged out "os.remove(weights('$P-W4.mlpackage'))" "weight.bin: file: expected listed" "^$P-W4.mlpackage: package: expected a package that keeps every rule, found .*weight.bin"
damaged out "shutil.rmtree(out + '/$P-W8.mlpackage')" "^$P-W8.mlpackage: files: expected 3, found nothing"
damaged out "open(out + '/$P-W8.mlpackage/more', 'w')" "^$P-W8.mlpackage/more: file: expected not listed, found 0 bytes"
damaged out "change(program('$P-FP16.mlpackage'), lambda x: x.replace(b'key_cache', b'kex_cache')); seal()" "^$P-FP16.mlpackage: state: expected key_cache, found nothing"
damaged out "change(program('$P-W4.mlpackage'), lambda x: x[:-9]); seal()" "^$P-W4.mlpackage: package: "
damaged out "d['options']['context'] = 128" "^$P-FP16.mlpackage: context: expected 128, found 96"
damaged out "d['options']['top_k'] = 63" "^$P-W4.mlpackage: top_k: expected 63, found 64"
damaged out "d['model']['layers'] = 5; d['model']['vocab_size'] = 4161" ": layers: expected 5, found 4" ": vocab_size: expected 4161, found 4160"
damaged out "d['options']['variants'] = ['fp16', 'w8']; d['lm_head_strategy'] = None" "scheme: expected w4, found nothing" "lm_head_strategy"
damaged out "d['recommended'] = 'W4'" "^conversion_manifest.json: recommended: expected W4, found W8$"
damaged out "v['W8']['bits_per_weight'] = 8.2" "^$P-W8.mlpackage: bits_per_weight: expected 8.2, found 8.1024"
damaged out "v['FP16']['removed'] = True" "^$P-FP16.mlpackage: package: expected removed, found still there"
damaged out "v['FP16']['package'] = '../out'" "path: expected a relative path without .. parts, found ../out"
damaged out "v['W8']['files'].append(v['W8']['files'][0])" "listed twice"
damaged out "d['stop_ids'] = [4063, 4160]" "stop_ids: expected ids below 4160, found 4160" "stop_ids: expected 4065 of Tokenizer/generation_config.json"
damaged out "d['tokenizer'] = None" "^Tokenizer: tokenizer: expected null, found a directory"
damaged out "del d['stop_ids'], d['options']['context'], v['W4']['files']; d['signature'] = 'x'" "stop_ids: expected array, found nothing" \
    "context: expected integer, found nothing" "files: expected array" "signature: expected 64 hexadecimal digits, found x"
rm -rf bad && cp -rl out bad && edit bad "d['options']['source_dtype'] = 'float32'"
expect 0 '' verify bad
expect 1 '' verify bad --against "$model"
grep -q ': signature: expected' stdout || fail "no line about the signature: $(cat stdout)"
expect 1 '' verify out --against "$MILLET_SOURCE/models/tiny-qwen3.5"
grep -q ': signature: expected' stdout || fail "no line about the signature: $(cat stdout)"

# a row of the head takes another's place, the ids of a piece are moved: with digests made anew only check can see it
echo '493 535 258 449 11 448' >ids
rm -rf bad && cp -rl out bad
edit bad "
def alias(x):
    import glob
    raw = open(glob.glob('$model/*.safetensors')[0], 'rb').read()
    n = struct.unpack('<Q', raw[:8])[0]
    a, b = json.loads(raw[8:8 + n])['lm_head.weight']['data_offsets']
    # the largest constant but the embedding: found by its first row, which differs from the embedding's
    row = raw[8 + n + a:8 + n + a + 384]
    half = b''.join(struct.pack('<e', struct.unpack('<f', b'\\0\\0' + row[i:i + 2])[0]) for i in range(0, 384, 2))
    at = x.find(half)
    assert at > 0
    x[at + 384 * 700:at + 384 * 701] = x[at + 384 * 600:at + 384 * 601]
change(weights('$P-FP16.mlpackage'), alias); seal()"
expect 0 '' verify bad
expect 1 '' "$millet" check bad/$P-FP16.mlpackage --against "$model" --ids-file ids
grep -qE 'lm_head_weight: [0-9]+ elements differ' stdout || fail "check does not name the head: $(grep FAILED stdout)"

# --- the gate's result becomes part of the manifest ---
rm -rf bad && cp -rl out bad
expect 0 '' "$millet" check bad/$P-W8.mlpackage --against "$model" --ids-file ids --only scores --record
"$python" -c "
import json
d = json.load(open('bad/conversion_manifest.json'))
gates = {v['name']: v['gate'] for v in d['variants']}
assert gates['W8']['passed'] is True and 0 < gates['W8']['top1_agreement'] <= 1 and gates['W4'] is gates['FP16'] is None, gates
assert d['recommended'] == 'W8' and all(v['gate'] is None for v in json.load(open('out/conversion_manifest.json'))['variants'])
" || fail "gate: $(cat bad/conversion_manifest.json)"
expect 0 '' verify bad --against "$model"
expect 2 'needs the measurement scores' "$millet" check bad --against "$model" --only ids --record

# --- chunks ---
hybrid=$MILLET_CASES/models/tiny-qwen3.5
"$millet" convert "$hybrid" -o set --chunks 3 --prefill 4,16 --context 96 -q || fail convert
expect 0 '' verify set --against "$hybrid"
grep -qE '^metadata.json: 3 packages, .* signature, .*: all as stated$' stdout || fail "says: $(cat stdout)"
T=tiny-qwen3.5_embed_tokens.fp16.bin
damaged set "change(weights('chunk_2_of_3.mlpackage'), flip(100000))" '^chunk_2_of_3.mlpackage/.*/weight.bin: sha256: expected '
[ "$(grep -c expected stdout)" = 1 ] || fail "more than one line: $(cat stdout)"
# two chunks swapped: their files; their places in the document; their names in it, digests made anew
damaged set "exchange(out + '/chunk_1_of_3.mlpackage', out + '/chunk_2_of_3.mlpackage'); seal()" \
    '^chunk_1_of_3.mlpackage: (states|inputs|name) ?' '^chunk_1_of_3.mlpackage: states of layer 0: expected conv_0, found no such state' \
    '^metadata.json: packages: expected packages that work together in this order, found .*chunk_'
damaged set "d['packages'][0], d['packages'][1] = d['packages'][1], d['packages'][0]" '^chunk_2_of_3.mlpackage: layers: expected layers from 0 on, found \[3, 6\]' \
    '^metadata.json: packages: expected packages that work together in this order'
damaged set "
p, q = d['packages'][:2]
p['path'], q['path'], p['files'], q['files'], p['functions'], q['functions'] = q['path'], p['path'], q['files'], p['files'], q['functions'], p['functions']" \
    '^chunk_2_of_3.mlpackage: states of layer 0: expected conv_0, found no such state'
# a stale table: of another model, of another kind, damaged, gone
"$millet" convert "$MILLET_CASES/models/rand-qwen2" -o other --preset chunks --context 96 -q 2>/dev/null || fail convert
damaged set "write(out + '/$T', open('other/rand-qwen2_embed_tokens.fp16.bin', 'rb').read()); seal()" "^$T: rows: expected 4096, found [0-9]+" \
    "^$T: width: expected 256, found [0-9]+" "^$T: vocab_size: expected 4096" '^metadata.json: packages: .*another model|^metadata.json: packages: .*rows of'
damaged set "change(out + '/$T', flip(70000)); seal()" "^$T: table: expected one that can be read, found .*checksum"
damaged set "change(out + '/$T', flip(70000))" "^$T: sha256: expected" "^$T: table: "
damaged set "os.remove(out + '/$T')" "^$T: file: expected listed, found"
# a missing state: in the document, in the package
damaged set "del d['states'][4]" '^metadata.json: states: expected states of layer 4, found nothing' '^chunk_2_of_3.mlpackage: state .*: expected not listed, found in the package'
damaged set "d['states'][3]['names'].pop()" '^chunk_2_of_3.mlpackage: state .*_3: expected not listed, found in the package'
damaged set "change(program('chunk_2_of_3.mlpackage'), lambda x: x.replace(b'conv_4', b'conv_9')); seal()" '^chunk_2_of_3.mlpackage: states of layer 4: expected conv_4, found no such state'
damaged set "d['states'][0]['package'] = 1; d['states'][1]['heads'] = 3; d['states'][7]['package'] = 3" '^chunk_2_of_3.mlpackage: states of layer 0: expected a package that has the layer' \
    'chunk_1_of_3.mlpackage: state rec_1: heads: expected 3, found 8' 'states of layer 7: expected a package of the list, found 3'
damaged set "d['states'][3]['slices'] = [1, 2]; d['graph']['kv'] = 'stacked'; d['graph']['state'] = 'fp16'; d['states'][2]['kind'] = 'attention'" \
    'state [kv]_3: slices: expected one of the first axis, found \[1, 2\] of 1' 'state: expected fp16, found split' 'kv: expected stacked, found split' 'state rec_2: kind: expected attention, found recurrent'
damaged set "del d['graph']['kv']" 'kv: expected string, found nothing'
damaged set "d['packages'].pop()" '^metadata.json: layers: expected 8 in all packages, found 6' '^metadata.json: packages: ' 'chunks: expected 3, found 2'
damaged set "d['graph']['context'] = 128; d['graph']['prefill_sizes'] = [4, 32]" ': context: expected 128, found 96' 'prefill_sizes: expected a function for 32 tokens, found nothing' 'one more for 16 tokens'
damaged set "d['graph']['functions'][1] = 'prefill_5'" "graph.functions: expected prefill_4, as of chunk_1_of_3.mlpackage, found prefill_5"
damaged set "d['packages'][1]['functions'][0]['inputs'][0]['dtype'] = 'fp16'" '^chunk_2_of_3.mlpackage: dtype: expected fp16, found fp32'
damaged set "d['packages'][2]['functions'][0]['outputs'][0]['shape'] = [1, 4097]" 'shape of outputs of decode logits: expected \[1,4097\], found \[1,4096\]'
damaged set "d['scheme']['weights'] = 'lut6'; d['scheme']['bits_per_weight'] = 6.1" 'scheme of layer_0_.*: expected lut6, found fp16' 'bits_per_weight: expected 6.1, found 16'
damaged set "d['table']['path'] = '../../elsewhere.bin'" 'path: expected a relative path'

# a row of the head takes another's place, digests made anew: check names the tensor
rm -rf bad && cp -rl set bad
edit bad "
def alias(x): # the last constant of the last package is the head: 4096 rows of 256
    at = len(x) - 4096 * 512
    x[at + 512 * 700:at + 512 * 701] = x[at + 512 * 600:at + 512 * 601]
change(weights('chunk_3_of_3.mlpackage'), alias); seal()"
expect 0 '' verify bad
expect 1 '' "$millet" check bad --against "$hybrid" --ids-file ids
grep -qE 'lm_head_weight: [0-9]+ elements differ from the checkpoint, the first at 1792[0-9][0-9];' stdout || fail "check does not name the head: $(grep FAILED stdout)"

# --- below a common directory, with the table beside it ---
"$millet" convert "$hybrid" --into shared --context 96 --quantize w8 -q || fail convert
expect 0 '' verify shared/*/ --against "$hybrid"
rm shared/*.bin
expect 1 '' verify shared/*/
grep -q '^../tiny-qwen3.5_embed_tokens.int8.bin: file: expected listed' stdout || fail "no line about the table: $(cat stdout)"

# --- what is no artifact ---
mkdir none
expect 1 'none: expected a directory of millet convert, with metadata.json or conversion_manifest.json' verify none
echo '{"format": "other"}' >none/metadata.json
expect 1 'none/metadata.json: "format" is not "millet"' verify none
echo '{"format": "millet", "format_version": 9}' >none/metadata.json
expect 1 'none/metadata.json: format_version 9: expected 2' verify none
echo '{' >none/metadata.json
expect 1 'none/metadata.json: ' verify none
expect 2 'DIR is missing' verify
expect 1 'nowhere' verify out --against nowhere
finish
