# millet chat in a pipe and in a real terminal (tmux). The replies are transformers' (tests/golden/test_talk.c compares more).
. "$(dirname "$0")/lib.sh" || exit 1
demo=$DEMO
greedy=(--temperature 0 -n 200)
france='What is the capital of France?'

# ---- a pipe: replies alone on standard output ----

talk() { # talk INPUT options...: standard output in $work/out, errors in $work/err
    local input=$1 code=0
    shift
    printf '%b' "$input" | "$millet" chat "$demo" "${greedy[@]}" "$@" >"$work/out" 2>"$work/err" || code=$?
    return $code
}
says() { [ "$(cat "$work/out")" = "$1" ] || fail "$2: $(cat "$work/out" "$work/err")"; }

talk "$france\n" && says 'The capital of France is Paris.' 'a question'
[ ! -s "$work/err" ] || fail "stderr: $(cat "$work/err")"
talk "$france" && says 'The capital of France is Paris.' 'a last line without a newline'
talk "$france\n" --think on &&
    says $'[thinking]\nThe user asks for the capital of France. It is Paris.\n[answer]\nThe capital of France is Paris.' 'thinking'
talk "$france\n" --think hide && says 'The capital of France is Paris.' 'thinking, not shown'
talk "$france\n" --think off && says 'The capital of France is Paris.' 'no thinking'
talk 'What is\\\nthe capital of France?\n' && [ -s "$work/out" ] || fail 'a backslash'
[ "$(wc -l <"$work/out")" = 1 ] || fail "two lines are two questions: $(cat "$work/out")"
talk '"""\nWhat is the capital\nof France?\n"""\n' && [ "$(wc -l <"$work/out")" = 1 ] || fail 'a block'
talk '"""\nWhat is the capital\nof France?' && [ "$(wc -l <"$work/out")" = 1 ] || fail 'a block without an end'
talk '\n  \n' && says '' 'blank lines'
talk '' && says '' 'nothing'
talk '//help\n' && [ -s "$work/out" ] && [ ! -s "$work/err" ] || fail 'a message that begins with a slash'
talk "/help\n$france\n/stats\n" || fail "commands: $(cat "$work/err")"
says 'The capital of France is Paris.' 'remarks are not on standard output'
grep -q '19 tokens: 0 reused, 19 fed' "$work/err" || fail "/stats: $(cat "$work/err")"
grep -q 'temperature 0' "$work/err" || fail "/stats shows no settings: $(cat "$work/err")"
printf '%s\n\xff\xfe bad\n' "$france" | "$millet" chat "$demo" "${greedy[@]}" >"$work/out" 2>"$work/err" || fail 'bytes that are no UTF-8'

# What is in force is said.
in_force() { # in_force COMMAND PATTERN options...
    local command=$1 pattern=$2
    shift 2
    talk "$command\n" "$@" || fail "$command: $(cat "$work/err")"
    grep -qE -e "$pattern" "$work/err" || fail "$command does not say '$pattern': $(cat "$work/err")"
}
in_force '/think' '^millet: thinking: off'
in_force '/think on' '^millet: thinking: on, shown$'
in_force '/think hide' '^millet: thinking: on, hidden$'
in_force '/think' '^millet: thinking: on, hidden' --think hide
in_force '/set' 'temperature 0 .the most likely token is taken., top-k .*seed [0-9]+, max-new-tokens 200$'
in_force '/set top-p' '^millet: top-p [0-9.]+ .without effect while temperature is 0.$'
in_force '/set temperature 0.5' '^millet: temperature 0.5$'
in_force '/set max-new-tokens 0' '^millet: max-new-tokens as many as fit$'
in_force "$france\n/stats" ' in 1 turn;.*' --temperature 0
in_force '/stats' 'thinking on, shown' --think on
talk '/set top-p 7\n'; grep -q '/set top-p takes a number from 0 to 1, not .7' "$work/err" || fail "a value: $(cat "$work/err")"
talk '/set topp 1\n'; grep -q "no option 'topp'; there are temperature, top-k" "$work/err" || fail "a name: $(cat "$work/err")"
talk '/think maybe\n'; grep -q "/think takes on, off or hide, not 'maybe'" "$work/err" || fail "/think: $(cat "$work/err")"

# JSON that is cut is no JSON.
talk "$france\n" --json-object -n 3 && fail 'a JSON reply that is cut is no failure'

# The first failure ends a script.
for line in '/nonsense' '/save' '/load /no/such/file' '/undo' '/retry' '/think maybe' '/set temperature x' '/set top-k -1' '/set nothing 1' '/set top-k 1 2'; do
    talk "$line\n$france\n" && fail "$line is no failure"
    [ "$(wc -l <"$work/err")" = 1 ] && [ ! -s "$work/out" ] || fail "$line: $(cat "$work/out" "$work/err")"
done
expect 2 'give one of --system and' "$millet" chat "$demo" --system a --system-file b
expect 2 'must be one of on|off|hide' "$millet" chat "$demo" --think perhaps
expect 1 'no such package' "$millet" chat "$work/none"
expect 1 'qwen3_5.*chatml' "$millet" chat "$demo" --template none
expect 1 'No such file' "$millet" chat "$demo" --load "$work/none"
cp -r "$demo" "$work/plain" && rm -r "$work/plain/Tokenizer"
expect 1 'needs a tokenizer' "$millet" chat "$work/plain"

# The same seed, conversation and options give the same replies, a retry another one.
story='Tell me a story.'
talk "/set temperature 1.5\n/set seed 5\n$story\n/retry\n/reset\n$story\n/retry\n/reset\n/set seed 5\n$story\n/retry\n" -n 12 || fail "seeds: $(cat "$work/err")"
for i in 1 2 3; do sed -n "$((2 * i - 1)),$((2 * i))p" "$work/out" >"$work/seed$i"; done
cmp -s "$work/seed1" "$work/seed2" && cmp -s "$work/seed1" "$work/seed3" && [ "$(sort -u "$work/out" | wc -l)" = 2 ] || fail "seeds: $(cat "$work/out")"
talk '/set temperature 101\n'; grep -q 'takes a number from 0 to 100, not .101' "$work/err" || fail "a range: $(cat "$work/err")"

# A conversation goes on where it was, without being read again.
talk "$france\nTell me a story.\n/save $work/kept\n" --template chatml || fail "save: $(cat "$work/err")"
talk "/load $work/kept\nWhat then?\n/stats\n" --template chatml || fail "load: $(cat "$work/err")"
grep -q 'prompt .* reused, [0-9] fed\|prompt .* reused, 1[0-9] fed' "$work/err" || fail "more than the new text was fed: $(cat "$work/err")"
talk "What then?\n" --template chatml --load "$work/kept" || fail '--load'
talk "$france\nTell me a story.\nWhat then?\n" --template chatml && cp "$work/out" "$work/want"
talk "What then?\n" --template chatml --load "$work/kept" && [ -s "$work/out" ] &&
    tail -n "$(wc -l <"$work/out")" "$work/want" | cmp -s "$work/out" - || fail 'a loaded conversation goes on in another way'
head -c 5000 "$work/kept" >"$work/cut"
expect 1 "cut: .* cut short or damaged" "$millet" chat "$demo" --load "$work/cut"
talk "/save $work/no/where\n" && fail 'a place that can not be written'
echo 'my notes' >"$work/notes"
talk "/save $work/notes\n" && fail 'a file of another kind is overwritten'
grep -q 'is no saved conversation' "$work/err" && [ "$(cat "$work/notes")" = 'my notes' ] || fail "notes: $(cat "$work/err")"

# The context: a clear message, or the oldest turns go.
"$millet" convert "$MILLET_SOURCE/models/tiny-qwen3.5" -o "$work/short" --context 128 --quiet || fail convert
"$millet" chat "$work/short" "${greedy[@]}" --template chatml --drop-oldest --load "$work/kept" <<<'What then?' >"$work/out" 2>"$work/err"
[ -s "$work/out" ] && grep -q 'saved with another artifact, so the next turn reads it again' "$work/err" || fail "--load of another artifact's: $(cat "$work/err")"
many=$(for i in 1 2 3 4 5 6 7 8; do echo "$france"; done)
"$millet" chat "$work/short" "${greedy[@]}" <<<"$many" >"$work/out" 2>"$work/err" && fail 'a full context is no failure in a pipe'
grep -q 'the context is full' "$work/err" || fail "full: $(cat "$work/err")"
"$millet" chat "$work/short" "${greedy[@]}" --drop-oldest <<<"$many" >"$work/out" 2>"$work/err" || fail 'dropping'
[ "$(sort -u "$work/out")" = 'The capital of France is Paris.' ] && [ "$(wc -l <"$work/out")" = 8 ] || fail "after dropping: $(cat "$work/out")"

# The reader goes away.
printf "$france\n$france\n" | "$millet" chat "$demo" "${greedy[@]}" | head -c 5 >/dev/null
[ "${PIPESTATUS[1]}" = 0 ] || fail 'a reader that goes away'

# What never ends is refused, not read until memory is full.
expect 1 '/dev/zero: more than 256 MiB of text' "$millet" chat "$demo" --system-file /dev/zero
yes a 2>/dev/null | tr '\n' ' ' 2>/dev/null | timeout 300 "$millet" chat "$demo" >"$work/out" 2>"$work/err"
[ "${PIPESTATUS[2]}" = 1 ] && grep -q 'the context is full' "$work/err" || fail "a message without an end: $(head -c 300 "$work/err")"
yes a 2>/dev/null | tr -d '\n' 2>/dev/null | timeout 300 "$millet" tokenize "$demo" --json-lines >"$work/out" 2>"$work/err"
[ "${PIPESTATUS[2]}" = 1 ] && grep -q 'standard input: a line of more than 256 MiB' "$work/err" || fail "a line without an end: $(head -c 300 "$work/err")"

# ---- a terminal ----

command -v tmux >/dev/null || { echo 'skipped: no tmux'; finish; }
tmux=(tmux -L "millet-$$" -f /dev/null)
trap '"${tmux[@]}" kill-server 2>/dev/null; rm -rf "$work"' EXIT

screen() { "${tmux[@]}" capture-pane -p -t t "$@" 2>/dev/null; }
# Waits until a line of the screen matches; what is slow is the machine.
patience=${MILLET_PATIENCE:-600} # tenths of seconds
await() {
    local i
    for i in $(seq "$patience"); do
        screen | grep -qE -e "$1" && return
        sleep 0.1
    done
    fail "$2: '$1' never came: $(screen | grep .)"
}
# Waits for the prompt: what is typed before, Ctrl-D above all, meets a terminal that is not set for editing.
ready() {
    local i
    for i in $(seq "$patience"); do
        [[ $(screen | grep . | tail -1) =~ ^\>\ ?$ ]] && return
        sleep 0.1
    done
    fail "no prompt: $(screen | grep . | tail -5)"
}
keys() { "${tmux[@]}" send-keys -t t "$@"; }
begin() { # begin "VARIABLE=value ..." options...: chat in a fresh terminal of 90 columns
    local variables=$1
    shift
    "${tmux[@]}" has-session -t base 2>/dev/null || "${tmux[@]}" new-session -d -s base -- cat # keeps the server
    "${tmux[@]}" kill-session -t t 2>/dev/null
    "${tmux[@]}" new-session -d -s t -x 90 -y 45 -- env -u NO_COLOR LANG=C.UTF-8 PS1='$ ' sh 2>"$work/err" || fail "tmux: $(cat "$work/err")"
    keys "env $variables $millet chat $demo --temperature 0 $*; echo \"rc=\$?\"; stty -a | tr ' ;' '\n\n' | grep -xE -- '-?(icanon|echo|isig)' | sort | tr '\n' ' '; echo '|'" Enter
    ready
}
row() { # row PATTERN: the first such line alone, with the style that it begins with
    local n=$(screen | grep -nE -e "$1" | head -1 | cut -d: -f1)
    screen -e -S $((n - 1)) -E $((n - 1))
}
ends_well() { # ends_well CODE: the program ended so, and the terminal is as it was
    await "^rc=$1" 'the end'
    await '^echo icanon isig \|' 'the terminal is not as it was'
    [[ $(row '^rc=') =~ ^rc= ]] || fail "the terminal has a style that it had not: $(row '^rc=' | cat -v)"
}

begin '' -n 200 --think on
keys "$france" Enter
await 'The capital of France is Paris\.' 'a reply'
await 'context \[[#.]{20}\] [0-9]+ of 2048' 'no gauge'
await 'tokens/s' 'no rate'
screen -e | grep -q $'\e\\[[0-9;]*2[0-9;]*m.*The user asks for' || screen -e | grep -q $'\e\\[[0-9;]*3m' || fail 'thinking has no style of its own'
[[ $(row 'The capital of France is Paris') =~ ^The ]] || fail "the answer has a style: $(row 'The capital of France is Paris' | cat -v)"
# editing: characters, not bytes; history
ready
keys 'Héllo 日本 wörld' BSpace BSpace BSpace BSpace BSpace BSpace BSpace x
await '^> Héllo 日本?x$|^> Héllo 日x$|^> Héllo 日本x$' 'editing of characters'
keys C-u
keys Up
await "^> What is the capital of France\?" 'history'
keys C-a C-k
# several lines: Alt-Enter, a paste, a backslash
ready
keys 'one' M-Enter 'two'
await '^two$' 'Alt-Enter'
keys C-c
ready
"${tmux[@]}" set-buffer -b p $'pasted\nlines' && "${tmux[@]}" paste-buffer -p -b p -t t
await '^lines$' 'a paste of two lines is one message'
keys C-c
ready
keys 'back\' Enter
await '^\.' 'a backslash'
keys C-c
ready
# commands
keys '/system You are brief.' Enter
await 'system message set' '/system'
keys "/save $work/typed" Enter
await "saved to .*typed: 3 messages" '/save'
keys '/reset' Enter
await 'a new conversation' '/reset'
keys "/load $work/typed" Enter
await "loaded .*typed: 3 messages" '/load'
keys '/nonsense' Enter
await '/nonsense is no command' 'an unknown command'
# a window that changes
"${tmux[@]}" resize-window -t t -x 40 -y 45
keys 'some text that is wider than the window is now'
await 'now$' 'a narrow window'
keys C-u
"${tmux[@]}" resize-window -t t -x 90 -y 45
ready
keys C-d
ends_well 0

# Ctrl-C stops the reply, not the program; twice at an empty prompt ends it. The evaluator is slow enough to be stopped.
begin 'MILLET_ENGINE=reference' -n 2000 --template chatml
keys 'Tell me a very long story about a king, a queen and a snail.' Enter
for i in $(seq "$patience"); do
    [ "$(screen | grep -cE '^[A-Za-z]')" -ge 2 ] && break
    sleep 0.1
done
keys C-c
await 'stopped' 'a reply that is stopped'
ready
keys '/stats' Enter
await 'last reply .*stopped' 'the program goes on'
ready
keys C-c
await 'Ctrl-C again or Ctrl-D ends' 'Ctrl-C at the prompt'
keys C-c
ends_well 0

# What is typed during a reply isn't shown there, but at the next prompt.
begin 'MILLET_ENGINE=reference' -n 40 --template chatml
keys 'Tell me a story.' Enter
await '^[A-Z]' 'a reply begins'
keys 'typed ahead'
await '^> typed ahead *$' 'type-ahead at the prompt'
screen | grep -v '^>' | grep -q 'typed' && fail "type-ahead within the reply: $(screen | grep .)"
keys C-u
# Ctrl-Z during a reply (one of 1,784 tokens, so that it isn't over), and at the prompt: the shell has its terminal.
for setting in 'max-new-tokens 2000' 'temperature 2' 'top-k 0' 'top-p 1' 'seed 5'; do
    ready
    keys "/set $setting" Enter
    await "^${setting% *} ${setting#* }" "/set $setting"
done
for when in reply prompt; do
    ready
    [ $when = reply ] && keys 'Tell me a long story.' Enter && sleep 0.5
    keys C-z
    await 'Stopped' "Ctrl-Z, $when"
    keys "stty -a | tr ' ;' '\\n\\n' | grep -xE -- '-?(icanon|echo|isig)' | sort | tr '\\n' ' '; echo '|$when'" Enter
    await "^echo icanon isig \\|$when" "Ctrl-Z, $when: the terminal is not as it was"
    keys 'fg' Enter
    [ $when = reply ] && sleep 0.5 && keys C-c && await 'stopped' 'goes on'
    [ $when = prompt ] && keys 'typed again' && await '^(> )?typed again$' 'the editor goes on' && keys C-u
done
keys C-d
await '^\$ *$' 'the end'
keys "echo rc=\$?; stty -a | tr ' ;' '\\n\\n' | grep -xE -- '-?(icanon|echo|isig)' | sort | tr '\\n' ' '; echo '|'" Enter
ends_well 0

# A paste during a reply is one message, too, with all its lines; also behind Ctrl-Z.
for when in first again; do
    begin 'MILLET_ENGINE=reference' -n 40 --template chatml
    keys 'Tell me a story.' Enter
    await '^[A-Z]' 'a reply begins'
    [ $when = again ] && keys C-z && await 'Stopped' 'Ctrl-Z' && keys 'fg' Enter && sleep 0.3
    "${tmux[@]}" set-buffer -b q "$when one"$'\n'"$when two"$'\n'"$when three" && "${tmux[@]}" paste-buffer -p -b q -t t
    await "^> $when one *\$" 'a paste during a reply comes to the prompt'
    await "^$when three *\$" 'the last line of a paste'
    keys C-c
    ready
    keys C-d
done

# Signals leave the terminal as it was, those that nobody expects too, at the prompt and during a reply.
for signal in TERM HUP QUIT ABRT; do
    begin 'MILLET_ENGINE=reference' -n 2000 --template chatml
    [ $signal = HUP ] || { keys 'Tell me a long story.' Enter && await '^[A-Z]' 'a reply begins'; }
    kill -$signal "$(pgrep -P "$("${tmux[@]}" display -p -t t '#{pane_pid}')")"
    ends_well "$((128 + $(kill -l $signal)))"
done

# NO_COLOR, a terminal that can nothing.
begin 'NO_COLOR=1' -n 200 --think on
keys "$france" Enter
await '^\[thinking\]' 'thinking without style'
await '^The capital of France is Paris\.' 'NO_COLOR'
screen -e | grep -v rc= | grep -q $'\e\\[[0-9;]*[123][0-9;]*m' && fail 'NO_COLOR has styles'
ready
keys C-d
ends_well 0
begin 'TERM=dumb' -n 200 --think on
keys "$france" Enter
await '^\[answer\]' 'dumb'
await '^The capital of France is Paris\.' 'dumb'
keys C-c
await 'Ctrl-C again' 'Ctrl-C, dumb'
ready
keys C-d
ends_well 0

# Replies go to a file: prompt and remarks are seen all the same.
begin '' -n 200 ">$work/file"
keys "$france" Enter
ready
keys '/nonsense' Enter
await 'is no command' 'a remark'
ready
keys C-c
await 'Ctrl-C again' 'Ctrl-C'
ready
keys C-d
ends_well 0
[ "$(cat "$work/file")" = 'The capital of France is Paris.' ] || fail "a file: $(cat "$work/file")"

# A full context asks.
demo=$work/short begin '' -n 200
for i in 1 2 3 4 5 6; do
    keys "$france" Enter
    for k in $(seq "$patience"); do
        screen | grep . | tail -1 | grep -qE '^> ?$|Drop the oldest' && break
        sleep 0.1
    done
    screen | grep -q 'Drop the oldest' && break
done
await 'the context is full' 'no message'
await 'Drop the oldest turns to make room\? \[y/n\]' 'no question'
keys 'yes please' Enter
sleep 0.3
[ "$(screen | grep -c 'Drop the oldest')" = 2 ] || fail "no answer, yet it does not ask again: $(screen | grep .)"
keys y Enter
await 'dropped the oldest turns: [0-9]' 'dropping'
ready
keys C-d
ends_well 0
# An answer is what is typed after the question: not what was typed during the reply before.
demo=$work/short begin 'MILLET_ENGINE=reference' -n 30
keys 'Tell me a story.' Enter
await '^[A-Z]' 'a reply begins'
keys "$(printf 'x %.0s' $(seq 90))" Enter y Enter
await 'Drop the oldest turns to make room. .y/n. *$' 'type-ahead is no answer'
keys n Enter
await '/drop makes room' 'no'
ready
keys C-d
ends_well 0
finish
