# The program on processors that lack what this one has, which an emulator plays (EMULATOR: qemu-x86_64): it must not meet an
# instruction that is not there, and say what it says here.
. "$(dirname "$0")/lib.sh"
[ -n "${EMULATOR:-}" ] || {
    echo "skipped: no qemu-x86_64, or a build that it can't run"
    exit 77
}
prompt=(--prompt "Once upon a time")
for mode in fast strict; do
    expect 0 "^loaded in" "$millet" run "$DEMO" "${prompt[@]}" -n 2 --precision $mode
    mv "$work/stdout" "$work/here"
    for cpu in Nehalem Haswell; do # up to SSE 4.2; AVX2
        # one thread: the emulator has no processors to spare; its own warnings are not ours to judge
        MILLET_THREADS=1 "$EMULATOR" -cpu $cpu "$millet" run "$DEMO" "${prompt[@]}" -n 2 --precision $mode \
            >"$work/stdout" 2>"$work/stderr" </dev/null || fail "$cpu, $mode: exit code $?: $(tail -c 400 "$work/stderr")"
        cmp -s "$work/here" "$work/stdout" || fail "$cpu, $mode: '$(cat "$work/stdout")', not '$(cat "$work/here")'"
    done
done
finish
