# Shared by the CLI tests: source it. MILLET_BIN, MILLET_CASES, MILLET_SOURCE and DEMO come from ctest.
set -uo pipefail
millet=${MILLET_BIN:?}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}
# expect CODE PATTERN COMMAND...: the exit code, and one line on stderr that matches (PATTERN "": nothing on stderr).
expect() {
    local want=$1 pattern=$2 code=0
    shift 2
    "$@" >"$work/stdout" 2>"$work/stderr" </dev/null || code=$?
    [ "$code" = "$want" ] || fail "exit code $code, not $want: $*: $(head -c 400 "$work/stderr")"
    if [ -z "$pattern" ]; then
        [ ! -s "$work/stderr" ] || fail "unexpected on stderr: $*: $(head -c 400 "$work/stderr")"
    else
        grep -qaE -e "$pattern" "$work/stderr" || fail "stderr does not match '$pattern': $*: $(head -c 400 "$work/stderr")"
        [ "$(wc -l <"$work/stderr")" = 1 ] || fail "not one line on stderr: $*: $(head -c 400 "$work/stderr")"
    fi
}
# The test is skipped unless this is there, below the shared cases.
need_case() {
    [ -e "$MILLET_CASES/$1" ] && return
    echo "skipped: $MILLET_CASES/$1 is not there (set MILLET_CASES)"
    exit 77
}
finish() {
    [ "$failures" = 0 ] && echo "all as expected"
    exit "$((failures > 0))"
}
