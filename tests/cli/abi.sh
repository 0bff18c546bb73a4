# The shared library's binary interface: its name, what it exports against src/api/millet.map and the header, what it must
# not use (output, the end of the process, the process's settings), and that it keeps no state of its own.
. "$(dirname "$0")/lib.sh" || exit 1
header=$MILLET_SOURCE/include/millet.h map=$MILLET_SOURCE/src/api/millet.map
lib=$(dirname "$millet")/libmillet.so

abi=$(sed -n 's/^#define MILLET_ABI //p' "$header")
readelf -d "$lib" | grep -qF "Library soname: [libmillet.so.$abi]" || fail "the soname is not libmillet.so.$abi"

# Declared, listed, exported, each in its version.
tr '\n' ' ' <"$header" | sed 's,/\*,\n&,g; s,\*/,&\n,g' | grep -v '^/\*' | tr '\n;' ' \n' | grep MILLET_API |
    grep -oE '\bmillet_[a-z0-9_]+ ?\(' | tr -d ' (' | sort -u >"$work/declared"
awk '/^MILLET_/ { node = $1 } /^ *millet_.*;/ { sub(";", "", $1); print $1 "@@" node }' "$map" | sort >"$work/listed"
nm -D --defined-only --with-symbol-versions "$lib" | awk '$2 != "A" { print $3 }' | sort >"$work/exported"
[ "$(wc -l <"$work/declared")" -gt 50 ] || fail "found only $(wc -l <"$work/declared") declarations"
diff "$work/declared" <(sed 's/@@.*//' "$work/listed") || fail "the header (<) and millet.map (>) differ"
diff "$work/listed" "$work/exported" || fail "millet.map (<) and the library (>) differ"

if grep -qE '^MILLET_(SANITIZE|TSAN|COVERAGE):BOOL=ON|^CMAKE_BUILD_TYPE:[A-Z]*=Debug' "$(dirname "$millet")/CMakeCache.txt"; then
    echo "skipped: what the library uses (this build is instrumented)"
    finish
fi
for name in exit _exit abort __assert_fail raise signal sigaction atexit printf puts putchar perror stdout stderr __printf_chk \
    setlocale setenv putenv srand rand chdir umask system popen; do
    ! nm -D --undefined-only "$lib" | awk '{ sub("@.*", "", $2); print $2 }' | grep -qx "$name" || fail "the library uses $name"
done
finish
