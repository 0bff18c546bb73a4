# millet tokenize on the small model's tokenizer. Expected ids and texts come from the tokenizers library.
. "$(dirname "$0")/lib.sh" || exit 1
dir=$MILLET_SOURCE/models/tiny-qwen3.5

answers() { # answers EXPECTED INPUT [options]
    local want=$1 input=$2 got
    shift 2
    got=$(printf '%s' "$input" | "$millet" tokenize "$dir" --json-lines "$@" 2>"$work/stderr") || fail "$input: $(cat "$work/stderr")"
    [ "$got" = "$want" ] || fail "$input gives $got, not $want"
}
answers '{"ids":[493,535,258,449,11,448,317,258,748,696,13]}' '{"text": "Once upon a time, there was a little fox."}'
answers '{"ids":[]}' '{"text": ""}'
answers '{"ids":[188,189,221]}' '{"text": "\u0000\u0001\u007f"}'
answers '{"ids":[4064,1996,198,2599,4065,198]}' '{"text": "<|im_start|>user\nhi<|im_end|>\n"}'
answers $'{"ids":[64]}\n{"ids":[198]}' $'{"text": "a"}\n{"text": "\\n"}\n'
answers '{"pieces":["","","","😀"],"flush":""}' '{"ids": [172, 253, 246, 222]}' --decode
answers '{"pieces":["","",""],"flush":"�"}' '{"ids": [172, 253, 246], "skip_special_tokens": true}' --decode
answers '{"pieces":["","user"],"flush":""}' '{"ids": [4064, 1996], "skip_special_tokens": true}' --decode
answers '{"pieces":["<|im_start|>","user"],"flush":""}' '{"ids": [4064, 1996]}' --decode
answers '' ''

# Conversations, in the template of the directory or of the line.
hi='{"messages": [{"role": "user", "content": "hi"}]'
answers '{"text":"<|im_start|>user\nhi<|im_end|>\n","ids":[4064,1996,198,2599,4065,198]}' "$hi}" --chat
answers '{"text":"<|im_start|>user\nhi<|im_end|>\n","ids":[4064,1996,198,2599,4065,198]}' "$hi, \"family\": \"qwen3\"}" --chat
answers '{"error":"messages: the conversation is empty"}' '{"messages": []}' --chat
answers '{"error":"messages: expected an array"}' '{}' --chat
for line in '"family": "x"' '"options": 3' '"options": {"tools": 1}' '"options": {"enable_thinking": "no"}' '"options": {"tools": [1]}'; do
    "$millet" tokenize "$dir" --json-lines --chat <<<"$hi, $line}" 2>&1 | grep -q '^{"error":".*"}$' || fail "$line: no error"
done

refuses() { # refuses PATTERN INPUT [options]
    local pattern=$1 code=0
    printf "$2" >"$work/input"
    shift 2
    "$millet" tokenize "$dir" --json-lines "$@" <"$work/input" >"$work/stdout" 2>"$work/stderr" || code=$?
    [ "$code" = 1 ] && grep -qE -e "$pattern" "$work/stderr" && [ "$(wc -l <"$work/stderr")" = 1 ] ||
        fail "exit code $code, '$pattern' not in: $(cat "$work/stderr")"
}
refuses 'standard input, line 2: expected an object with a string "text"' '{"text":"a"}\n{"txt":"b"}\n{"text":"c"}\n'
[ "$(wc -l <"$work/stdout")" = 1 ] || fail "the answer before the bad line is missing"
refuses 'line 1: ' '\n'
refuses 'line 1: .*UTF8' '{"text":"\xff"}\n'
refuses 'line 1: not valid JSON at column 10 .byte 9.: .*half of a surrogate pair' '{"text":"\\ud800"}\n'
refuses 'line 1: expected an object with an array "ids"' '{"text":"a"}\n' --decode
refuses 'ids\[1\] is not a token id' '{"ids":[1,2.5]}\n' --decode
refuses '"skip_special_tokens" must be' '{"ids":[1],"skip_special_tokens":1}\n' --decode

# Each line is answered before the next one comes.
coproc "$millet" tokenize "$dir" --json-lines
echo '{"text": "a"}' >&"${COPROC[1]}"
read -r -t 20 -u "${COPROC[0]}" line && [ "$line" = '{"ids":[64]}' ] || fail "no answer before the end of input"

refuses 'line 1: expected an object' '[1]\n' --chat
expect 2 'exclude each other' "$millet" tokenize "$dir" --json-lines --chat --decode
expect 2 '--template needs --chat' "$millet" tokenize "$dir" --json-lines --template qwen3
expect 2 '--allow-special needs --chat' "$millet" tokenize "$dir" --json-lines --allow-special
expect 2 '--json-lines is missing' "$millet" tokenize "$dir"
expect 1 'tokenizer.json: No such file' "$millet" tokenize "$work" --json-lines
finish
