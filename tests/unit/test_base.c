#define _GNU_SOURCE
#include "base/arena.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/map.h"
#include "base/str.h"
#include "base/team.h"
#include "base/wire.h"
#include "work_dir.h"
#include <locale.h>
#include <unistd.h>

static void arena_keeps_what_it_gave(void **s) {
    (void)s;
    arena *a = arena_new();
    unsigned char *p[2000];
    for (int i = 0; i < 2000; i++) {
        p[i] = arena_alloc(a, (size_t)i);
        assert_int_equal((uintptr_t)p[i] % 16, 0);
        for (int j = 0; j < i; j++) assert_int_equal(p[i][j], 0);
        memset(p[i], i & 255, (size_t)i);
    }
    for (int i = 0; i < 2000; i++)
        for (int j = 0; j < i; j++) assert_int_equal(p[i][j], i & 255);
    arena_reset(a);
    assert_string_equal(arena_printf(a, "%s-%d", "x", 7), "x-7");
    int *v = NULL;
    size_t cap = 0;
    for (size_t i = 0; i < 100; i++) {
        v = arena_grow(a, v, i, &cap, i + 1, sizeof *v);
        v[i] = (int)i;
    }
    for (int i = 0; i < 100; i++) assert_int_equal(v[i], i);
    arena_free(a);
    arena_free(NULL);
}

static void first_error_wins_on_one_line(void **s) {
    (void)s;
    err e = {0};
    assert_false(err_set(&e, ERR_FORMAT, "bad %s", "a\nb"));
    assert_false(err_set(&e, ERR_IO, "later"));
    err_where(&e, "file %d", 3);
    assert_int_equal(e.code, ERR_FORMAT);
    assert_string_equal(e.msg, "file 3: bad a?b");
    char long_text[4000];
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = 0;
    err f = {0};
    err_set(&f, ERR_IO, "%s", long_text);
    err_where(&f, "%s", long_text);
    assert_true(strlen(f.msg) < sizeof f.msg);
}

static void map_finds_every_key(void **s) {
    (void)s;
    arena *a = arena_new();
    map *m = map_new(a, 0);
    for (uint32_t i = 0; i < 5000; i++) {
        char *k = arena_printf(a, "key%u", i);
        assert_true(map_add(m, k, strlen(k), i));
        assert_false(map_add(m, k, strlen(k), 1));
    }
    for (uint32_t i = 0; i < 5000; i++) {
        char k[20];
        assert_int_equal(map_get(m, k, (size_t)sprintf(k, "key%u", i)), i);
    }
    assert_int_equal(map_get(m, "absent", 6), MAP_NONE);
    assert_int_equal(map_count(m), 5000);
    /* FNV-1a test vectors of draft-eastlake-fnv */
    assert_true(hash_bytes("", 0, 0) == 0xcbf29ce484222325u);
    assert_true(hash_bytes("a", 1, 0) == 0xaf63dc4c8601ec8cu);
    assert_true(hash_bytes("foobar", 6, 0) == 0x85944171f73967e8u);
    arena_free(a);
}

/* Accept and reject lists after RFC 8259 and RFC 3629. */
static void json_is_strict(void **s) {
    (void)s;
    static const char *const good[] = {"{}",
                                       "[]",
                                       "null",
                                       " [1 , 2]\n",
                                       "\"\\u0000\\ud83d\\ude00\"",
                                       "\"\\\\ud800\\uD83D\\uDE00\"",
                                       "-0.5e+3",
                                       "{\"a\":{\"b\":[true,false]}}",
                                       "0",
                                       " 0\n",
                                       "\t{} \r\n",
                                       "\"a\" ",
                                       "\"\xF0\x9F\x98\x80\""};
    static const char *const bad[] = {"",
                                      " ",
                                      "{",
                                      "[1,]",
                                      "{\"a\":1,}",
                                      "{'a':1}",
                                      "01",
                                      "+1",
                                      "1.",
                                      ".5",
                                      "nul",
                                      "[1] x",
                                      "[1] \"x",
                                      "{}\"",
                                      "3\": [1]",
                                      "3 tru",
                                      "\"a\" \"b\"",
                                      "1 2",
                                      "{} {",
                                      "null ]",
                                      "\"\x01\"",
                                      "\"\xC0\x80\"",
                                      "\"\xED\xA0\x80\"",
                                      "\"abc",
                                      "{\"a\":1,\"a\":2}",
                                      "{\"a\" 1}",
                                      "NaN",
                                      "// c\n1",
                                      "[1}",
                                      "\"\\ud800\"",
                                      "\"\\ud800x\"",
                                      "\"\\ud83d\\ud83d\"",
                                      "\"\\ud83d\\u0041\"",
                                      "\"\\udc00\"",
                                      "{\"\\uDFFF\":1}",
                                      "\"\\x\""};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        arena *a = arena_new();
        err e = {0};
        if (!json_parse(a, "t", good[i], strlen(good[i]), &e)) fail_msg("%s: %s", good[i], e.msg);
        arena_free(a);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        arena *a = arena_new();
        err e = {0};
        if (json_parse(a, "t", bad[i], strlen(bad[i]), &e)) fail_msg("accepted: %s", bad[i]);
        assert_int_equal(e.code, ERR_FORMAT);
        arena_free(a);
    }
    char deep[1000];
    memset(deep, '[', sizeof deep);
    err e = {0};
    arena *a = arena_new();
    assert_null(json_parse(a, "t", deep, sizeof deep, &e));
    arena_free(a);
}

/* Lines and columns counted by hand. */
static void json_errors_have_a_place(void **s) {
    (void)s;
    static const struct {
        const char *text, *want;
    } cases[] = {{"{\"a\": 1,}", "t: not valid JSON at column 9 (byte 8): invalid object key"},
                 {"{\n  \"a\": 1\n  \"bcd\": 2\n}", "line 3 column 3 (byte 13): after key and value"},
                 {"{\"a\": {\"b\": [1]  } \n 77}", "line 2 column 2 (byte 21): after key and value"},
                 {"[1, 2 345]", "column 7 (byte 6): after array element"},
                 {"[\"x\", \"a\" \"b\\\"c\"]", "column 11 (byte 10): after array element"},
                 {"[\n[\ntrue\nfalse]]", "line 4 column 1 (byte 9): after array element"},
                 {"[1,,2]", "column 4 (byte 3): unallowed token"},
                 {"{a: 1}", "column 2 (byte 1): invalid char"},
                 {"[\"\xFF\"]\n", "column 3 (byte 2): invalid bytes in UTF8"},
                 {"[\n\"a\\q\"]", "line 2 column 4 (byte 5): inside a string"},
                 {"[1, -x]", "column 6 (byte 5): malformed number"},
                 {"[tru]", "column 5 (byte 4): invalid string"},
                 {"{\n\"a\": [1, 2\n", "line 3 column 1 (byte 13): the text ends before the document does"},
                 {"\"abc", "column 5 (byte 4): the text ends before the document does"},
                 {"{}\n\n  x", "line 3 column 3 (byte 6): there is more text behind the document"},
                 {"[\n\"\\ud800\"]", "line 2 column 2 (byte 3): \\ud800 is half of a surrogate pair"},
                 {"[\n\"\xED\xA0\x80\"]", "line 2 column 1 (byte 2): a string is not UTF-8"},
                 {"[{\"k\":1,\"k\":2}\n]",
                  "duplicate key \"k\" in the object that ends at line 1 column 14 (byte 13)"},
                 {" \n ", "t: empty, expected JSON"},
                 {"", "t: empty, expected JSON"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        arena *a = arena_new();
        err e = {0};
        assert_null(json_parse(a, "t", cases[i].text, strlen(cases[i].text), &e));
        if (!strstr(e.msg, cases[i].want)) fail_msg("%s: %s", cases[i].text, e.msg);
        arena_free(a);
    }
    char place[JSON_PLACE];
    json_place(place, "ab\ncd", 5, 99);
    assert_string_equal(place, "line 2 column 3 (byte 5)");
    json_place(place, "", 0, 0);
    assert_string_equal(place, "column 1 (byte 0)");
}

static void json_values_read_back(void **s) {
    (void)s;
    setlocale(LC_ALL, "de_DE.UTF-8"); /* where installed: a decimal comma must not matter */
    const char *t = "{\"i\":-9007199254740993,\"d\":1.5,\"e\":2e3,\"b\":true,\"s\":\"a\\u0000b\",\"n\":null,"
                    "\"l\":[1,2,3]}";
    arena *a = arena_new();
    err e = {0};
    const json *j = json_parse(a, "t", t, strlen(t), &e);
    assert_non_null(j);
    assert_true(json_int(j, "i", 0) == -9007199254740993);
    assert_true(json_double(j, "d", 0) == 1.5);
    assert_int_equal(json_int(j, "e", 0), 2000);
    assert_true(json_bool(j, "b", false));
    assert_int_equal(json_get(j, "s")->len, 3);
    assert_memory_equal(json_get(j, "s")->s, "a\0b", 3);
    assert_null(json_get_kind(j, "n", JSON_STRING));
    assert_string_equal(json_str(j, "s", "none"), "none"); /* "a" it is not */
    assert_false(json_is(json_get(j, "s"), "a"));
    assert_false(json_is(json_get(j, "i"), ""));
    assert_false(json_is(NULL, ""));
    assert_int_equal(json_int(j, "absent", 5), 5);
    int n = 0;
    JSON_EACH(c, json_get(j, "l")) {
        assert_int_equal(c->i, ++n);
    }
    assert_int_equal(n, 3);
    str out = {0};
    str_json_string(&out, "\"\\\n\t\x01\xC3\xA4\xFF", 8);
    assert_string_equal(str_get(&out), "\"\\\"\\\\\\n\\t\\u0001\xC3\xA4\xEF\xBF\xBD\"");
    str_clear(&out);
    str_json_double(&out, 0.1);
    str_addc(&out, ' ');
    str_json_double(&out, 1.0 / 3);
    str_addc(&out, ' ');
    str_json_double(&out, 1e300 * 1e10);
    assert_string_equal(str_get(&out), "0.1 0.3333333333333333 null");
    str_free(&out);
    arena_free(a);
    setlocale(LC_ALL, "C");
}

/* Examples of the protobuf encoding guide: field 1 = 150, field 2 = "testing", field 3 = { field 1 = 150 },
 * packed 4. */
static void wire_examples(void **s) {
    (void)s;
    static const uint8_t want[] = {0x08, 0x96, 0x01, 0x12, 0x07, 't',  'e',  's',  't',
                                   'i',  'n',  'g',  0x1a, 0x03, 0x08, 0x96, 0x01, 0x22,
                                   0x06, 0x03, 0x8E, 0x02, 0x9E, 0xA7, 0x05};
    wire_out o = {0};
    size_t m = wire_begin(&o);
    wire_put_varint(&o, 86942);
    wire_put_varint(&o, 270);
    wire_put_varint(&o, 3);
    wire_end(&o, 4, m);
    m = wire_begin(&o);
    wire_int(&o, 1, 150);
    wire_end(&o, 3, m);
    wire_string(&o, 2, "testing", 7);
    wire_int(&o, 1, 150);
    assert_int_equal(wire_size(&o), sizeof want);
    assert_memory_equal(wire_data(&o), want, sizeof want);
    wire_free(&o);

    wire_in in = wire_open(want, sizeof want);
    int seen = 0;
    while (wire_next(&in)) {
        seen++;
        assert_int_equal(in.field, seen);
        if (in.field == 1) assert_int_equal(in.number, 150);
        if (in.field == 2) assert_memory_equal(in.bytes, "testing", 7);
        if (in.field == 3) {
            wire_in sub = wire_message(&in);
            assert_true(wire_next(&sub) && sub.number == 150);
            assert_false(wire_next(&sub));
        }
        if (in.field == 4) {
            static const uint64_t v[] = {3, 270, 86942};
            const uint8_t *at = NULL;
            uint64_t x;
            int n = 0;
            while (wire_scalar(&in, WIRE_VARINT, &at, &x)) assert_true(x == v[n++]);
            assert_int_equal(n, 3);
        }
    }
    assert_int_equal(seen, 4);
    assert_false(in.bad);
    for (size_t cut = 1; cut < sizeof want; cut++) { /* every truncation is noticed or ends between fields */
        wire_in c = wire_open(want, cut);
        while (wire_next(&c)) {
        }
        assert_true(c.bad || cut == 3 || cut == 12 || cut == 17);
    }
}

static void wire_refuses(const void *bytes, size_t n) {
    wire_in in = wire_open(bytes, n);
    while (wire_next(&in)) {
    }
    assert_true(in.bad);
}

static void wire_rejects_malformed_input(void **s) {
    (void)s;
    wire_refuses("\x08\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x02", 11); /* more than 64 bits */
    wire_refuses("\x00", 1);                                          /* field number 0 */
    wire_refuses("\x0B", 1);                                          /* groups are not used */
    wire_refuses("\x12\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F", 10);     /* length past the end */
    wire_refuses("\x0D\x01", 2);
    uint8_t nest[3000];
    size_t at = sizeof nest, len = 0;
    while (at > 4 &&
           len < 16000) { /* messages in messages: the depth limit stops the reader, not the stack */
        size_t n = len;
        nest[--at] = (uint8_t)(n >> 7);
        nest[--at] = (uint8_t)(n | 0x80);
        nest[--at] = 0x0A;
        len += 3;
    }
    wire_in in = wire_open(nest + at, sizeof nest - at);
    int depth = 0;
    while (wire_next(&in)) in = wire_message(&in), depth++;
    assert_true(in.bad && depth <= WIRE_MAX_DEPTH + 1);
}

static void files_are_replaced_whole(void **s) {
    (void)s;
    assert_int_equal(make_work_dir(NULL), 0);
    char path[200];
    err e = {0};
    snprintf(path, sizeof path, "%s/a/b", work_dir);
    assert_true(file_make_dirs(path, &e));
    snprintf(path, sizeof path, "%s/a/b/f", work_dir);
    assert_true(file_write(path, "one", 3, &e));
    assert_true(file_write(path, "three", 5, &e));
    file_map m;
    assert_true(file_open_map(&m, path, &e));
    assert_int_equal(m.size, 5);
    assert_memory_equal(m.data, "three", 5);
    file_unmap(&m);
    assert_false(file_open_map(&m, work_dir, &e));
    assert_int_equal(e.code, ERR_IO);
    err e2 = {0};
    assert_true(file_remove_tree(work_dir, &e2));
    assert_false(file_exists(work_dir));
    assert_true(file_remove_tree(work_dir, &e2));
}

/* ---- a team that waits: awake, asleep (more workers than CPUs; a late one), and between runs ---- */

enum { MEMBERS = 5, ROUNDS = 200 };

typedef struct {
    team *t;
    int round[MEMBERS][ROUNDS]; /* [i][k]: k when worker i has come to round k */
    bool behind[MEMBERS];       /* it saw one who had not */
} meeting;

static void meet(void *ctx, unsigned worker) {
    meeting *m = ctx;
    for (int k = 0; k < ROUNDS; k++) {
        if (worker == 1 && k % 64 == 0) usleep(1000);
        m->round[worker][k] = k + 1;
        team_barrier(m->t, worker);
        for (unsigned i = 0; i < team_size(m->t); i++) m->behind[worker] |= m->round[i][k] != k + 1;
    }
}

static void workers_wait_for_each_other(void **s) {
    (void)s;
    static meeting m;
    m.t = team_new(MEMBERS, false);
    for (int run = 0; run < 3; run++) {
        memset(m.round, 0, sizeof m.round);
        team_run(m.t, meet, &m);
        for (unsigned i = 0; i < team_size(m.t); i++) {
            assert_false(m.behind[i]);
            assert_int_equal(m.round[i][ROUNDS - 1], ROUNDS);
        }
        usleep(1000);
    }
    team_free(m.t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arena_keeps_what_it_gave),
        cmocka_unit_test(first_error_wins_on_one_line),
        cmocka_unit_test(map_finds_every_key),
        cmocka_unit_test(json_is_strict),
        cmocka_unit_test(json_errors_have_a_place),
        cmocka_unit_test(json_values_read_back),
        cmocka_unit_test(wire_examples),
        cmocka_unit_test(wire_rejects_malformed_input),
        cmocka_unit_test(files_are_replaced_whole),
        cmocka_unit_test(workers_wait_for_each_other),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
