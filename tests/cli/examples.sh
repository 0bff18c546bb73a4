# The examples as a stranger builds them: against an installed tree, with what pkg-config says, from C and C++; and what they
# print. The texts are transformers' (tests/data/generate), the answers what the small model was taught.
. "$(dirname "$0")/lib.sh" || exit 1
build=$(dirname "$millet") root=$work/root artifact=$work/artifact
if grep -qE '^MILLET_(SANITIZE|TSAN|COVERAGE):BOOL=ON' "$build/CMakeCache.txt"; then
    echo "skipped: programs against the installed library (this build is instrumented)"
    exit 77
fi
cmake --install "$build" --prefix "$root" >"$work/log" 2>&1 || fail "cmake --install: $(tail -3 "$work/log")"
lib=$(dirname "$(find "$root" -name libmillet.so)")
export PKG_CONFIG_PATH=$lib/pkgconfig LD_LIBRARY_PATH=$lib
cd "$work" || exit 1
for source in "$MILLET_SOURCE"/examples/*.c; do
    name=$(basename "$source" .c)
    cc -std=c11 -Wall -Wextra -Werror "$source" -o "$name" $(pkg-config --cflags --libs millet) -pthread || fail "cc $name.c"
    code=0
    "./$name" >"$work/stdout" 2>"$work/stderr" || code=$?
    [ "$code" = 2 ] && grep -q "^usage: $name " "$work/stderr" || fail "$name without arguments: exit code $code"
    wanted=$(sed "s/^usage: $name//; s/\[.*//" "$work/stderr" | wc -w)
    expect 1 'nowhere|no embedding' "./$name" $(printf '/nowhere %.0s' $(seq "$wanted"))
done

# says PATTERN COMMAND...: it succeeds, and prints that.
says() {
    local pattern=$1 code=0
    shift
    "$@" >"$work/stdout" 2>"$work/stderr" </dev/null || code=$?
    [ "$code" = 0 ] || fail "exit code $code: $*: $(head -c 400 "$work/stderr")"
    grep -qF -e "$pattern" "$work/stdout" || fail "$* does not say '$pattern': $(head -c 400 "$work/stdout")"
}
says 'model.mlpackage' ./convert "$MILLET_SOURCE/models/tiny-qwen3.5" "$artifact"
text=' time, there was a clever girl named Mia who lived in a garden.'
says "$text" ./generate "$artifact" 'Once upon a' 16
says "$text" ./functions "$artifact" "$artifact"/*.bin 'Once upon a' 16
says 'function prefill_16' ./predict "$artifact"
says 'Once upon a time' ./threads "$artifact"
says 'the two differ' ./sessions "$artifact"

command -v g++ >/dev/null || {
    echo "skipped: chat.cc: no g++"
    finish
}
g++ -std=c++11 -Wall -Wextra -pedantic -Werror "$MILLET_SOURCE/examples/chat.cc" -o chat $(pkg-config --cflags --libs millet) || fail "g++ chat.cc"
says 'The capital of Italy is Rome. (26 of 47 tokens were there already)' ./chat "$artifact"
finish
