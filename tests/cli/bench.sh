# bench on the small model's package: the shape of what it prints, refusals. No figure is judged.
. "$(dirname "$0")/lib.sh"
out=$DEMO
python=$(command -v python3) || {
    echo "skipped: no python3"
    exit 77
}
json() { "$python" -c "import json,sys; d=json.load(open('$work/stdout')); r=d.get('results'); sys.exit(not ($1))" || fail "not so: $1: $(head -c 600 "$work/stdout")"; }
rows() { # rows PATTERN...: a line for each, in any order
    for pattern in "$@"; do grep -qE -e "$pattern" "$work/stdout" || fail "no line like '$pattern': $(cat "$work/stdout")"; done
}

# the named protocol; the ids' digest is that of their formula
expect 0 "" "$millet" bench "$out" --protocol ane --json
sha=$("$python" -c "import hashlib,struct; print(hashlib.sha256(b''.join(struct.pack('<i', (7919*i+1) % 4096) for i in range(128))).hexdigest())")
json "d['ids'] == 128 and d['ids_sha256'] == '$sha' and d['load_s'] > 0 and d['threads'] >= 1"
json "d['peak_bytes'] > 2**20 and d['read']['best_gb_per_s'] >= d['read']['median_gb_per_s'] > 0"
json "len(r) == 1 and (r[0]['name'], r[0]['prompt'], r[0]['new_tokens'], r[0]['depth']) == ('ane', 128, 64, 0)"
json "len(r[0]['prompt_s']) == len(r[0]['decode_s']) == 5"
json "abs(r[0]['prompt_tokens_per_s'] * sorted(r[0]['prompt_s'])[2] - 128) < 1e-6"
json "abs(r[0]['decode_tokens_per_s'] * sorted(r[0]['decode_s'])[2] - 63) < 1e-6"
json "abs(r[0]['gb_per_s'] / d['read']['best_gb_per_s'] - r[0]['share_of_read']) < 1e-9"
# bytes a token: about the package's weights, each read once (the table's row aside), and keys and values
weights=$(find "$out/model.mlpackage" -name '*.bin' -printf '%s\n' | awk '{ n += $1 } END { print n }')
json "0.9 * $weights < r[0]['bytes_per_token'] < 2 * $weights"

# sizes of one's own, two depths; the further one moves more keys and values
expect 0 "" "$millet" bench "$out" -p 1,20 -n 6 -d 0,40 -r 2 --json
json "[(x['name'], x['depth']) for x in r] == [(n, d) for d in (0, 40) for n in ('p1', 'p20', 'n6')]"
json "r[0]['prompt_tokens_per_s'] > 0 and r[0]['decode_tokens_per_s'] is None and r[2]['prompt_tokens_per_s'] is None"
json "all(len(x['decode_s']) == 2 for x in r)"
a_position=$("$python" -c "import json; c=json.load(open('$MILLET_SOURCE/models/tiny-qwen3.5/config.json')); c=c.get('text_config', c)
print(c['layer_types'].count('full_attention') * 2 * c['num_key_value_heads'] * c['head_dim'] * 2)") # keys and values in fp16
json "abs(r[5]['bytes_per_token'] - r[2]['bytes_per_token'] - 40 * $a_position) < 1"
expect 0 "" "$millet" bench "$out" -n 3 -r 1
rows '^test +depth +prompt tok/s +ms/token +decode tok/s' '^n3 +0 +- +- +[0-9.]+ +[0-9.]+ +[0-9.]+' \
    '^loaded in .* peak memory .* read bandwidth' '^SHA-256 of the 1 ids: [0-9a-f]{64}$'
expect 0 "" "$millet" bench "$out" -p 3 -r 1 --markdown --precision strict
rows '^\| test \| depth \|' '^\|---\|---:\|' '^\| p3 \| 0 \| [0-9.]+ \| [0-9.]+ \| - \| - \| - \| - \| - \|$'
MILLET_ENGINE=reference expect 0 "" "$millet" bench "$out" -n 1 -r 1 --json
json "r[0]['bytes_per_token'] is None and r[0]['decode_tokens_per_s'] > 0"

# the machine alone
expect 0 "" "$millet" bench --limits
rows '^read, threads +best GB/s +median GB/s$' '^1 +[0-9.]+ +[0-9.]+$' '^2 +[0-9.]+ +[0-9.]+$'
expect 0 "" "$millet" bench --limits --json
json "[x['threads'] for x in d['read']] == [1, 2]"

# refusals: one line each
expect 2 "give an artifact or --limits" "$millet" bench
expect 2 "takes no artifact" "$millet" bench "$out" --limits
expect 2 "no use for --new-tokens" "$millet" bench --limits -n 3
expect 2 "give one of --markdown and --json" "$millet" bench "$out" --markdown --json
expect 2 "has its own sizes" "$millet" bench "$out" --protocol ane -n 3
expect 2 "need -p or -n" "$millet" bench "$out" -d 3
for list in 0 x 1,,2 1, -5 1048577 '' 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17 99999999999999999999; do
    expect 2 "--prompt must be up to 16 numbers from 1 to 1048576" "$millet" bench "$out" "--prompt=$list"
done
expect 1 "p9: 2040 tokens before, 9 of a prompt and 1 new ones do not fit the context of 2048" "$millet" bench "$out" -p 9 -d 2040
expect 1 "n2048: .* do not fit the context" "$millet" bench "$out" -p 2048 -n 2048
expect 1 "no such package" "$millet" bench /nowhere
finish
