/* Schemas: the cases of tests/data/schemas.json (tests/oracle/structured.py) byte by byte; calls of tools;
 * hostile ones. */
#include "base/json.h"
#include "structured/matcher.h"
#include "test.h"

static vocabulary *one_token(void) {
    err e = {0};
    const uint8_t *s = (const uint8_t *)"x";
    size_t n = 1;
    return vocabulary_from_bytes(&s, &n, 1, NULL, 0, &e);
}

static bool accepts(grammar *g, const char *text, size_t n) {
    err e = {0};
    vocabulary *v = one_token();
    matcher *m = matcher_new(g, v, &e);
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++) ok = matcher_accept_bytes(m, text + i, 1);
    ok = ok && matcher_may_end(m);
    matcher_free(m);
    vocabulary_free(v);
    return ok;
}

/* Compact, members in their order. */
static void write_json(str *out, const json *v) {
    if (v->kind == JSON_STRING)
        str_json_string(out, v->s, v->len);
    else if (v->kind == JSON_REAL)
        str_json_double(out, v->d);
    else if (v->kind == JSON_INT)
        str_printf(out, "%lld", (long long)v->i);
    else if (v->kind == JSON_BOOL || v->kind == JSON_NULL)
        str_adds(out, v->kind == JSON_NULL ? "null" : v->i ? "true" : "false");
    else {
        bool object = v->kind == JSON_OBJECT;
        str_addc(out, object ? '{' : '[');
        JSON_EACH(c, v) {
            if (c != v->child) str_addc(out, ',');
            if (object) str_json_string(out, c->key, c->key_len), str_addc(out, ':');
            write_json(out, c);
        }
        str_addc(out, object ? '}' : ']');
    }
}

static void cases(void **state) {
    (void)state;
    err e = {0};
    arena *a = arena_new();
    const char *source = getenv("MILLET_SOURCE");
    const json *groups =
        json_parse_file(a, arena_printf(a, "%s/tests/data/schemas.json", source ? source : "."), &e);
    if (!groups) fail_msg("%s", e.msg);
    size_t count = 0;
    JSON_EACH(group, groups) {
        grammar *g = grammar_from_schema(json_get(group, "schema"), NULL, &e);
        if (!g) fail_msg("%s: %s", json_str(group, "description", ""), e.msg);
        JSON_EACH(t, json_get(group, "tests")) {
            if (!json_bool(t, "written", true)) continue; /* 1.0 would be written as 1 here */
            str text = {0};
            write_json(&text, json_get(t, "data"));
            bool valid = json_bool(t, "valid", false);
            if (accepts(g, text.s, text.len) != valid)
                fail_msg("%s: %s is %s", json_str(group, "description", ""), text.s,
                         valid ? "refused" : "accepted");
            str_free(&text);
            count++;
        }
        grammar_free(g);
    }
    assert_true(count > 1000);
    arena_free(a);
}

/* ---- tools ---- */

static const char weather[] =
    "{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\","
    "\"minimum\":1,\"maximum\":7},\"note\":{\"anyOf\":[{\"type\":\"string\",\"maxLength\":5},{\"type\":"
    "\"null\"}]},\"x\":{}},\"required\":[\"city\",\"days\"],\"additionalProperties\":false}";

typedef struct {
    const char *text;
    bool ok;
} expected;

static void check_tools(tools_options o, const expected *x, size_t n) {
    err e = {0};
    arena *a = arena_new();
    grammar_tool tools[] = {
        {.name = "get_weather", .parameters = json_parse(a, "", weather, sizeof weather - 1, &e)},
        {.name = "noop"},
        {.name = "any", .loose = true}};
    o.tool = tools, o.n_tool = 3;
    grammar *g = grammar_tools(&o, &e);
    if (!g) fail_msg("%s", e.msg);
    arena_free(a);
    for (size_t i = 0; i < n; i++)
        if (accepts(g, x[i].text, strlen(x[i].text)) != x[i].ok)
            fail_msg("%s: expected %d", x[i].text, x[i].ok);
    grammar_free(g);
}
#define CHECK_TOOLS(x, ...) check_tools((tools_options){__VA_ARGS__}, x, sizeof(x) / sizeof *(x))
#define OSLO                                                                                                 \
    "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": "                \
    "3}}\n</tool_call>"
#define NOOP "<tool_call>\n{\"name\": \"noop\", \"arguments\": {}}\n</tool_call>"

static void json_calls(void **state) {
    (void)state;
    static const expected required[] = {
        {OSLO, true},
        {OSLO "\n" NOOP, true},
        {OSLO NOOP, false},
        {"hi " OSLO, false},
        {"", false},
        {"<tool_call>\n{\"name\": \"nope\", \"arguments\": {}}\n</tool_call>", false},
        {"<tool_call>\n{\"name\": \"noop\", \"arguments\": {\"a\": 1}}\n</tool_call>", false},
        {"<tool_call>\n{\"name\": \"any\", \"arguments\": {\"a\": [1]}}\n</tool_call>", true},
        {"<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": "
         "8}}\n</tool_call>",
         false}};
    static const expected one[] = {{OSLO, true}, {OSLO "\n" NOOP, false}};
    static const expected automatic[] = {{"", true},
                                         {"hello <tool", true},
                                         {"x " OSLO, true},
                                         {OSLO "\n" OSLO, true},
                                         {"a <tool_call>", false},
                                         {OSLO " and", false}};
    static const expected behind[] = {{"so</think>\n\n" OSLO, true}, {OSLO, false}, {"</think>" NOOP, true}};
    CHECK_TOOLS(required, .choice = TOOLS_REQUIRED);
    CHECK_TOOLS(one, .choice = TOOLS_REQUIRED, .one_call = true);
    CHECK_TOOLS(automatic, .choice = TOOLS_AUTO);
    CHECK_TOOLS(behind, .choice = TOOLS_REQUIRED, .at.behind = "</think>");
}

#define CALL(name, parameters) "<tool_call>\n<function=" name ">\n" parameters "</function>\n</tool_call>"
#define PARAMETER(k, v)        "<parameter=" k ">\n" v "\n</parameter>\n"

static void xml_calls(void **state) {
    (void)state;
    static const expected required[] = {
        {CALL("get_weather", PARAMETER("city", "Oslo\n\"q\" <b> \\ \xC3\xA9") PARAMETER("days", "3")), true},
        {CALL("get_weather", PARAMETER("city", "Oslo") PARAMETER("days", "9")), false},
        {CALL("get_weather", PARAMETER("days", "3") PARAMETER("city", "Oslo")), false},
        {CALL("get_weather", PARAMETER("city", "") PARAMETER("days", "1") PARAMETER("note", "abc")), true},
        {CALL("get_weather", PARAMETER("city", "") PARAMETER("days", "1") PARAMETER("note", "null")), true},
        {CALL("get_weather", PARAMETER("city", "") PARAMETER("days", "1") PARAMETER("note", "abcdef")),
         false},
        {CALL("get_weather", PARAMETER("city", "a</parameter>b") PARAMETER("days", "1")), false},
        {CALL("get_weather", PARAMETER("city", "a") PARAMETER("days", "1") PARAMETER("x", "free\n text")),
         true},
        {CALL("get_weather", PARAMETER("city", "a") PARAMETER("days", "1") PARAMETER("y", "1")), false},
        {CALL("noop", ""), true},
        {CALL("any", PARAMETER("q", "1") PARAMETER("r", "x y")), true},
        {CALL("noop", "") "\n" CALL("noop", ""), true}};
    CHECK_TOOLS(required, .choice = TOOLS_REQUIRED, .dialect = TOOLS_XML);
}

/* ---- hostile schemas: refused, or made in bounded time ---- */

static void hostile(void **state) {
    (void)state;
    static const char *const text[] = {
        "{\"type\":\"string\",\"pattern\":\"^(a|b)*a(a|b){18}$\"}",
        "{\"type\":\"string\",\"pattern\":\"((((((a{1,9}){1,9}){1,9}){1,9}){1,9}){1,9}){1,9}\"}",
        "{\"type\":\"string\",\"pattern\":\"(.*a.*b.*c.*d.*e.*f.*g.*h.*i.*j.*k.*l){30}\",\"maxLength\":1500}",
        "{\"type\":\"string\",\"pattern\":\"^[a-z]*$\",\"maxLength\":1000000000}",
        "{\"$defs\":{\"a\":{\"anyOf\":[{\"$ref\":\"#/$defs/b\"},{\"$ref\":\"#/$defs/"
        "b\"}]},\"b\":{\"anyOf\":[{\"$ref\":\"#/$defs/c\"},{\"$ref\":"
        "\"#/$defs/c\"}]},\"c\":{\"anyOf\":[{\"$ref\":\"#/$defs/d\"},{\"$ref\":\"#/$defs/"
        "d\"}]},\"d\":{\"type\":\"array\",\"items\":{\"$ref\":"
        "\"#/$defs/a\"}}},\"$ref\":\"#/$defs/a\"}",
    };
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        err e = {0};
        grammar *g = grammar_from_text("x", text[i], strlen(text[i]), NULL, &e);
        assert_true(!g == (e.code != ERR_NONE));
        if (!g) assert_int_equal(e.code, ERR_LIMIT);
        grammar_free(g);
    }
}

/* Deep texts of recursive schemas, and readings that multiply. */
static void deep(void **state) {
    (void)state;
    static const char text[] =
        "{\"$defs\":{\"a\":{\"anyOf\":[{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/"
        "a\"},\"maxItems\":3},{\"type\":"
        "\"array\",\"items\":{\"$ref\":\"#/$defs/a\"},\"maxItems\":4}]}},\"$ref\":\"#/$defs/a\"}";
    err e = {0};
    grammar *g = grammar_from_text("x", text, sizeof text - 1, NULL, &e);
    assert_non_null(g);
    vocabulary *v = one_token();
    matcher *m = matcher_new(g, v, &e);
    for (int i = 0; i < 40; i++) assert_true(matcher_accept_bytes(m, "[", 1));
    for (int i = 0; i < 40; i++) assert_true(matcher_accept_bytes(m, "]", 1));
    assert_true(matcher_must_end(m));
    matcher_free(m);
    grammar_free(g);
    g = grammar_json_object(NULL, &e);
    m = matcher_new(g, v, &e);
    assert_true(matcher_accept_bytes(m, "{\"a\":", 5));
    for (int i = 0; i < 100000; i++) assert_true(matcher_accept_bytes(m, "[", 1));
    for (int i = 0; i < 100000; i++) assert_true(matcher_accept_bytes(m, "]", 1));
    assert_true(matcher_accept_bytes(m, "}", 1) && matcher_must_end(m));
    matcher_free(m);
    grammar_free(g);
    vocabulary_free(v);
}

/* Hundreds of readings side by side: none is lost, none is kept twice. */
static void many_readings(void **state) {
    (void)state;
    err e = {0};
    str s = {0};
    str_adds(&s, "{\"anyOf\":[");
    for (int i = 0; i < 900; i++)
        str_printf(&s,
                   "%s{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"},\"k\":{\"const\":%d}},"
                   "\"required\":[\"a\",\"k\"],\"additionalProperties\":false}",
                   i ? "," : "", i);
    str_adds(&s, "]}");
    grammar *g = grammar_from_text("x", s.s, s.len, NULL, &e);
    assert_non_null(g);
    assert_true(accepts(g, "{\"a\":\"x\",\"k\":0}", 15));
    assert_true(accepts(g, "{\"a\":\"x\",\"k\":899}", 17));
    assert_false(accepts(g, "{\"a\":\"x\",\"k\":900}", 17));
    grammar_free(g);
    str_free(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(cases),     cmocka_unit_test(json_calls),
                                       cmocka_unit_test(xml_calls), cmocka_unit_test(hostile),
                                       cmocka_unit_test(deep),      cmocka_unit_test(many_readings)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
