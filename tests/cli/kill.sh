# millet convert, killed at 50 random moments or out of space: the complete old artifact or the complete new one is there, and
# at most one staging directory, which the next run removes.
[ -w /dev/shm ] && export TMPDIR=/dev/shm # in memory, where nobody waits for a disk
. "$(dirname "$0")/lib.sh" || exit 1
cd "$work" || exit 1
mkdir place
# What an artifact holds, to the byte.
digest() { (cd "$1" && find . -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum | cut -c1-64); }
staging() { find place -maxdepth 1 -name '.*.millet-*' | wc -l; }
milliseconds() { date +%s%3N; }
pause() { sleep "$(($1 / 1000)).$(printf %03d $(($1 % 1000)))"; }
verified() { "$millet" inspect "$1" --verify >verify 2>&1 || fail "$1 does not verify: $(tail -1 verify)"; }

# kills N MODEL OPTIONS...: converts place/a between lut6 and w8 again and again, killed each time.
kills() {
    local n=$1 model=$2 current old new now start time finished=0
    shift 2
    "$millet" convert "$model" -o place/a -q --overwrite --quantize w8 "$@" 2>/dev/null || fail "convert $model"
    old=$(digest place/a)
    verified place/a
    start=$(milliseconds)
    "$millet" convert "$model" -o place/a -q --overwrite --quantize lut6 "$@" 2>/dev/null || fail "convert $model"
    time=$(($(milliseconds) - start))
    new=$(digest place/a)
    verified place/a
    [ "$old" != "$new" ] || fail "both schemes give the same bytes"
    current=$new
    for ((i = 0; i < n; i++)); do
        local scheme=lut6
        [ "$current" = "$new" ] && scheme=w8
        "$millet" convert "$model" -o place/a -q --overwrite --quantize $scheme "$@" 2>/dev/null &
        pause $((time * 11 / 10 * RANDOM / 32768))
        kill -9 $! 2>/dev/null
        wait $! 2>/dev/null
        now=$(digest place/a)
        [ "$now" = "$old" ] || [ "$now" = "$new" ] || fail "kill $i: place/a is neither the old artifact nor the new one"
        [ "$(staging)" -le 1 ] || fail "kill $i: $(staging) staging directories"
        [ "$now" = "$current" ] || finished=$((finished + 1))
        current=$now
    done
    echo "$model: $n kills within $time ms, $finished of them after the new artifact was in place"
}

RANDOM=4
big=$MILLET_CASES/models/rand-qwen3-bigvocab
if [ -e "$big" ]; then
    kills 10 "$big" --preset single
    kills 40 "$MILLET_SOURCE/models/tiny-qwen3.5"
else
    kills 50 "$MILLET_SOURCE/models/tiny-qwen3.5"
fi
model=$MILLET_SOURCE/models/tiny-qwen3.5
expect 0 '' "$millet" convert "$model" -o place/a -q --overwrite
[ "$(staging)" = 0 ] || fail "a conversion leaves what the killed ones left"

# --- no room: one line, and the old artifact stays ---
old=$(digest place/a)
limited() { (ulimit -f "$1" && shift && "$millet" convert "$@"); } # KiB a file
expect 1 'embed_tokens.int8.bin: can.t write: File too large' limited 1000 "$model" -o place/a -q --overwrite --quantize w8
expect 1 'weight.bin: can.t write: File too large' limited 4000 "$model" -o place/a -q --overwrite --quantize w8
[ "$(digest place/a)" = "$old" ] || fail "the old artifact changed"
[ "$(staging)" = 0 ] || fail "a staging directory stays"
if unshare -rm mount -t tmpfs none place 2>/dev/null; then
    cat >twice <<'END' # the first fits, the second does not fit beside it
mount -t tmpfs -o size=12m none place
"$1" convert "$2" -o place/a -q --quantize lut4 || exit 3
before=$(cd place/a && find . -type f -print0 | sort -z | xargs -0 sha256sum)
"$1" convert "$2" -o place/a -q --overwrite --quantize w8
code=$?
[ "$before" = "$(cd place/a && find . -type f -print0 | sort -z | xargs -0 sha256sum)" ] || exit 4
[ "$(ls -A place)" = a ] || exit 5
exit $code
END
    expect 1 'No space left on device' unshare -rm bash twice "$millet" "$model"
else
    echo "not tried: a full disk (mounts are not allowed here)"
fi
finish
