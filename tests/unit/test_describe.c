#define _GNU_SOURCE
/* Contract descriptions: those that are shipped, hostile ones, patterns of names, YAML side files, and which
 * packages of a directory they choose. */
#include "base/file.h"
#include "base/json.h"
#include "base/yaml.h"
#include "generate/pattern.h"
#include "generate/sets.h"
#include "generate/values.h"
#include "work_dir.h"
#include <sys/stat.h>
#include <unistd.h>

static arena *a;

/* ---- descriptions ---- */

#define HEAD "\"format\": \"millet contract\", \"version\": 1, \"name\": \"x\""
#define IN   "\"inputs\": {\"ids\": {\"is\": \"tokens\", \"shape\": [1, \"T\"]}}"
#define OUT  "\"outputs\": {\"y\": {\"is\": \"logits\", \"shape\": [1, \"T\", \"V\"]}}"
#define ONE  "\"packages\": [{\"role\": \"m\", \"files\": [\"m\"], " IN ", " OUT "}]"

static const description *parse(const char *text, err *e) {
    *e = (err){0};
    return describe_parse(a, "x.json", text, strlen(text), e);
}

static void shipped(void **state) {
    (void)state;
    err e = {0};
    assert_true(describe_n_builtin >= 7);
    for (size_t i = 0; i < describe_n_builtin; i++) {
        const describe_builtin *b = &describe_builtins[i];
        const description *d = describe_parse(a, b->name, (const char *)b->text, b->n, &e);
        if (!d) fail_msg("%s", e.msg);
        assert_string_equal(arena_printf(a, "%s.json", d->name), b->name);
        char path[600];
        snprintf(path, sizeof path, "%s/share/contracts/%s", getenv("MILLET_SOURCE"), b->name);
        file_map m;
        assert_true(file_open_map(&m, path, &e));
        assert_int_equal(m.size, b->n);
        assert_memory_equal(m.data, b->text, b->n);
        file_unmap(&m);
    }
    assert_string_equal(describe_builtins[0].name, "chunks.json");
    assert_string_equal(describe_builtins[1].name, "single.json");
}

/* One line that names the file and the field. */
static void refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *expected;
    } cases[] = {
        {"", "x.json: "},
        {"[]", "x.json: the document: expected an object"},
        {"{}", "x.json: format: expected \"millet contract\""},
        {"{\"format\": \"millet contract\"}", "x.json: version: expected 1"},
        {"{\"format\": \"millet contract\", \"version\": 2}", "x.json: version: expected 1"},
        {"{" HEAD ", \"packges\": []}", "x.json: packges: expected one of $schema format"},
        {"{" HEAD "}", "x.json: packages: expected a list of at least one"},
        {"{" HEAD ", \"packages\": []}", "x.json: packages: expected a list of at least one"},
        {"{" HEAD ", \"packages\": [5]}", "x.json: packages[0]: expected an object"},
        {"{" HEAD ", \"packages\": [{" IN ", " OUT "}]}", "x.json: packages[0].role: expected a word"},
        {"{" HEAD ", \"packages\": [{\"role\": \"m\", " OUT "}]}",
         "x.json: packages[0].inputs: expected at least one name"},
        {"{" HEAD ", \"packages\": [{\"role\": \"m\", \"inputs\": {\"a*\": {}}, " OUT "}]}",
         "x.json: packages[0].inputs.a*: expected a name, perhaps with {i} or {a}"},
        {"{" HEAD ", \"packages\": [{\"role\": \"m\", \"inputs\": {\"a\": {\"is\": \"magic\"}}, " OUT "}]}",
         "x.json: packages[0].inputs.a.is: expected one of tokens, hidden, position"},
        {"{" HEAD ", \"packages\": [{\"role\": \"m\", \"inputs\": {\"a\": {\"is\": \"logits\"}}, " OUT "}]}",
         "x.json: packages[0].inputs.a.is: expected one of tokens"},
        {"{" HEAD ", \"packages\": [{\"role\": \"m\", \"inputs\": {\"a\": {\"is\": \"tokens\"}}, " OUT "}]}",
         "x.json: packages[0].inputs.a.shape: expected a list of sizes"},
        {"{" HEAD ", \"packages\": [{\"role\": \"m\", \"inputs\": {\"a\": {\"is\": \"tokens\", \"shape\": "
         "[1, 1, 1, 1, 1, \"T\"]}}, " OUT "}]}",
         "x.json: packages[0].inputs.a.shape: expected a list of sizes"},
        {"{" HEAD ", \"packages\": [{\"role\": \"m\", \"inputs\": {\"a\": {\"is\": \"tokens\", \"shape\": "
         "[0, \"T\"]}}, " OUT "}]}",
         "x.json: packages[0].inputs.a.shape: expected a list of sizes"},
        {"{" HEAD ", \"packages\": [{\"role\": \"m\", \"inputs\": {\"a\": {\"is\": \"tokens\", \"shape\": "
         "[\"T\", \"T\"]}}, " OUT "}]}",
         "x.json: packages[0].inputs.a.shape: expected each letter at most once"},
        {"{" HEAD ", \"packages\": [{\"role\": \"m\", \"inputs\": {\"a\": {\"is\": \"tokens\", \"shape\": "
         "[1]}}, " OUT "}]}",
         "x.json: packages[0].inputs.a.shape: expected a size T for tokens"},
        {"{" HEAD
         ", \"packages\": [{\"role\": \"m\", \"inputs\": {\"a\": {\"is\": \"causal_mask\", \"shape\": "
         "[\"K\"], \"hidden\": 1}}, " OUT "}]}",
         "x.json: packages[0].inputs.a.hidden: expected a number below 0, or \"-inf\""},
        {"{" HEAD ", \"packages\": [{\"role\": \"m\", \"inputs\": {\"a\": {\"is\": \"position\", \"shape\": "
         "[1], \"hidden\": -1}}, " OUT "}]}",
         "x.json: packages[0].inputs.a.hidden: expected nothing: this meaning has no use for it"},
        {"{" HEAD ", \"packages\": [{\"role\": \"m\", \"inputs\": {\"a\": {\"is\": \"rope_cos\", \"shape\": "
         "[8]}}, " OUT "}]}",
         "x.json: packages[0].inputs.a.theta: expected the base of the frequencies"},
        {"{" HEAD ", \"packages\": [{\"role\": \"m\", \"inputs\": {\"a\": {\"is\": \"carried\", \"shape\": "
         "[8]}}, " OUT "}]}",
         "x.json: packages[0].inputs.a.from: expected the name of the output"},
        {"{" HEAD ", \"packages\": [{\"role\": \"m\", \"functions\": {\"prefill\": [\"p\"]}, " IN ", " OUT
         "}]}",
         "x.json: packages[0].functions.decode: expected names of functions"},
        {"{" HEAD ", \"packages\": [{\"role\": \"m\", \"files\": [\"{x}\"], " IN ", " OUT "}]}",
         "x.json: packages[0].files: expected names with * {i} {n} {a} only"},
        {"{" HEAD ", \"packages\": [{\"role\": \"m\", \"files\": [\"m\"], " IN ", " OUT
         "}, {\"role\": \"n\", " IN ", " OUT "}]}",
         "x.json: packages[1].files: expected patterns for every package"},
        {"{" HEAD ", " ONE ", \"table\": {\"form\": \"npy\", \"files\": [\"t.npy\"]}}",
         "x.json: table: expected none: a package takes token ids"},
        {"{" HEAD ", " ONE ", \"prefill\": {\"rows\": \"some\"}}",
         "x.json: prefill.rows: expected one of last, every, none"},
        {"{" HEAD ", " ONE ", \"prefill\": {\"pad\": 3}}", "x.json: prefill.pad: expected a token id, with"},
        {"{" HEAD ", " ONE ", \"prefill\": {\"one_token\": false}}",
         "x.json: prefill.one_token: expected true, unless"},
        {"{" HEAD ", " ONE ", \"states\": {\"caches\": {\"k\": 2}}}",
         "x.json: states.caches.k: expected a name with the axis"},
        {"{" HEAD ", " ONE ", \"metadata\": {}}", "x.json: metadata.file: expected the name of a file"},
        {"{" HEAD ", " ONE ", \"metadata\": {\"file\": \"../x\"}}",
         "x.json: metadata.file: expected a relative path without .. parts"},
        {"{" HEAD ", " ONE ", \"tokenizer\": [\"/etc\"]}", "x.json: tokenizer: expected a relative path"},
        {"{" HEAD ", " ONE ", \"vocab\": [\"file\"]}", "x.json: vocab: expected a number, or a list"},
        {"{" HEAD ", " ONE ", \"vocab\": [\"../f:k\"]}", "x.json: vocab: expected a relative path"},
    };
    err e;
    assert_non_null(parse("{" HEAD ", " ONE "}", &e));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (parse(cases[i].text, &e) || strncmp(e.msg, cases[i].expected, strlen(cases[i].expected)) != 0)
            fail_msg("%s\n%s\nexpected: %s", cases[i].text, e.msg, cases[i].expected);
        assert_int_equal(e.code, ERR_FORMAT);
    }
}

/* ---- names ---- */

static void patterns(void **state) {
    (void)state;
    static const struct {
        const char *pattern, *name;
        bool fits;
        long i, n;
    } cases[] = {
        {"model", "model", true, -1, -1},
        {"model", "models", false, 0, 0},
        {"*", "", true, -1, -1},
        {"*_lut*", "q_embeddings_lut6", true, -1, -1},
        {"chunk_{i}", "chunk_0", true, 0, -1},
        {"chunk_{i}", "chunk_", false, 0, 0},
        {"{i}of{n}", "02of12", true, 2, 12},
        {"chunk_{a}", "chunk_c", true, 2, -1},
        {"chunk_{a}", "chunk_C", false, 0, 0},
        {"*_PF_chunk_{i}of{n}", "q_PF_lut4_chunk_01of02", false, 0, 0},
        {"{i}", "999999999999", false, 0, 0},
        {"*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaac", false, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pattern_match m;
        bool fits = pattern_fits(cases[i].pattern, cases[i].name, &m);
        if (fits != cases[i].fits || (fits && (m.i != cases[i].i || m.n != cases[i].n)))
            fail_msg("%s against %s: %d %ld %ld", cases[i].name, cases[i].pattern, fits, m.i, m.n);
    }
    assert_true(pattern_valid("a*{i}of{n}"));
    assert_false(pattern_valid("") || pattern_valid("{") || pattern_valid("{i}{a}") ||
                 pattern_valid("*****"));
}

/* ---- YAML ---- */

static const json *yaml(const char *text, err *e) {
    *e = (err){0};
    return yaml_parse(a, "m.yaml", text, strlen(text), e);
}

static void yaml_files(void **state) {
    (void)state;
    static const char text[] = "# a comment\n"
                               "model_info:\n"
                               "  name: tiny-ctx256   # behind it\n"
                               "  version: 0.3.5\n"
                               "  description: |\n"
                               "    Two lines: of text\n"
                               "    # no comment\n"
                               "\n"
                               "  quoted: 'a: # b'\n"
                               "  parameters:\n"
                               "    count: 2\n"
                               "    share: 0.5\n"
                               "    none: none\n"
                               "    nothing:\n"
                               "    infer_only: true\n"
                               "    sizes: [64, 64, x]\n"
                               "  list:\n"
                               "  - a\n"
                               "  - 7\n"
                               "after: ~\n";
    err e;
    const json *j = yaml(text, &e);
    if (!j) fail_msg("%s", e.msg);
    str s = {0};
    json_canonical(&s, j);
    assert_string_equal(
        str_get(&s),
        "{\"after\":null,\"model_info\":{\"description\":\"Two lines: of text\\n# no "
        "comment\\n\\n\",\"list\":[\"a\",7],\"name\":\"tiny-ctx256\",\"parameters\":{\"count\":2,"
        "\"infer_only\":true,\"none\":\"none\",\"nothing\":null,\"share\":0.5,\"sizes\":[64,64,"
        "\"x\"]},\"quoted\":\"a: # b\",\"version\":\"0.3.5\"}}");
    str_free(&s);
    assert_int_equal(values_key(j, "model_info.parameters.count")->i, 2);
    assert_null(values_key(j, "model_info.parameters.nothing"));
    assert_null(values_key(j, "model_info.name.x"));
    static const struct {
        const char *text, *expected;
    } bad[] = {
        {"a: {b: 1}\n", "m.yaml: line 1: anchors, tags and flow mappings are not read"},
        {"a: 1\na: 2\n", "m.yaml: line 2: the key stands there twice"},
        {"a:\n    b: 1\n  c: 2\n", "m.yaml: line 3: "},
        {"a: 1\n  b: 2\n", "m.yaml: line 2: "},
        {"just text\n", "m.yaml: line 1: expected \"key: value\""},
        {"a: [1, 2\n", "m.yaml: line 1: a list in brackets"},
        {"a: [1,, 2]\n", "m.yaml: line 1: an element of the list is missing"},
        {"a: \"x\n", "m.yaml: line 1: a quoted text must end"},
        {"a:\n\t- x\n", "m.yaml: line 1: not UTF-8 text without tabs"},
        {"- a: 1\n", "m.yaml: line 1: mappings in lists are not read"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (yaml(bad[i].text, &e) || strncmp(e.msg, bad[i].expected, strlen(bad[i].expected)) != 0)
            fail_msg("%s%s", bad[i].text, e.msg);
    str deep = {0};
    for (int i = 0; i < 100; i++) {
        for (int k = 0; k < i; k++) str_addc(&deep, ' ');
        str_adds(&deep, "a:\n");
    }
    assert_null(yaml(str_get(&deep), &e));
    assert_non_null(strstr(e.msg, "nested too deeply"));
    str_free(&deep);
}

/* ---- directories ---- */

static void make(const char *name) {
    assert_int_equal(mkdir(in_work(name), 0755), 0);
}

static void put(const char *name, const char *text) {
    err e = {0};
    assert_true(file_write(in_work(name), text, strlen(text), &e));
}

/* The packages that are chosen, without their directory; else what is lacking. */
static const char *arrange(const description *d) {
    set_directory s;
    set_parts p;
    str lacks = {0}, out = {0};
    set_scan(&s, a, work_dir, false);
    bool ok = set_arrange(&p, a, &s, d, &lacks);
    for (size_t i = 0; ok && i < p.n; i++)
        str_printf(&out, "%s%s:%zu", i ? " " : "", strrchr(p.path[i], '/') + 1, p.role[i]);
    if (ok && p.certain) str_adds(&out, " certain");
    const char *text = arena_str(a, ok ? str_get(&out) : str_get(&lacks));
    str_free(&lacks);
    str_free(&out);
    return text;
}

static void directories(void **state) {
    (void)state;
    err e;
    const description *d = parse(
        "{" HEAD ", \"metadata\": {\"file\": \"meta.yaml\", \"holds\": [\"m.n\"], \"equals\": {\"m.own\": "
        "false}}, \"packages\": [{\"role\": \"e\", \"files\": [\"*_e\"], " IN ", " OUT
        "}, {\"role\": \"c\", \"files\": [\"*_lut*_{i}of{n}\", \"*_{i}of{n}\"], \"named\": \"m.c\", " IN
        ", " OUT "}, {\"role\": \"h\", \"files\": [\"h\"], \"optional\": true, " IN ", " OUT "}]}",
        &e);
    if (!d) fail_msg("%s", e.msg);
    assert_string_equal(arrange(d), "a package *_e");
    make("q_e.mlpackage");
    assert_string_equal(arrange(d), "a package *_lut*_{i}of{n} or *_{i}of{n}");
    make("q_lut4_01of02.mlpackage");
    assert_string_equal(arrange(d), "*_lut*_{i}of{n} number 2");
    make("q_lut4_02of02.mlpackage");
    assert_string_equal(arrange(d), "q_e.mlpackage:0 q_lut4_01of02.mlpackage:1 q_lut4_02of02.mlpackage:1");
    make("q_01of01.mlpackage"); /* another set, of a later pattern */
    assert_string_equal(arrange(d), "q_e.mlpackage:0 q_lut4_01of02.mlpackage:1 q_lut4_02of02.mlpackage:1");
    make("q_lut6_01of01.mlpackage");
    assert_string_equal(arrange(d), "one of q_lut4_01of02.mlpackage and q_lut6_01of01.mlpackage alone");
    put("meta.yaml", "m:\n  n: 1\n  c: q_lut6_01of01.mlmodelc\n"); /* names the twin */
    assert_string_equal(arrange(d), "q_e.mlpackage:0 q_lut6_01of01.mlpackage:1 certain");
    put("meta.yaml", "m:\n  n: 1\n  c: gone\n  own: true\n");
    assert_string_equal(arrange(d), "m.own false in meta.yaml");
    put("meta.yaml", "m: 1\n");
    assert_string_equal(arrange(d), "m.n in meta.yaml");
    put("meta.yaml", "m: [\n");
    assert_non_null(strstr(arrange(d), "meta.yaml: line 1"));
}

static int begin(void **state) {
    (void)state;
    a = arena_new();
    return 0;
}

static int end(void **state) {
    (void)state;
    arena_free(a);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shipped), cmocka_unit_test(refused), cmocka_unit_test(patterns),
        cmocka_unit_test(yaml_files),
        cmocka_unit_test_setup_teardown(directories, make_work_dir, remove_work_dir)};
    return cmocka_run_group_tests(tests, begin, end);
}
