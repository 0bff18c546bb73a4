# The shared library's binary interface: its name, what it exports against src/api/millet.map and the header, the layout of
# structs (tests/unit/abi.def) for aarch64 and against the header, and what the library must not use (output, the end of the
# process, the process's settings).
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

# Each member of each struct has a row of the table, and the other architecture's compiler agrees.
table=$MILLET_SOURCE/tests/unit/abi.def
tr '\n' ' ' <"$header" | sed 's,/\*,\n&,g; s,\*/,&\n,g' | grep -v '^/\*' | tr '\n' ' ' | grep -oE 'typedef struct \{[^}]*\} \w+;' |
    sed -E 's/typedef struct \{(.*)\} (\w+);/\2;\1/' | awk -F';' '{
        for (i = 2; i < NF; i++) {
            if (match($i, /\( *\*[a-z_]+\)/)) $i = substr($i, RSTART + 1, RLENGTH - 2)
            n = split($i, name, ",")
            for (k = 1; k <= n; k++) { sub(/\[.*/, "", name[k]); sub(/ *$/, "", name[k]); sub(/.*[ *]/, "", name[k]); print $1 "." name[k] }
        }
    }' | sort >"$work/members"
sed -nE 's/^AT\((\w+), (\w+), .*/\1.\2/p' "$table" | sort >"$work/rows"
[ "$(wc -l <"$work/members")" -gt 100 ] || fail "found only $(wc -l <"$work/members") members of structs"
diff "$work/members" "$work/rows" || fail "members of the header (<) and rows of abi.def (>) differ"
if command -v aarch64-linux-gnu-gcc >/dev/null; then
    printf '%s\n' '#include <millet.h>' '#define SIZE(t, n) _Static_assert(sizeof(t) == n, #t);' \
        '#define AT(t, m, n) _Static_assert(offsetof(t, m) == n, #t "." #m);' "#include \"$table\"" >"$work/layout.c"
    aarch64-linux-gnu-gcc -std=c11 -I"$MILLET_SOURCE/include" -fsyntax-only "$work/layout.c" || fail "structs differ on aarch64"
else
    echo "skipped: the layout of structs on aarch64 (no compiler)"
fi

if grep -qE '^MILLET_(SANITIZE|TSAN|COVERAGE):BOOL=ON|^CMAKE_BUILD_TYPE:[A-Z]*=Debug' "$(dirname "$millet")/CMakeCache.txt"; then
    echo "skipped: what the library uses (this build is instrumented)"
    finish
fi
for name in exit _exit abort __assert_fail raise signal sigaction atexit printf puts putchar perror stdout stderr __printf_chk \
    setlocale setenv putenv srand rand chdir umask system popen; do
    ! nm -D --undefined-only "$lib" | awk '{ sub("@.*", "", $2); print $2 }' | grep -qx "$name" || fail "the library uses $name"
done
finish
