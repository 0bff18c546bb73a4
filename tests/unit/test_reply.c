/* The reply parser. A record of events is one string: R[reasoning] C[content] call(name) A[arguments] end
 * broken; neighbouring texts of one kind are joined. Each text is read whole, byte by byte, in two pieces cut
 * at every place, and cut at random. */
#include "test.h"
#include "text/detokenize.h"
#include "text/reply.h"

typedef struct {
    str out;
    int last; /* kind of the text that isn't closed yet; -1 */
    size_t call;
} record;

static void close_text(record *t) {
    if (t->last >= 0) str_adds(&t->out, "] ");
    t->last = -1;
}

static void on_event(void *ctx, const reply_event *e) {
    record *t = ctx;
    bool text = e->kind == REPLY_REASONING || e->kind == REPLY_CONTENT || e->kind == REPLY_ARGUMENTS;
    if (t->last != (int)e->kind) close_text(t);
    if (e->kind >= REPLY_CALL) assert_int_equal(e->call, t->call);
    if (text) {
        assert_true(e->n > 0);
        if (t->last < 0)
            str_adds(&t->out, e->kind == REPLY_REASONING ? "R[" : e->kind == REPLY_CONTENT ? "C[" : "A[");
        str_add(&t->out, e->s, e->n);
        t->last = (int)e->kind;
    } else if (e->kind == REPLY_CALL) {
        str_printf(&t->out, "call(%.*s) ", (int)e->n, e->s);
    } else {
        str_adds(&t->out, e->kind == REPLY_CALL_END ? "end " : "broken ");
        t->call++;
    }
}

static unsigned next_random(unsigned *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 16;
}

/* Ends of the pieces: bytes (1), everything (0), one cut (-1: random ones). */
static void read_cut(const reply_options *o, const char *s, size_t n, long cut, unsigned seed, record *t) {
    *t = (record){.last = -1};
    reply *r = reply_new(o, on_event, t);
    for (size_t i = 0; i < n;) {
        size_t piece = n - i;
        if (cut == 1) piece = 1;
        if (cut > 1 && i < (size_t)cut - 1) piece = (size_t)cut - 1;
        if (cut < 0) piece = next_random(&seed) % 12 + 1;
        if (piece > n - i) piece = n - i;
        reply_push(r, s + i, piece);
        i += piece;
    }
    reply_end(r);
    close_text(t);
    if (t->out.len) t->out.s[t->out.len - 1] = 0;
    reply_free(r);
}

static void check(const reply_options *o, const char *text, const char *want) {
    size_t n = strlen(text);
    record t;
    for (long cut = 0; cut <= (long)n + 1; cut++) {
        read_cut(o, text, n, cut, 0, &t);
        if (strcmp(str_get(&t.out), want)) {
            printf("text (cut %ld): %s\n", cut, text);
            assert_string_equal(str_get(&t.out), want);
        }
        str_free(&t.out);
    }
    for (unsigned seed = 0; seed < 50; seed++) {
        read_cut(o, text, n, -1, seed, &t);
        assert_string_equal(str_get(&t.out), want);
        str_free(&t.out);
    }
}

static const reply_options PLAIN = {.calls = CHAT_CALLS_NONE}, THINKS = {.may_think = true},
                           OPEN = {.thinking = true, .may_think = true},
                           JSON_CALLS = {.may_think = true, .calls = CHAT_CALLS_JSON},
                           WHOLE_JSON = {.may_think = true, .calls = CHAT_CALLS_JSON, .whole_calls = true};

static void test_plain(void **state) {
    (void)state;
    check(&PLAIN, "", "");
    check(&PLAIN, "Hello, world.\n", "C[Hello, world.\n]");
    check(&PLAIN, "\n\na\n\nb\n\n", "C[\n\na\n\nb\n\n]");
    check(&PLAIN, "<think>\nx</think> <tool_call>", "C[<think>\nx</think> <tool_call>]");
    check(&PLAIN, "你好 😀 <", "C[你好 😀 <]");
}

/* Prompts that leave thinking to the model, that end inside of it, that closed it already. */
static void test_thinking(void **state) {
    (void)state;
    check(&THINKS, "<think>\nEasy sum.\n</think>\n\n2", "R[Easy sum.] C[2]");
    check(&THINKS, "\n<think>\nEasy sum.\n</think>\n\n2", "R[Easy sum.] C[2]");
    check(&THINKS, "<think>\n\n</think>\n\n2\n", "C[2\n]");
    check(&THINKS, "<think>a\n\nb</think>c\n", "R[a\n\nb] C[c\n]");
    check(&THINKS, "2 <think> no", "C[2 <think> no]");
    check(&THINKS, "\n\n2", "C[\n\n2]");
    check(&THINKS, "<thinker> </think> x", "C[<thinker> </think> x]");
    check(&THINKS, "<thin", "C[<thin]");
    check(&THINKS, "\n", "C[\n]");
    check(&OPEN, "Easy sum.\n</think>\n\n2", "R[Easy sum.] C[2]");
    check(&OPEN, "\nEasy\nsum.</think>2", "R[Easy\nsum.] C[2]");
    check(&OPEN, "<think>\nEasy.\n</think>\n\n2", "R[Easy.] C[2]");
    check(&OPEN, "</think>\n\n2", "C[2]");
    check(&OPEN, "\n</think>\n\n2", "C[2]");
    check(&OPEN, "cut off </thi", "R[cut off </thi]");
    check(&OPEN, "a < b, </ <//think> </think>c </think> d", "R[a < b, </ <//think> ] C[c </think> d]");
    check(&OPEN, "<th", "R[<th]");
}

static void test_json_calls(void **state) {
    (void)state;
    const reply_options *both[] = {&JSON_CALLS, &WHOLE_JSON};
    for (size_t i = 0; i < 2; i++) {
        const reply_options *o = both[i];
        check(o,
              "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\"}}\n</tool_call>",
              "call(get_weather) A[{\"city\": \"Bern\"}] end");
        check(o, "Let me look.\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n",
              "C[Let me look.] call(now) A[{}] end");
        check(o,
              "<tool_call>{\"name\": \"a\", \"arguments\": {\"x\": [1, {\"y\": null}], \"z\": "
              "-0.5e+3}}</tool_call>\n"
              "<tool_call>\n{\"name\":\"b\",\"arguments\":{}}\n</tool_call>",
              "call(a) A[{\"x\": [1, {\"y\": null}], \"z\": -0.5e+3}] end call(b) A[{}] end");
        /* the other order, no arguments, arguments in a string, more members */
        check(o, "<tool_call>{\"arguments\": {\"x\": 1}, \"name\": \"a\"}</tool_call>",
              "call(a) A[{\"x\": 1}] end");
        check(o, "<tool_call>{\"name\": \"a\"}</tool_call>", "call(a) A[{}] end");
        check(o, "<tool_call>{\"name\": \"a\", \"arguments\": null}</tool_call>", "call(a) A[{}] end");
        check(o, "<tool_call>{\"name\": \"a\", \"arguments\": \"{\\\"x\\\": 1}\"}</tool_call>",
              "call(a) A[{\"x\": 1}] end");
        check(o,
              "<tool_call>{\"id\": 7, \"name\": \"a\\u00e9\", \"arguments\": {\"name\": \"b\"}, \"t\": "
              "[\"name\"]}</tool_call>",
              "call(aé) A[{\"name\": \"b\"}] end");
        /* a closing tag that lacks, or isn't needed */
        check(o, "<tool_call>\n{\"name\": \"a\", \"arguments\": {}}", "call(a) A[{}] end");
        check(o, "<tool_call>\n{\"name\": \"a\", \"arguments\": {}}\n</tool_", "call(a) A[{}] end");
        check(o, "<tool_call>\n{\"name\": \"a\", \"arguments\": {}}\n<tool_call>{\"name\": \"b\"}",
              "call(a) A[{}] end call(b) A[{}] end");
        check(o, "<tool_call>{\"name\": \"a\"}</tool_call>\nDone.\n", "call(a) A[{}] end C[\nDone.\n]");
        /* tags inside of strings; raw newlines there are spelled out */
        check(o,
              "<tool_call>{\"name\": \"a\", \"arguments\": {\"s\": \"</tool_call> <tool_call> \\\" "
              "}\"}}</tool_call>",
              "call(a) A[{\"s\": \"</tool_call> <tool_call> \\\" }\"}] end");
        check(o, "<tool_call>{\"name\": \"a\", \"arguments\": {\"s\": \"x\ny\tz\"}}</tool_call>",
              "call(a) A[{\"s\": \"x\\ny\\tz\"}] end");
        /* behind thinking, not inside */
        check(o,
              "<think>\n<tool_call>{\"name\": \"a\"}</tool_call>\n</think>\n\n<tool_call>{\"name\": "
              "\"b\"}</tool_call>",
              "R[<tool_call>{\"name\": \"a\"}</tool_call>] call(b) A[{}] end");
        check(o, "<tool_cal", "C[<tool_cal]");
        check(o, "a <tool_call", "C[a <tool_call]");
        check(o, "<<tool_call>{\"name\": \"a\"}", "C[<] call(a) A[{}] end");
    }
}

static void test_bad_json_calls(void **state) {
    (void)state;
    /* Broken before anything was told: only content. */
    static const char *const early[] = {
        "<tool_call>\nget_weather(Bern)\n</tool_call>",
        "<tool_call>[]</tool_call>",
        "<tool_call>{\"name\": 3}</tool_call>",
        "<tool_call>{\"name\": \"\"}</tool_call>",
        "<tool_call>{\"arguments\": {}}</tool_call>",
        "<tool_call>{'name': 'a'}</tool_call>",
        "<tool_call>{\"arguments\": {\"x\": 01}, \"name\": \"a\"}</tool_call>",
        "x\n\n<tool_call>{\"nam",
        "<tool_call>",
        "<tool_call>\n\n",
        "<tool_call>{\"a\": {\"name\": \"x\"}}",
    };
    char want[256];
    for (size_t i = 0; i < sizeof early / sizeof *early; i++) {
        snprintf(want, sizeof want, "C[%s]", early[i]);
        check(&JSON_CALLS, early[i], want);
        check(&WHOLE_JSON, early[i], want);
    }
    /* Broken later: the call is called off. */
    static const struct {
        const char *text, *told;
    } late[] = {
        {"<tool_call>{\"name\": \"a\", \"arguments\": {\"x\": }}</tool_call>", "call(a) A[{\"x\": ] broken"},
        {"<tool_call>{\"name\": \"a\", \"arguments\": {\"x\": tru", "call(a) A[{\"x\": tru] broken"},
        {"<tool_call>{\"name\": \"a\", \"arguments\": 3}</tool_call>", "call(a) broken"},
        {"<tool_call>{\"name\": \"a\", \"arguments\": \"x\"}</tool_call>", "call(a) broken"},
        {"<tool_call>{\"name\": \"a\", \"arguments\": {\"x\": 1}, \"name\": \"b\"}</tool_call>",
         "call(a) A[{\"x\": 1}] broken"},
        {"<tool_call>{\"name\": \"a\", \"arguments\": {\"x\": \"\\q\"}}</tool_call>",
         "call(a) A[{\"x\": \"\\] broken"},
        {"<tool_call>{\"name\": \"a\", \"arguments\": {\"x\": 1]}</tool_call>",
         "call(a) A[{\"x\": 1] broken"},
    };
    for (size_t i = 0; i < sizeof late / sizeof *late; i++) {
        snprintf(want, sizeof want, "%s C[%s]", late[i].told, late[i].text);
        check(&JSON_CALLS, late[i].text, want);
        snprintf(want, sizeof want, "C[%s]", late[i].text);
        check(&WHOLE_JSON, late[i].text, want);
    }
    /* What comes behind counts again. */
    check(&WHOLE_JSON, "<tool_call>{<tool_call>{\"name\": \"b\"}</tool_call>",
          "C[<tool_call>{] call(b) A[{}] end");
    check(&JSON_CALLS, "a\n<tool_call>no</tool_call>\n<tool_call>{\"name\": \"b\"}</tool_call>",
          "C[a\n<tool_call>no</tool_call>] call(b) A[{}] end");
    check(&JSON_CALLS,
          "<tool_call>{\"name\": \"a\", \"arguments\": [</tool_call><tool_call>{\"name\": \"b\"}</tool_call>",
          "call(a) broken C[<tool_call>{\"name\": \"a\", \"arguments\": [</tool_call>] call(b) A[{}] end");
}

#define TOOLS                                                                                                \
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": \"object\", "      \
    "\"properties\": {"                                                                                      \
    "\"s\": {\"type\": \"string\"}, \"i\": {\"type\": \"integer\"}, \"n\": {\"type\": \"number\"}, "         \
    "\"b\": {\"type\": \"boolean\"}, \"l\": {\"type\": \"array\"}, \"d\": {\"type\": \"object\"}, "          \
    "\"sn\": {\"type\": [\"string\", \"null\"]}, \"any\": {\"anyOf\": [{\"type\": \"integer\"}, {\"$ref\": " \
    "\"#/$defs/text\"}]}, \"e\": {\"enum\": [1, 2]}, \"q\": {}, \"loop\": {\"$ref\": "                       \
    "\"#/properties/loop\"}}, "                                                                              \
    "\"$defs\": {\"text\": {\"type\": \"string\"}}}}}, {\"name\": \"bare\", \"parameters\": "                \
    "{\"properties\": "                                                                                      \
    "{\"i\": {\"type\": \"integer\"}}}}]"

#define CALL(name, body)   "<tool_call>\n<function=" name ">\n" body "</function>\n</tool_call>"
#define PARAM(name, value) "<parameter=" name ">\n" value "\n</parameter>\n"

static void test_xml_calls(void **state) {
    (void)state;
    err e = {0};
    arena *a = arena_new();
    const json *tools = json_parse(a, "tools", TOOLS, strlen(TOOLS), &e);
    assert_non_null(tools);
    reply_options both[] = {{.thinking = true, .may_think = true, .calls = CHAT_CALLS_XML, .tools = tools},
                            {.thinking = true, .may_think = true, .calls = CHAT_CALLS_XML, .tools = tools}};
    both[1].whole_calls = true;
    static const struct {
        const char *text, *want;
    } cases[] = {
        {CALL("f", PARAM("s", "Bern")), "call(f) A[{\"s\": \"Bern\"}] end"},
        {CALL("now", ""), "call(now) A[{}] end"},
        {"Let me look.\n\n" CALL("f", PARAM("s", "a") PARAM("i", "3")) "\n" CALL("bare",
                                                                                 PARAM("i", "4")) "\n",
         "C[Let me look.] call(f) A[{\"s\": \"a\", \"i\": 3}] end call(bare) A[{\"i\": 4}] end"},
        /* types of the schema: strings stay strings */
        {CALL("f", PARAM("s", "3")), "call(f) A[{\"s\": \"3\"}] end"},
        {CALL("f", PARAM("s", "")), "call(f) A[{\"s\": \"\"}] end"},
        {CALL("f", "<parameter=s>\n</parameter>\n"), "call(f) A[{\"s\": \"\"}] end"},
        {CALL("f", "<parameter=s>x</parameter>"), "call(f) A[{\"s\": \"x\"}] end"},
        {CALL("f", PARAM("s", "\n a \"q\" \\ \tb\nc\n")),
         "call(f) A[{\"s\": \"\\n a \\\"q\\\" \\\\ \\tb\\nc\\n\"}] end"},
        {CALL("f", PARAM("n", "-1.50e3")), "call(f) A[{\"n\": -1.50e3}] end"},
        {CALL("f", PARAM("n", "12345678901234567890123")), "call(f) A[{\"n\": 12345678901234567890123}] end"},
        {CALL("f", PARAM("i", "three")), "call(f) A[{\"i\": \"three\"}] end"},
        {CALL("f", PARAM("b", "True")), "call(f) A[{\"b\": true}] end"},
        {CALL("f", PARAM("b", "false")), "call(f) A[{\"b\": false}] end"},
        {CALL("f", PARAM("b", "1")), "call(f) A[{\"b\": \"1\"}] end"},
        {CALL("f", PARAM("l", "[1, \"a\"]")), "call(f) A[{\"l\": [1, \"a\"]}] end"},
        {CALL("f", PARAM("d", "{\"k\": \"v\"}")), "call(f) A[{\"d\": {\"k\": \"v\"}}] end"},
        {CALL("f", PARAM("d", "{'k': 'v'}")), "call(f) A[{\"d\": \"{'k': 'v'}\"}] end"},
        {CALL("f", PARAM("sn", "None")), "call(f) A[{\"sn\": null}] end"},
        {CALL("f", PARAM("sn", "Nones")), "call(f) A[{\"sn\": \"Nones\"}] end"},
        {CALL("f", PARAM("any", "7")), "call(f) A[{\"any\": 7}] end"},
        {CALL("f", PARAM("any", "7a")), "call(f) A[{\"any\": \"7a\"}] end"},
        {CALL("f", PARAM("e", "2")), "call(f) A[{\"e\": 2}] end"},
        {CALL("f", PARAM("q", "2")), "call(f) A[{\"q\": \"2\"}] end"},
        {CALL("f", PARAM("loop", "2")), "call(f) A[{\"loop\": \"2\"}] end"},
        {CALL("f", PARAM("unknown", "2")), "call(f) A[{\"unknown\": \"2\"}] end"},
        {CALL("g", PARAM("i", "2")), "call(g) A[{\"i\": \"2\"}] end"},
        /* closing tags that are text */
        {CALL("f", PARAM("s", "if x:\n    </parameter>\n</para\n</function>\n</tool_call>")),
         "call(f) A[{\"s\": \"if x:\\n    </parameter>\\n</para\\n</function>\\n</tool_call>\"}] end"},
        {CALL("f", PARAM("s", "\n</parameter>\n</parameter>")),
         "call(f) A[{\"s\": \"\\n</parameter>\\n</parameter>\"}] end"},
        {CALL("f", PARAM("s", "a\n\n\n</parameter >")),
         "call(f) A[{\"s\": \"a\\n\\n\\n</parameter >\"}] end"},
        /* the last tag lacks */
        {"<tool_call>\n<function=now>\n</function>", "call(now) A[{}] end"},
        {"<tool_call><function=f><parameter=s>x</parameter></function></tool_call>bye",
         "call(f) A[{\"s\": \"x\"}] end C[bye]"},
    };
    char text[512];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(text, sizeof text, "</think>\n\n%s", cases[i].text);
        check(&both[0], text, cases[i].want);
        check(&both[1], text, cases[i].want);
    }
    check(&both[0], "<tool_call>\n<function=now>\n</function>\n</tool_call>\n</think>\n\n" CALL("f", ""),
          "R[<tool_call>\n<function=now>\n</function>\n</tool_call>] call(f) A[{}] end");
    arena_free(a);
}

static void test_bad_xml_calls(void **state) {
    (void)state;
    static const reply_options stream = {.calls = CHAT_CALLS_XML},
                               whole = {.calls = CHAT_CALLS_XML, .whole_calls = true};
    static const struct {
        const char *text, *told;
    } cases[] = {
        {"<tool_call>\n{\"name\": \"a\"}\n</tool_call>", ""},
        {"<tool_call>\n<function=>\n", ""},
        {"<tool_call>\n<function=a\nb>", ""},
        {"<tool_call>\n<fun", ""},
        {"a\n\n<tool_call>\n<function=a", ""},
        {"<tool_call>\n<function=a>\nx</function>", "call(a) broken "},
        {"<tool_call>\n<function=a>\n", "call(a) broken "},
        {"<tool_call>\n<function=a>\n<parameter=x>\ny\n</parameter>", "call(a) A[{\"x\": \"y] broken "},
        {"<tool_call>\n<function=a>\n<parameter=x>\ny\n</parameter>\n<parameter=x>\nz\n</parameter>\n</"
         "function>",
         "call(a) A[{\"x\": \"y\"] broken "},
        {"<tool_call>\n<function=a>\n<parameter=x>\ny\n</parameter>\n<parameter=<>",
         "call(a) A[{\"x\": \"y\"] broken "},
    };
    char want[512];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(want, sizeof want, "%sC[%s]", cases[i].told, cases[i].text);
        check(&stream, cases[i].text, want);
        snprintf(want, sizeof want, "C[%s]", cases[i].text);
        check(&whole, cases[i].text, want);
    }
    check(&whole, "<tool_call>\n<tool_call>\n<function=a>\n</function>\n</tool_call>",
          "C[<tool_call>\n] call(a) A[{}] end");
}

/* Text shows as soon as it can't be a marker any more. */
static void test_no_delay(void **state) {
    (void)state;
    record t = {.last = -1};
    reply *r = reply_new(&JSON_CALLS, on_event, &t);
    static const struct {
        const char *piece, *shown;
    } steps[] = {{"a", "C[a"},
                 {"<", "C[a"},
                 {"t", "C[a"},
                 {"<", "C[a<t"},
                 {"b", "C[a<t<b"},
                 {"\n", "C[a<t<b"},
                 {"c", "C[a<t<b\nc"},
                 {"<tool_call>{\"name\": \"f\"", "C[a<t<b\nc] call(f) "},
                 {", \"arguments\": {\"x\"", "C[a<t<b\nc] call(f) A[{\"x\""}};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        reply_push(r, steps[i].piece, strlen(steps[i].piece));
        assert_string_equal(str_get(&t.out), steps[i].shown);
    }
    assert_int_equal(reply_calls(r), 0);
    reply_push(r, ": 1}}", 5);
    assert_int_equal(reply_calls(r), 1);
    reply_free(r);
    str_free(&t.out);
    r = reply_new(&OPEN, on_event, &(record){.last = -1});
    assert_true(reply_in_reasoning(r));
    reply_push(r, "</think>", 8);
    assert_false(reply_in_reasoning(r));
    reply_free(r);
}

/* Token by token, characters and markers cut as tokens cut them, with the end of the turn among them. */
static void test_tokens(void **state) {
    (void)state;
    const char *text =
        "<think>\nEasy: 😀 é.\n</think>\n\nLet me look, 你好.\n<tool_call>\n{\"name\": \"get_weather\", "
        "\"arguments\": {\"city\": \"Zürich 🌧\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"now\", "
        "\"arguments\": {}}\n</tool_call><|im_end|>";
    const char *want = "R[Easy: 😀 é.] C[Let me look, 你好.] call(get_weather) A[{\"city\": \"Zürich 🌧\"}] "
                       "end call(now) A[{}] end";
    char dir[512];
    err e = {0};
    token_list ids = {0};
    snprintf(dir, sizeof dir, "%s/models/tiny-qwen3.5", getenv("MILLET_SOURCE"));
    tokenizer *t = tokenizer_load(dir, &e);
    if (!t || !tokenizer_encode(t, text, strlen(text), 0, &ids, &e)) fail_msg("%s", e.msg);
    record got = {.last = -1};
    reply *r = reply_new(&JSON_CALLS, on_event, &got);
    detokenizer d;
    detokenizer_begin(&d, t, true);
    str piece = {0};
    for (size_t i = 0; i <= ids.n; i++) {
        if (i < ids.n)
            detokenizer_push(&d, ids.ids[i], &piece);
        else
            detokenizer_flush(&d, &piece);
        reply_push(r, str_get(&piece), piece.len);
        str_clear(&piece);
    }
    reply_end(r);
    close_text(&got);
    got.out.s[got.out.len - 1] = 0;
    assert_string_equal(str_get(&got.out), want);
    assert_int_equal(reply_calls(r), 2);
    reply_free(r);
    str_free(&piece);
    str_free(&got.out);
    token_list_free(&ids);
    tokenizer_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),      cmocka_unit_test(test_thinking),
        cmocka_unit_test(test_json_calls), cmocka_unit_test(test_bad_json_calls),
        cmocka_unit_test(test_xml_calls),  cmocka_unit_test(test_bad_xml_calls),
        cmocka_unit_test(test_no_delay),   cmocka_unit_test(test_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
