/* Models in several packages, cut in layers and in the head's rows, with prefill functions: what comes out is
 * what transformers computes in float32 (oracles/README.md), whatever the number of packages and the sizes of
 * the calls. */
#define _GNU_SOURCE
#include "base/file.h"
#include "convert/convert.h"
#include "generate/decoder.h"
#include "golden/oracle.h"
#include "work_dir.h"
#include <unistd.h>

/* As in test_prefill.c: states are of size 1 to 6 and are rounded to value + remainder, 22 bits, at every
 * call.
 */
#define STATE_TOLERANCE 5e-5

#ifdef MILLET_HOSTILE /* the sanitizers take twenty times as long: shorter prompts */
enum { LONGEST = 17 };
#else
enum { LONGEST = 64 };
#endif

static void must(bool ok, const err *e) {
    if (!ok) fail_msg("%s", e->msg);
}

/* ---- the oracle ---- */

static int32_t *ids_of(const oracle *o, const json *prompt, size_t *n) {
    const json *v = json_get_kind(prompt, "ids", JSON_ARRAY);
    assert_non_null(v);
    int32_t *ids = ARENA_ARRAY(o->a, int32_t, v->len);
    *n = 0;
    JSON_EACH(m, v) ids[(*n)++] = (int32_t)m->i;
    return ids;
}

/* How far a row is from the oracle's behind the last token of a prompt. Of the large vocabulary it keeps the
 * best 64 of each position. */
static double row_error(const oracle *o, const json *prompt, const decoder_row *r) {
    const char *name = json_str(prompt, "name", "?");
    const st_tensor *t = st_find(o->tensors, arena_printf(o->a, "%s.logits", name)),
                    *ids = st_find(o->tensors, arena_printf(o->a, "%s.top64_ids", name));
    if (!t) t = st_find(o->tensors, arena_printf(o->a, "%s.top64_vals", name));
    if (!t && json_get(prompt, "logits_key")) t = st_find(o->tensors, json_str(prompt, "logits_key", ""));
    assert_non_null(t);
    size_t n = (size_t)t->type.dim[t->type.rank - 1], at = (size_t)ir_type_count(&t->type) - n;
    float *want = ARENA_ARRAY(o->a, float, n);
    assert_true(st_floats(t, at, n, want));
    double worst = 0;
    assert_true(n == r->n || (ids && n == 64));
    for (size_t i = 0; i < n; i++) {
        size_t id = n == r->n ? i : num_get32((const uint8_t *)ids->data + 4 * (at + i));
        assert_true(id < r->n);
        worst = fmax(worst, fabs((double)r->score[id] - (double)want[i]));
    }
    return worst;
}

/* ---- the artifacts ---- */

static lm *convert(const char *name, const convert_options *o) {
    err e = {0};
    char dir[100];
    snprintf(dir, sizeof dir, "models/%s", name);
    must(convert_checkpoint(test_case_path(dir), in_work("out"), o, NULL, &e), &e);
    lm *m = lm_open(in_work("out"), NULL, &e);
    must(m, &e);
    return m;
}

typedef struct {
    const char *name;
    int64_t size[6];
    size_t n;
} cut;

static const cut cuts[] = {{"chosen", {0}, 0}, {"1", {1}, 1},   {"4", {4}, 1},
                           {"16", {16}, 1},    {"64", {64}, 1}, {"mixed", {16, 1, 4, 64, 1, 4}, 6}};

/* All states, halves added, of caches only the positions that count. */
static float *all_states(decoder *d, size_t tokens, size_t *count) {
    float *all = NULL;
    err e = {0};
    *count = 0;
    for (size_t i = 0; i < decoder_state_count(d); i++) {
        const char *name = decoder_state_name(d, i);
        ir_type t;
        must(decoder_state_type(d, name, &t, &e), &e);
        size_t n = (size_t)ir_type_count(&t), row = (size_t)t.dim[t.rank - 1];
        bool cache = *name == 'k' || *name == 'v';
        all = mem_realloc(all, (*count + n) * sizeof *all);
        float *x = mem_alloc(n * sizeof *x);
        must(decoder_state_get(d, name, x, &e), &e);
        for (size_t k = 0; k < n; k++)
            if (!cache || k / row % (size_t)t.dim[t.rank - 2] < tokens) all[(*count)++] = x[k];
        mem_free(x);
    }
    return all;
}

/* The largest difference, and relative to the largest number. */
static double difference(const float *a, const float *b, size_t n, double *relative) {
    double worst = 0, largest = 0;
    for (size_t i = 0; i < n; i++) {
        worst = fmax(worst, fabs((double)a[i] - (double)b[i]));
        largest = fmax(largest, fabs((double)b[i]));
    }
    *relative = largest > 0 ? worst / largest : 0;
    return worst;
}

typedef struct {
    const char *model;
    convert_options o;
    size_t packages, layers; /* that are expected */
} subject;

#define COMMON .preset = "chunks", .precision = "float32", .overwrite = true

static void agrees_with_transformers(void **state) {
    const subject *s = *state;
    oracle o = open_oracle(s->model);
    lm *m = convert(s->model, &s->o);
    double logits = 0, states = 0;
    assert_int_equal(m->n_model, s->packages);
    assert_int_equal(m->form.n_layers, s->layers);
    assert_int_equal(m->form.n_func, s->o.prefill ? 4 : 1);
    JSON_EACH(p, json_get(o.text, "prompts")) {
        size_t n, count = 0;
        const int32_t *ids = ids_of(&o, p, &n);
        float *want = NULL;
        for (size_t i = 0; n <= LONGEST && i < (s->o.prefill ? sizeof cuts / sizeof *cuts : 2); i++) {
            err e = {0};
            decoder_row r;
            decoder *d = decoder_new(m, RT_FAST, &e);
            must(d && decoder_set_sizes(d, cuts[i].size, cuts[i].n, &e) &&
                     decoder_feed(d, ids, n, NULL, &r, &e),
                 &e);
            double error = row_error(&o, p, &r);
            if (!(error <= LOGIT_TOLERANCE)) fail_msg("%zu tokens, cut %s: %g", n, cuts[i].name, error);
            logits = fmax(logits, error);
            size_t got;
            float *x = n == 17 ? all_states(d, n, &got) : NULL;
            if (x && !want) {
                want = x, count = got;
            } else if (x) {
                assert_int_equal(got, count);
                double relative;
                difference(x, want, count, &relative);
                states = fmax(states, relative);
                mem_free(x);
            }
            decoder_free(d);
        }
        mem_free(want);
    }
    print_message("%s, %zu packages: logits %.2g, states between cuts %.2g (relative)\n", s->model,
                  m->n_model, logits, states);
    assert_true(logits > 0 && states <= STATE_TOLERANCE);
    lm_close(m);
    close_oracle(&o);
}

/* ---- prefill is decode ---- */

#ifdef MILLET_HOSTILE
static const size_t lengths[] = {1, 3, 5};
#else
static const size_t lengths[] = {1, 3, 5, 63, 65, 300}; /* the last: context - 1 */
#endif
enum { N_LENGTHS = sizeof lengths / sizeof *lengths, CONTEXT = 301 };

/* What token by token gives behind each length. */
typedef struct {
    decoder *d;
    float *row[N_LENGTHS], *states[N_LENGTHS];
    size_t n_states[N_LENGTHS];
} steps;

static void walk(steps *s, const lm *m, const int32_t *ids) {
    err e = {0};
    decoder_row r;
    s->d = decoder_new(m, RT_FAST, &e);
    must(s->d && decoder_set_sizes(s->d, (const int64_t[]){1}, 1, &e), &e);
    for (size_t i = 0, at = 0; i < N_LENGTHS; at = lengths[i++]) {
        must(decoder_feed(s->d, ids + at, lengths[i] - at, NULL, &r, &e), &e);
        s->row[i] = memcpy(mem_alloc(r.n * sizeof(float)), r.score, r.n * sizeof(float));
        s->states[i] = all_states(s->d, lengths[i], &s->n_states[i]);
    }
    decoder_free(s->d);
}

static void compare(const steps *s, const lm *m, const int32_t *ids, const cut *c) {
    double logits = 0, states = 0;
    for (size_t i = 0; i < N_LENGTHS; i++) {
        err e = {0};
        decoder_row r;
        size_t n;
        decoder *d = decoder_new(m, RT_FAST, &e);
        must(d && decoder_set_sizes(d, c->size, c->n, &e) && decoder_feed(d, ids, lengths[i], NULL, &r, &e),
             &e);
        double relative;
        logits = fmax(logits, difference(r.score, s->row[i], r.n, &relative));
        float *x = all_states(d, lengths[i], &n);
        assert_int_equal(n, s->n_states[i]);
        difference(x, s->states[i], n, &relative);
        states = fmax(states, relative);
        mem_free(x);
        decoder_free(d);
    }
    print_message("calls of %s: logits %.2g, states (relative) %.2g\n", c->name, logits, states);
    assert_true(logits <= LOGIT_TOLERANCE && states <= STATE_TOLERANCE);
}

/* Prompts of all lengths, of a text and of one token again and again, near the end of the context too. */
static void prefill_is_decode(void **state) {
    (void)state;
    static const cut some[] = {
        {"chosen", {0}, 0}, {"mixed", {4, 64, 1, 256, 16}, 5}, {"4", {4}, 1}, {"256", {256}, 1}};
    const convert_options options = {COMMON, .context = CONTEXT, .chunks = "2", .prefill = "4,16,64,256"};
    oracle o = open_oracle("tiny-qwen3.5");
    lm *m = convert("tiny-qwen3.5", &options);
    int32_t same[CONTEXT];
    for (size_t i = 0; i < CONTEXT; i++) same[i] = 313;
    JSON_EACH(p, json_get(o.text, "prompts")) {
        size_t n;
        const int32_t *ids = ids_of(&o, p, &n);
        if (n != 300) continue;
        for (int k = 0; k < 2; k++) {
            steps s;
            walk(&s, m, k ? same : ids);
            for (size_t i = 0; i < (k ? 2 : sizeof some / sizeof *some); i++)
                compare(&s, m, k ? same : ids, &some[i]);
            for (size_t i = 0; i < N_LENGTHS; i++) mem_free(s.row[i]), mem_free(s.states[i]);
        }
    }
    lm_close(m);
    close_oracle(&o);
}

int main(void) {
    static subject s[] = {
        {"tiny-qwen3.5", {COMMON, .context = 160, .chunks = "1", .prefill = "4,16,64"}, 1, 0},
        {"tiny-qwen3.5", {COMMON, .context = 160, .chunks = "2", .prefill = "4,16,64"}, 2, 1},
        {"tiny-qwen3.5",
         {COMMON, .context = 160, .chunks = "3", .prefill = "4,16,64", .kv = "stacked"},
         3,
         2},
        {"tiny-qwen3.5", {COMMON, .context = 160, .chunks = "4"}, 4, 3},
        {"tiny-qwen3", {COMMON, .context = 160, .chunks = "2", .prefill = "4,16,64"}, 2, 1},
        {"rand-qwen3-bigvocab",
         {COMMON, .context = 160, .prefill = "4,16,64", .max_file_size = 9 << 20},
         4,
         1},
    };
    enum { N = sizeof s / sizeof *s };
    struct CMUnitTest tests[N + 1] = {[N] = cmocka_unit_test(prefill_is_decode)};
    for (size_t i = 0; i < N; i++)
        tests[i] = (struct CMUnitTest){
            .name = s[i].model, .test_func = agrees_with_transformers, .initial_state = &s[i]};
    return cmocka_run_group_tests_name("chunks", tests, make_work_dir, remove_work_dir);
}
