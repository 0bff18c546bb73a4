# make install: what lands where, what the library exports, and a stranger's program against the installed library.
. "$(dirname "$0")/lib.sh" || exit 1
build=$(dirname "$millet")
root=$work/root
DESTDIR=$root cmake --install "$build" --prefix /usr >"$work/log" 2>&1 || fail "cmake --install: $(tail -3 "$work/log")"
for file in bin/millet include/millet.h share/man/man1/millet.1 share/bash-completion/completions/millet; do
    [ -s "$root/usr/$file" ] || fail "/usr/$file was not installed"
done
lib=$(dirname "$(find "$root/usr" -name libmillet.so)")
for file in libmillet.so libmillet.so.1 libmillet.a pkgconfig/millet.pc; do
    [ -e "$lib/$file" ] || fail "$file was not installed"
done
others=$(nm -D --defined-only "$lib/libmillet.so" | awk '$2 ~ /[TDBRV]/ && $3 !~ /^millet_/ { print $3 }' | head)
[ -z "$others" ] || fail "the library exports $others"

if grep -qE '^MILLET_(SANITIZE|TSAN|COVERAGE):BOOL=ON' "$build/CMakeCache.txt"; then
    echo "skipped: a program against the installed library (this build is instrumented)"
    finish
fi
cat >"$work/stranger.c" <<'C'
#include <millet.h>
#include <stdio.h>
int main(void) {
    puts(millet_version());
    return 0;
}
C
pc() { PKG_CONFIG_PATH=$lib/pkgconfig PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1 PKG_CONFIG_ALLOW_SYSTEM_LIBS=1 pkg-config "$@" millet; }
want=$("$millet" --version | cut -d' ' -f2)
gcc -Wall -Werror "$work/stranger.c" $(pc --cflags) -o "$work/shared" $(pc --libs) || fail "linking with -lmillet"
got=$(LD_LIBRARY_PATH=$lib "$work/shared")
[ "$got" = "$want" ] || fail "the shared library says $got, not $want"
gcc -Wall -Werror "$work/stranger.c" $(pc --cflags) -o "$work/static" "$lib/libmillet.a" $(pc --libs --static | sed 's/-lmillet//') ||
    fail "linking libmillet.a"
got=$("$work/static")
[ "$got" = "$want" ] || fail "the static library says $got, not $want"
finish
