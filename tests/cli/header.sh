# The public header alone: C99 and C++11 programs compile with every warning on, and the usage example in it is a program.
. "$(dirname "$0")/lib.sh" || exit 1
command -v g++ >/dev/null || {
    echo "skipped: no g++"
    exit 77
}
header=$MILLET_SOURCE/include/millet.h
printf '#include <millet.h>\n#include <millet.h>\nint main() { return millet_version() == 0; }\n' >"$work/twice.cc"
for std in c++11 c++20; do
    g++ -std=$std -Wall -Wextra -pedantic -Werror -I"$MILLET_SOURCE/include" -fsyntax-only "$work/twice.cc" || fail "$std"
done
sed -n '3,/^ \*     \/\/ cc/p' "$header" | sed 's/^ \*     //; s/^ \*$//' >"$work/story.c"
for std in c99 c11 c17; do
    gcc -std=$std -Wall -Wextra -pedantic -Werror -I"$MILLET_SOURCE/include" -fsyntax-only "$work/story.c" || fail "usage example, $std"
done
[ "$(wc -l <"$work/story.c")" -le 22 ] || fail "the usage example is longer than 20 lines"
finish
