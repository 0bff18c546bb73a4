/* Decoders that go on together give what each gives alone, bit for bit: scores at every step and states at
 * the end, whatever the batch's size and whoever joins, leaves or fails in between. The definition is
 * decoder_feed() by a decoder of its own. */
#define _GNU_SOURCE
#include "base/file.h"
#include "convert/convert.h"
#include "generate/batch.h"
#include "work_dir.h"
#include <unistd.h>

#ifdef MILLET_HOSTILE /* the sanitizers take ten times as long */
enum { MOST = 9, STEPS = 5 };
#else
enum { MOST = 9, STEPS = 8 };
#endif

static void must(bool ok, const err *e) {
    if (!ok) fail_msg("%s", e->msg);
}

/* ---- models ---- */

typedef struct {
    const char *name;
    const char *checkpoint; /* converted with the rest; NULL: name is a bundle of the third-party cases */
    const char *preset, *quantize, *chunks;
    bool together; /* its function for one token is planned, for any length */
} model;

static const model models[] = {
    {"qwen3.5 fp16", "tiny-qwen3.5", "chunks", NULL, NULL, true},
    {"qwen3.5 int8 blocks", "tiny-qwen3.5", "chunks", "w8b32", NULL, true},
    {"qwen3.5 palettes, two packages", "tiny-qwen3.5", "chunks", "lut6", "2", true},
    {"qwen3 int4 blocks", "tiny-qwen3", "chunks", "w4", NULL, true},
    {"qwen3 single", "tiny-qwen3", "single", NULL, NULL, true},
    {"finnvoor-llama-fp16-dynamic", NULL, NULL, NULL, NULL, true},
    {"johnrocky-qwen3-fp16-monolithic", NULL, NULL, NULL, NULL, true},
    {"johnrocky-qwen3.5-mlkv-lut4", NULL, NULL, NULL, NULL, true},
    {"0seba-qwen3-fp16-2chunk-seq8", NULL, NULL, NULL, NULL, true},
    {"anemll035-qwen3-lut46-2chunk", NULL, NULL, NULL, NULL, true},
    {"bhctsntrk-anemll-qwen3.5-lut4-2chunk", NULL, NULL, NULL, NULL, true},
};

static lm *open_model(const model *k) {
    err e = {0};
    char dir[100];
    snprintf(dir, sizeof dir, k->checkpoint ? "models/%s" : "thirdparty/%s",
             k->checkpoint ? k->checkpoint : k->name);
    const char *path = test_case_path(dir);
    static const model *made; /* what lies in work/out */
    if (k->checkpoint && k != made) {
        convert_options o = {.preset = k->preset,
                             .precision = "mixed",
                             .quantize = k->quantize,
                             .chunks = k->chunks,
                             .context = 64,
                             .overwrite = true};
        must(convert_checkpoint(path, in_work("out"), &o, NULL, &e), &e);
        made = k;
    }
    if (k->checkpoint) path = in_work("out");
    lm *m = lm_open(path, NULL, &e);
    must(m != NULL, &e);
    return m;
}

/* ---- texts ---- */

/* Text i of the tests: a prompt of its own length, its own steps, and when it joins the batch. */
static size_t prompt_size(size_t i) {
    return 1 + 3 * i % 11;
}

static size_t joins(size_t i) {
    return i % 4;
}

static size_t steps_of(size_t i) {
    return STEPS - i % 3;
}

static int32_t id_at(const lm *m, size_t text, size_t at) {
    int64_t most = m->vocab > 0 && m->vocab < 500 ? m->vocab : 500;
    return (int32_t)((37 * (int64_t)text + 101 * (int64_t)at + 5) % most);
}

/* What came of one: the scores (and ids) behind each of its steps, and its states. */
typedef struct {
    str rows, states;
} trace;

static void add_row(str *to, const decoder_row *r) {
    str_add(to, r->score, r->n * sizeof *r->score);
    if (r->id) str_add(to, r->id, r->n * sizeof *r->id);
    str_add(to, &r->largest, sizeof r->largest);
}

static void add_states(str *to, decoder *d) {
    err e = {0};
    for (size_t i = 0; i < decoder_state_count(d); i++) {
        ir_type type;
        const char *name = decoder_state_name(d, i);
        must(decoder_state_type(d, name, &type, &e), &e);
        size_t n = (size_t)ir_type_count(&type);
        float *x = mem_try(n, sizeof *x);
        must(decoder_state_get(d, name, x, &e), &e);
        str_add(to, x, n * sizeof *x);
        mem_free(x);
    }
}

static decoder *prompted(const lm *m, rt_mode mode, batch *b, size_t text) {
    err e = {0};
    int32_t ids[16];
    size_t n = prompt_size(text);
    for (size_t k = 0; k < n; k++) ids[k] = id_at(m, text, k);
    decoder *d = decoder_new(m, mode, &e);
    must(d != NULL, &e);
    if (b) batch_adopt(b, d);
    must(decoder_feed(d, ids, n, NULL, NULL, &e), &e);
    return d;
}

static void alone(const lm *m, rt_mode mode, size_t text, trace *t) {
    err e = {0};
    decoder *d = prompted(m, mode, NULL, text);
    for (size_t k = 0; k < steps_of(text); k++) {
        decoder_row row;
        int32_t id = id_at(m, text, prompt_size(text) + k);
        must(decoder_feed(d, &id, 1, NULL, &row, &e), &e);
        add_row(&t->rows, &row);
    }
    add_states(&t->states, d);
    decoder_free(d);
}

static void all_alone(const lm *m, rt_mode mode, size_t n, trace *t) {
    memset(t, 0, MOST * sizeof *t);
    for (size_t i = 0; i < n; i++) alone(m, mode, i, &t[i]);
}

static void free_traces(trace *t) {
    for (size_t i = 0; i < MOST; i++) str_free(&t[i].rows), str_free(&t[i].states);
}

static void assert_same_text(const str *x, const str *y, const char *what, size_t text) {
    if (x->len != y->len || (x->len && memcmp(x->s, y->s, x->len)))
        fail_msg("%s of text %zu differ from those alone", what, text);
}

/* The texts 0 .. n in one batch, joining and leaving as they like. Returns tokens that were walked with
 * others. */
static uint64_t all_together(const lm *m, rt_mode mode, size_t n, const trace *want) {
    err e = {0};
    batch *b = batch_new(m, mode, 0, &e);
    must(b != NULL, &e);
    decoder *d[MOST] = {0};
    trace got[MOST] = {0};
    for (size_t step = 0; step < STEPS + 4; step++) {
        batch_step_one list[MOST];
        size_t of[MOST], here = 0;
        for (size_t i = 0; i < n; i++) {
            if (step == joins(i)) d[i] = prompted(m, mode, b, i);
            if (step < joins(i) || step >= joins(i) + steps_of(i)) continue;
            of[here] = i;
            list[here++] = (batch_step_one){.d = d[i], .id = id_at(m, i, prompt_size(i) + step - joins(i))};
        }
        batch_step(b, list, here);
        for (size_t k = 0; k < here; k++) {
            must(list[k].ok, &list[k].e);
            add_row(&got[of[k]].rows, &list[k].row);
            if (step + 1 == joins(of[k]) + steps_of(of[k])) {
                add_states(&got[of[k]].states, d[of[k]]);
                decoder_free(d[of[k]]);
            }
        }
    }
    for (size_t i = 0; i < n; i++) {
        assert_same_text(&want[i].rows, &got[i].rows, "scores", i);
        assert_same_text(&want[i].states, &got[i].states, "states", i);
    }
    free_traces(got);
    uint64_t together = batch_figures_of(b).together;
    batch_free(b);
    return together;
}

static void use(const char *threads, const char *linear) {
    setenv("MILLET_THREADS", threads, 1);
    if (linear)
        setenv("MILLET_LINEAR", linear, 1);
    else
        unsetenv("MILLET_LINEAR");
}

/* ---- tests ---- */

static void equals_alone(void **s) {
    (void)s;
    static const char *const threads[] = {"1", "2", "3"};
    for (size_t k = 0; k < sizeof models / sizeof *models; k++)
        for (int mode = 0; mode < 2; mode++) {
            trace want[MOST];
            use("1", NULL);
            lm *m = open_model(&models[k]);
            bool every = k == 1 && mode == RT_FAST; /* sizes, with every number of threads */
            size_t most = every ? MOST : mode == RT_STRICT ? 3 : 5;
            all_alone(m, (rt_mode)mode, most, want);
            for (size_t n = every ? 1 : most; n <= most; n++) {
                use(threads[(n + k) % 3], NULL);
                uint64_t together = all_together(m, (rt_mode)mode, n, want);
                if (models[k].together != (together > 0) && n > 1)
                    fail_msg("%s, mode %d: %zu tokens together", models[k].name, mode, (size_t)together);
            }
            free_traces(want);
            lm_close(m);
        }
}

/* Every kind of weights by every number path. */
static void every_path(void **s) {
    (void)s;
    static const char *const paths[] = {"exact", "int16", "bf16", "int8"}, *const kinds[] = {
                                                                               NULL,   "w8",   "w8b32", "w4",
                                                                               "lut4", "lut6", "lut8"};
    model one[sizeof kinds / sizeof *kinds];
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t p = 0; p < sizeof paths / sizeof *paths; p++) {
            trace want[MOST];
            one[k] = (model){"", "tiny-qwen3.5", "chunks", kinds[k], NULL, true};
            use("2", paths[p]);
            lm *m = open_model(&one[k]);
            all_alone(m, RT_FAST, MOST, want);
            assert_true(all_together(m, RT_FAST, MOST, want) > 0);
            free_traces(want);
            lm_close(m);
        }
    use("2", NULL);
}

/* What goes wrong with one is no matter to the others: a token that there isn't, one that was cancelled, one
 * without room. */
static void errors_are_its_own(void **s) {
    (void)s;
    err e = {0};
    trace want[MOST], got[MOST] = {0};
    use("2", NULL);
    lm *m = open_model(&models[1]);
    all_alone(m, RT_FAST, 4, want);
    batch *b = batch_new(m, RT_FAST, 0, &e);
    decoder *d[4];
    atomic_bool cancel = true;
    decoder_hooks cancelled = {.cancel = &cancel};
    for (size_t i = 0; i < 4; i++) d[i] = prompted(m, RT_FAST, b, i);
    for (size_t step = 0; step < STEPS; step++) {
        batch_step_one list[4];
        for (size_t i = 0; i < 4; i++)
            list[i] = (batch_step_one){.d = d[i], .id = id_at(m, i, prompt_size(i) + step)};
        size_t bad = step % 2 ? 1 : 3;
        if (bad == 1) list[1].id = (int32_t)m->vocab;
        if (bad == 3) list[3].hooks = &cancelled;
        batch_step(b, list, 4);
        for (size_t i = 0; i < 4; i++) {
            if (i == bad) {
                assert_false(list[i].ok);
                assert_int_equal(list[i].e.code, bad == 1 ? ERR_USAGE : ERR_CANCELLED);
            } else if (i % 2 == 0 && step < steps_of(i)) {
                must(list[i].ok, &list[i].e);
                add_row(&got[i].rows, &list[i].row);
            }
        }
        for (size_t i = 1; i < 4; i += 2) decoder_restart(d[i]);
    }
    assert_same_text(&want[0].rows, &got[0].rows, "scores", 0);
    assert_int_equal(got[2].rows.len, want[2].rows.len);
    assert_same_text(&want[2].rows, &got[2].rows, "scores", 2);
    for (size_t i = 0; i < 4; i++) decoder_free(d[i]);
    batch_step(b, NULL, 0); /* everybody is gone: memory is given back */
    batch_free(b);
    free_traces(want);
    free_traces(got);
    lm_close(m);
}

/* A decoder whose context is full is refused, the other goes on. */
static void context_ends(void **s) {
    (void)s;
    err e = {0};
    use("2", NULL);
    lm *m = open_model(&models[0]);
    batch *b = batch_new(m, RT_FAST, 0, &e);
    decoder *d[2];
    for (size_t i = 0; i < 2; i++) d[i] = prompted(m, RT_FAST, b, i);
    int64_t room = m->form.context - decoder_position(d[1]);
    assert_true(decoder_position(d[0]) < decoder_position(d[1]));
    for (int64_t k = 0; k <= room; k++) {
        batch_step_one list[2] = {{.d = d[0], .id = 1}, {.d = d[1], .id = 2}};
        batch_step(b, list, 2);
        must(list[0].ok, &list[0].e);
        assert_int_equal(list[1].ok, k < room);
        if (k == room) assert_int_equal(list[1].e.code, ERR_LIMIT);
    }
    for (size_t i = 0; i < 2; i++) decoder_free(d[i]);
    batch_free(b);
    lm_close(m);
}

/* The evaluator runs them in turn. */
static void without_plans(void **s) {
    (void)s;
    trace want[MOST];
    setenv("MILLET_ENGINE", "reference", 1);
    lm *m = open_model(&models[1]);
    all_alone(m, RT_FAST, 2, want);
    assert_int_equal(all_together(m, RT_FAST, 2, want), 0);
    unsetenv("MILLET_ENGINE");
    free_traces(want);
    lm_close(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(equals_alone), cmocka_unit_test(every_path),
                                       cmocka_unit_test(errors_are_its_own), cmocka_unit_test(context_ends),
                                       cmocka_unit_test(without_plans)};
    return cmocka_run_group_tests(tests, make_work_dir, remove_work_dir);
}
