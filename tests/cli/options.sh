# The option table: usage errors, help, the manual page, completion, a closed or full standard output.
. "$(dirname "$0")/lib.sh" || exit 1

expect 2 '^millet: no command; see millet --help$' "$millet"
expect 2 'unknown command nonsense' "$millet" nonsense
expect 2 'unknown option --nonsense' "$millet" --nonsense
expect 2 '^millet convert: CHECKPOINT is missing; see millet convert --help$' "$millet" convert
expect 2 'unknown option --fo; see' "$millet" convert x --fo=1
expect 2 'unknown option -z' "$millet" convert x -z
expect 2 '--output needs a value \(OUT\)' "$millet" convert x -o
expect 2 '--overwrite takes no value' "$millet" convert x --overwrite=yes
expect 2 "unexpected argument 'y'" "$millet" convert x y
expect 2 "unexpected argument '--overwrite'" "$millet" convert x -- --overwrite
expect 2 "--preset must be one of chunks.single, not 'chunk'" "$millet" convert x --preset chunk
expect 2 "--context must be a whole number from 1 to 1048576, not '0'" "$millet" convert x --context 0
expect 2 "not '1e3'" "$millet" convert x --context 1e3
expect 2 "not '99999999999999999999'" "$millet" convert x --context=99999999999999999999
expect 2 "--temperature must be a number from 0 to 100, not 'nan'" "$millet" run x -t nan
expect 2 "not '0,5'" "$millet" run x --temperature 0,5
expect 2 'PACKAGE must not be empty' "$millet" inspect ''
expect 2 '--prompt is not UTF-8 at byte 2' "$millet" run x --prompt $'ab\xff'
expect 2 'unknown option --\\xff' "$millet" run x $'--\xff'
expect 1 '\\xff/' "$millet" inspect $'no-such-\xff/x'

for words in fast int16,bf16,exact int16, ,int16 '' INT16; do
    expect 2 "--linear must be exact, int16, bf16, int8 or two of these as in int16,bf16, not '$words'" "$millet" score x --ids-file y --linear "$words"
done
expect 2 "MILLET_LINEAR must be exact, .*, not 'fast'" env MILLET_LINEAR=fast "$millet" run x -p y
expect 1 'no such package' env MILLET_LINEAR=fast "$millet" run x -p y --linear exact # the option counts
expect 2 "variable MILLET_THREADS must be a whole number from 1 to 64, not 'abc'" env MILLET_THREADS=abc "$millet" run x -p y
expect 1 'no such package' env MILLET_THREADS=abc "$millet" run x -p y --threads 1
expect 2 "variable MILLET_ISA must be one of portable, .*, not 'xyz'" env MILLET_ISA=xyz "$millet" inspect x
expect 2 "variable MILLET_DUMP takes words of fold, fuse, plan with commas between them, not 'fused'" env MILLET_DUMP=plan,fused "$millet" inspect x
expect 2 "variable MILLET_ENGINE must be one of plan, reference, not 'fast'" env MILLET_ENGINE=fast "$millet" run x -p y
expect 2 '--threads must be a whole number from 1 to 64' "$millet" run x -p y --threads 0

# Numbers mean the same in a locale with a decimal comma (when the system has one).
expect 2 "from 0 to 1, not '0,5'" env LC_ALL=de_DE.UTF-8 "$millet" run x --top-p 0,5

# Every command explains itself, with an example and with every option that it takes.
for command in $("$millet" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
    expect 0 '' "$millet" "$command" --help
    grep -q '^Example' "$work/stdout" || fail "$command --help has no example"
    grep -q "^  .*millet $command" "$work/stdout" || fail "$command --help: its example does not use it"
    [ "$(wc -L <"$work/stdout")" -le 120 ] || fail "$command --help has overlong lines"
    cp "$work/stdout" "$work/long"
    expect 0 '' "$millet" help "$command"
    cmp -s "$work/stdout" "$work/long" || fail "help $command differs from $command --help"
done
expect 0 '' "$millet" --version
grep -qE '^millet [0-9]+\.[0-9]+\.[0-9]+$' "$work/stdout" || fail "--version prints $(cat "$work/stdout")"

# The manual page names every option, and renders without a warning.
"$millet" --man >"$work/millet.1"
for option in $("$millet" run --help | grep -oE -- '--[a-z-]+' | sort -u); do
    [ "$option" = --help ] || grep -q "$(printf '%s' "$option" | sed 's/-/\\\\-/g')" "$work/millet.1" ||
        fail "the manual page lacks $option"
done
if command -v groff >/dev/null; then
    warnings=$(groff -man -Tutf8 -ww -z "$work/millet.1" 2>&1)
    [ -z "$warnings" ] || fail "groff: $warnings"
fi

# Completion: commands, options of a command, words of a choice.
complete_words() {
    "$millet" --bash-completion >"$work/completion"
    bash -c 'compopt() { :; }; . "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _millet; echo "${COMPREPLY[*]}"' \
        "$work/completion" "$@"
}
[ "$(complete_words millet insp)" = inspect ] || fail "completion of a command: $(complete_words millet insp)"
[ "$(complete_words millet convert x --over)" = --overwrite ] || fail "completion of an option"
[ "$(complete_words millet convert x --preset s)" = single ] || fail "completion of a choice"

# A reader that goes away is no failure and makes no noise; a full disk and a closed descriptor are failures.
"$millet" --man 2>"$work/stderr" | head -1 >/dev/null
[ "${PIPESTATUS[0]}" = 0 ] && [ ! -s "$work/stderr" ] || fail "closed pipe: $(cat "$work/stderr")"
(
    trap '' PIPE
    "$millet" --man 2>"$work/stderr"
    echo $? >"$work/code"
) | true
[ "$(cat "$work/code")" = 0 ] && [ ! -s "$work/stderr" ] || fail "closed pipe, SIGPIPE ignored: $(cat "$work/stderr")"
"$millet" --help >/dev/full 2>"$work/stderr" && fail "a full disk went unnoticed"
grep -q 'standard output: No space left on device' "$work/stderr" || fail "full disk: $(cat "$work/stderr")"
"$millet" --help >&- 2>"$work/stderr" && fail "a closed standard output went unnoticed"
finish
