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

weights=$(find "$out/model.mlpackage" -name '*.bin' -printf '%s\n' | awk '{ n += $1 } END { print n }')
# the named protocol; the ids' digest is that of their formula
expect 0 "" "$millet" bench "$out" --protocol ane --json
sha=$("$python" -c "import hashlib,struct; print(hashlib.sha256(b''.join(struct.pack('<i', (7919*i+1) % 4096) for i in range(128))).hexdigest())")
json "d['ids'] == 128 and d['ids_sha256'] == '$sha' and d['opened_s'] > 0 and len(d['limits']) == 1"
size=$(find "$out/model.mlpackage" "$out"/*embed_tokens*.bin -type f -printf '%s\n' | awk '{ n += $1 } END { print n }')
json "d['package_bytes'] == $size and d['peak_bytes'] > 2**20"
json "d['limits'][0]['read_best_gb_per_s'] >= d['limits'][0]['read_median_gb_per_s'] > 0"
json "all(x['best_gop_per_s'] >= x['median_gop_per_s'] > 0 for x in d['limits'][0]['arithmetic'])"
json "len(r) == 1 and (r[0]['name'], r[0]['prompt'], r[0]['new_tokens'], r[0]['depth']) == ('ane', 128, 64, 0)"
json "len(r[0]['prompt_s']) == len(r[0]['decode_s']) == 5"
json "abs(r[0]['prompt_tokens_per_s'] * sorted(r[0]['prompt_s'])[2] - 128) < 1e-6"
json "abs(r[0]['decode_tokens_per_s'] * sorted(r[0]['decode_s'])[2] - 63) < 1e-6"
json "abs(r[0]['gb_per_s'] / d['limits'][0]['read_best_gb_per_s'] - r[0]['share_of_read']) < 1e-9"
fastest="max(x['best_gop_per_s'] for x in d['limits'][0]['arithmetic'] if not x['name'].startswith('int'))"
json "abs(r[0]['prompt_gflop_per_s'] / $fastest - r[0]['share_of_arithmetic']) < 1e-9"
json "r[0]['prompt_gflop_per_s'] * r[0]['prompt_ms_per_token'] * 1e6 > 2 * 0.9 * $weights / 2" # a product for each weight of two bytes
# bytes a token: about the package's weights, each read once (the table's row aside), and keys and values
json "0.9 * $weights < r[0]['bytes_per_token'] < 2 * $weights"
# starts: one id each, in new processes; cold only when the files left the caches
json "0 < d['start']['cached_opened_s'] < d['start']['cached_first_token_s'] and d['start']['cached_peak_bytes'] > 2**20"
json "(d['start']['cold_first_token_s'] is None) == (d['start']['cold_bytes_left'] > $size / 100)"
expect 0 "" "$millet" bench "$out" --protocol start --json
json "0 < d['opened_s'] < d['first_token_s'] and d['peak_bytes'] > 2**20"
expect 0 "" "$millet" bench "$out" --protocol start
rows '^opened in [0-9.]+ s, first token after [0-9.]+ s; peak memory [0-9.]+ MiB$'

# sizes of one's own, two depths; the further one moves more keys and values
expect 0 "" "$millet" bench "$out" -p 1,20 -n 6 -d 0,40 -r 2 --json
json "[(x['name'], x['depth']) for x in r] == [(n, d) for d in (0, 40) for n in ('p1', 'p20', 'n6')]"
json "r[0]['prompt_tokens_per_s'] > 0 and r[0]['decode_tokens_per_s'] is None and r[2]['prompt_tokens_per_s'] is None"
json "all(len(x['decode_s']) == 2 for x in r)"
a_position=$("$python" -c "import json; c=json.load(open('$MILLET_SOURCE/models/tiny-qwen3.5/config.json')); c=c.get('text_config', c)
print(c['layer_types'].count('full_attention') * 2 * c['num_key_value_heads'] * c['head_dim'] * 2)") # keys and values in fp16
json "abs(r[5]['bytes_per_token'] - r[2]['bytes_per_token'] - 40 * $a_position) < 1"
expect 0 "" "$millet" bench "$out" -n 6 --sessions 1,3 -r 2 --json
json "[(x['name'], x['sessions']) for x in r] == [('n6', 1), ('n6 x3', 3)]"
json "abs(r[1]['decode_tokens_per_s'] * sum(r[1]['decode_s']) / 2 - 3 * 6) < 1e-6"
# three sessions read each weight once: a token saves two thirds of them
json "0.6 * $weights < r[0]['bytes_per_token'] - r[1]['bytes_per_token'] <= 2 / 3 * $weights"
expect 2 "--sessions needs -n" "$millet" bench "$out" --sessions 2
expect 2 "leave out --sessions" "$millet" bench "$out" -n 3 --sessions 2 --profile
expect 2 "--sessions must be up to 16 numbers from 1 to 256" "$millet" bench "$out" -n 3 --sessions 0
expect 0 "" "$millet" bench "$out" -n 3 -r 1
rows '^test +threads +depth +prompt tok/s +ms/token +GFLOP/s +of peak +decode tok/s' '^n3 +[0-9]+ +0 +- +- +- +- +[0-9.]+ +[0-9.]+' \
    '^threads: .* read bandwidth' '^opened in .* peak memory .* times the .* of the package' '^SHA-256 of the 1 ids: [0-9a-f]{64}$'
expect 0 "" "$millet" bench "$out" -p 3 -r 1 --markdown --precision strict
rows '^\| test \| threads \| depth \|' '^\|---\|---:\|' '^\| p3 \| [0-9]+ \| 0 \| [0-9.]+ \| [0-9.]+ \| [0-9.]+ \| [0-9.]+ % \| - \| - \| - \| - \| - \|$'
# several numbers of threads, each beside its own limits
expect 0 "" "$millet" bench "$out" -p 4 -n 2 -r 1 -t 2,1 --linear int16,exact --json
json "d['linear'] == 'int16,exact'"
json "[(x['name'], x['threads']) for x in r] == [('p4', 2), ('n2', 2), ('p4', 1), ('n2', 1)]"
json "[x['threads'] for x in d['limits']] == [2, 1] and d['start'] is None"
expect 0 "" "$millet" bench "$out" -p 4 -n 2 -r 1 -t 1,2 --csv --start
"$python" -c "
import csv, sys
rows = list(csv.DictReader(open('$work/stdout')))
assert [(x['artifact'], x['name'], x['threads']) for x in rows] == [('$out', n, t) for t in '12' for n in ('p4', 'n2')]
assert float(rows[0]['prompt_tokens_per_s']) > 0 and rows[0]['decode_tokens_per_s'] == '' and float(rows[1]['share_of_read']) > 0
" || fail "csv: $(cat "$work/stdout")"
MILLET_ENGINE=reference expect 0 "" "$millet" bench "$out" -n 1 -r 1 --json
json "r[0]['bytes_per_token'] is None and r[0]['decode_tokens_per_s'] > 0"

# where the time goes: no moment of a walk is lost, whichever worker looks; a token's products are those of its weights
expect 0 "" "$millet" bench "$out" -p 20 -n 6 -r 2 --profile --json --html "$work/page.html"
cp "$work/stdout" "$work/before.json"
cat >"$work/profile.py" <<'EOF'
import glob, json, math, sys
results = json.load(open(sys.argv[1]))["results"]
assert [[k for k in r if k.endswith("_profile") and r[k]] for r in results] == [["prompt_profile"], ["decode_profile"]]
matrices = 0
for name in glob.glob(sys.argv[2] + "/*.safetensors"):
    with open(name, "rb") as f:
        tensors = json.loads(f.read(int.from_bytes(f.read(8), "little")))
    matrices += sum(math.prod(t["shape"]) for n, t in tensors.items() if n.startswith("model.language_model.") and len(t["shape"]) == 2)
for r, tokens in zip(results, (20, 6)):
    p = r["decode_profile"] or r["prompt_profile"]
    assert p["tokens"] == p["runs"] == tokens, p["runs"]
    rows, workers = p["kernels"] + p["calls"], range(p["workers"])
    for name in ("work_s", "wait_s"):
        for w in workers:
            assert math.isclose(sum(x[name][w] for x in rows), p["all"][0][name][w], rel_tol=1e-9)
    for name in ("bytes", "flops", "calls"):
        assert math.isclose(sum(x[name] for x in p["kernels"]), p["all"][0][name], rel_tol=1e-9)
        assert math.isclose(sum(x[name] for x in p["layers"]), p["all"][0][name], rel_tol=1e-9)
    walks = [p["all"][0]["work_s"][w] + p["all"][0]["wait_s"][w] for w in workers]
    assert max(walks) <= p["seconds"] and math.isclose(max(walks), min(walks), rel_tol=1e-9)
    for x in p["kernels"] + p["layers"]: # the best run of each step is no longer than the mean one
        assert 0 < x["least_s"] <= sum(x["work_s"]) / p["workers"] * (1 + 1e-9)
    linears = sum(x["flops"] for x in p["kernels"] if "linear" in x["name"])
    assert math.isclose(linears / tokens, 2 * matrices, rel_tol=1e-9), (linears / tokens, 2 * matrices)
    assert [x["name"] for x in p["layers"]] == ["before layers", *(f"layer {i}" for i in range(8)), "behind layers"]
EOF
"$python" "$work/profile.py" "$work/stdout" "$MILLET_SOURCE/models/tiny-qwen3.5" || fail "profile"
# the page needs nothing else, and is well-formed; the decode rate is drawn, and the profile
cat >"$work/page.py" <<'EOF'
import re, sys
from html.parser import HTMLParser
from xml.dom.minidom import parseString
page = open(sys.argv[1], encoding="utf-8").read()
class Nesting(HTMLParser):
    open = []
    def handle_starttag(self, tag, attrs):
        assert not {"src", "href"} & {name for name, _ in attrs}
        if tag != "meta": self.open.append(tag)
    def handle_startendtag(self, tag, attrs): pass
    def handle_endtag(self, tag): assert self.open.pop() == tag, (tag, self.getpos())
parser = Nesting()
parser.feed(page)
assert not parser.open and "://" not in page
plots = [parseString(svg) for svg in re.findall("<svg.*?</svg>", page, re.S)]
titles = [p.getElementsByTagName("title")[0].firstChild.data for p in plots]
assert titles[0].startswith("decode") and titles[1:] == ["milliseconds a token by layer"] * 2, titles
assert len(plots[0].getElementsByTagName("circle")) == 2 and "linear+ fp16 exact 256 x 768" in page
EOF
"$python" "$work/page.py" "$work/page.html" || fail "page"

# before and after
"$python" -c "
import json
d = json.load(open('$work/before.json'))
d['results'][1]['decode_tokens_per_s'] *= 2
d['results'][0]['prompt_profile']['kernels'][0]['name'] = 'new \x1b kernel'
d['limits'][0]['read_best_gb_per_s'] = 80
json.dump(d, open('$work/after.json', 'w'))
d['results'] = d['results'][:1]
d['results'][0]['threads'] += 1
json.dump(d, open('$work/other.json', 'w'))
"
expect 0 "" "$millet" bench --compare "$work/before.json" "$work/after.json"
rows '^n6, depth 0, threads [0-9]+ +decode tok/s +[0-9.]+ +[0-9.]+ +2.000$' '^p20, .* prompt tok/s .* 1.000$' '^process +package, MiB .* 1.000$' \
    '^machine, threads .* 80.00 ' '^new \? kernel +- +[0-9.]+ +-$' '^before: .* precision fast'
expect 0 "" "$millet" bench --compare "$work/before.json" "$work/after.json" --markdown
rows '^\| test \| figure \| before \| after \| ratio \|$'
expect 1 "have no test in common" "$millet" bench --compare "$work/before.json" "$work/other.json"
echo '{"format": "other"}' >"$work/other.json"
expect 1 "other.json: is not what millet bench --json writes" "$millet" bench --compare "$work/other.json" "$work/after.json"
expect 1 "other.json: is not what" "$millet" bench --compare "$work/after.json" "$work/other.json"
expect 1 "nowhere: No such file" "$millet" bench --compare "$work/nowhere" "$work/after.json"
expect 2 "give two files: --compare BEFORE AFTER" "$millet" bench --compare "$work/before.json"
expect 2 "no use for --json" "$millet" bench --compare "$work/before.json" "$work/after.json" --json

expect 0 "" "$millet" bench "$out" -n 2 -r 1 --profile
rows '^n2 at depth 0, threads: [0-9]+, decode: [0-9.]+ ms a token$' '^kernel +calls/token +ms/token +share' '^layer 7 ' '^outside of plans '
MILLET_ENGINE=reference expect 0 "" "$millet" bench "$out" -n 1 -r 1 --profile
rows '^no plan ran: the reference evaluator did everything$'

# a file system in memory can't be dropped from it: said, and no figure
if [ "$(stat -f -c %T /dev/shm 2>/dev/null)" = tmpfs ] && shm=$(mktemp -d -p /dev/shm); then
    cp -r "$out" "$shm/demo"
    expect 0 "" "$millet" bench "$shm/demo" -n 1 -r 1 --start
    rows '^start with empty caches: not measured, [0-9.]+ MiB of the files stayed in memory$' '^start with files in memory: opened in '
    rm -r "$shm"
fi

# interrupted: one line, the signal's exit code, no page
"$millet" bench "$out" -n 1900 -r 1000 --html "$work/late.html" >"$work/stdout" 2>"$work/stderr" &
sleep 1
kill -INT $!
wait $!
code=$?
[ "$code" = 130 ] && [ "$(cat "$work/stderr")" = "millet: cancelled" ] && [ ! -s "$work/stdout" ] && [ ! -e "$work/late.html" ] ||
    fail "interrupted: exit code $code: $(cat "$work/stdout" "$work/stderr")"

# the machine alone
expect 0 "" "$millet" bench --limits -t 1,3
rows '^limit +threads +best +median +unit$' '^read memory +1 +[0-9.]+ +[0-9.]+ +GB/s$' '^read memory +3 ' '^fp32 .* 3 +[0-9.]+ +[0-9.]+ +GFLOP/s$'
expect 0 "" "$millet" bench --limits -t 2 --json
json "[x['threads'] for x in d['limits']] == [2] and 'results' not in d"

# refusals: one line each
expect 2 "give an artifact or --limits" "$millet" bench
expect 2 "takes no artifact" "$millet" bench "$out" --limits
expect 2 "no use for --new-tokens" "$millet" bench --limits -n 3
expect 2 "give one of --markdown and --json" "$millet" bench "$out" --markdown --json
expect 2 "give one of --json and --csv" "$millet" bench "$out" --csv --json
expect 2 "no use for --csv" "$millet" bench --limits --csv
expect 2 "no use for --start" "$millet" bench --limits --start
expect 2 "--threads must be up to 16 numbers from 1 to 64" "$millet" bench "$out" -t 0
expect 2 "--threads must be up to 16 numbers from 1 to 64" "$millet" bench --limits -t 1,65
expect 2 "--protocol start has no use for --profile" "$millet" bench "$out" --protocol start --profile
expect 1 "page.html: can't write" "$millet" bench "$out" --html "$work/nowhere/page.html"
expect 1 "do not fit the context" "$millet" bench "$out" -p 2048 -n 2048 --html "$work/none.html"
[ -e "$work/none.html" ] && fail "a page of a measurement that was refused"
expect 2 "has its own sizes" "$millet" bench "$out" --protocol ane -n 3
expect 2 "need -p or -n" "$millet" bench "$out" -d 3
for list in 0 x 1,,2 1, -5 1048577 '' 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17 99999999999999999999; do
    expect 2 "--prompt must be up to 16 numbers from 1 to 1048576" "$millet" bench "$out" "--prompt=$list"
done
expect 1 "p9: 2040 tokens before, 9 of a prompt and 1 new ones do not fit the context of 2048" "$millet" bench "$out" -p 9 -d 2040
expect 1 "n2048: .* do not fit the context" "$millet" bench "$out" -p 2048 -n 2048
expect 1 "no such package" "$millet" bench /nowhere
finish
