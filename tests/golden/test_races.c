/* What each lock of the library guards, used by threads that nothing else orders: were a lock missing, the
 * thread sanitizer would say so in every run (`make tsan`). That the results are right is for the other tests
 * of threads. */
#define _GNU_SOURCE
#include "base/heap.h"
#include "base/num.h"
#include "base/str.h"
#include "coreml/embedding.h"
#include "crowd.h"
#include "generate/lm.h"
#include "golden/tiny.h"
#include "ir/ops.h"
#include "structured/matcher.h"
#include "work_dir.h"
#include <time.h>

#ifdef __SANITIZE_THREAD__
extern bool heap_seen; /* heap.c */
#endif

static tiny of;

static int set_up(void **state) {
    (void)state;
    return tiny_make(&of, &(millet_convert_options){.size = sizeof(millet_convert_options), .context = 32});
}

/* Looks again and again while others are at work. */
#define WATCH(times) for (int i = 0; i < (times); i++, nanosleep(&(struct timespec){0, 1000000}, NULL))

/* ---- tables that the first one makes ---- */

static bool ones(void *ctx, int64_t first, int64_t n, float *out, err *e) {
    (void)ctx, (void)first, (void)e;
    for (int64_t i = 0; i < n * 4; i++) out[i] = 1;
    return true;
}

static void use_tables(worker *w) {
    double v = 0;
    err e = {0};
    const ir_op_info *info = ir_info(OP_linear);
    check(w, info->n_slot == 3 && !strcmp(info->name, "linear"), "another row of the op table");
    check(w, str_to_double("0.5", &v) && v == 0.5, "another number");
    char path[100];
    snprintf(path, sizeof path, "%s/%u", work_dir, w->index);
    check(w, embedding_write(path, EMBEDDING_FP16, 3, 4, ones, NULL, &e), "%s", e.msg); /* has a checksum */
}

/* Nothing came before that would have made them. */
static void tables_are_made_once(void **state) {
    (void)state;
    crowd(4, use_tables, NULL);
}

/* ---- plans ---- */

static bool one_token(millet_session *s, const millet_cancel *cancel, millet_error *e) {
    uint16_t row[256] = {0};
    int32_t pos = 0;
    const millet_tensor in[] = {{"current_pos", MILLET_INT32, 1, {1}, &pos, sizeof pos},
                                {"hidden", MILLET_FP16, 3, {1, 1, 256}, row, sizeof row}};
    millet_tensor out[1];
    millet_call c = {
        .size = sizeof c, .input = in, .n_input = 2, .output = out, .max_output = 1, .cancel = cancel};
    return millet_run(s, &c, e);
}

/* The first of the crowd asks how many plans there are, the others make and share them. */
static void make_plans(worker *w) {
    const millet_package *p = w->ctx;
    millet_error e;
    if (!w->index) {
        millet_model_stats m = {.size = sizeof m};
        WATCH(40) check(w, millet_package_stats(p, &m), "no figures");
        return;
    }
    const millet_session_options o = {
        .size = sizeof o, .precision = w->index % 2 ? MILLET_FAST : MILLET_STRICT, .threads = 1};
    millet_session *s = millet_session_new(p, &o, &e);
    check(w, s && one_token(s, NULL, &e), "%s", e.message);
    millet_session_free(s);
}

static void plans_have_a_lock(void **state) {
    (void)state;
    millet_error e;
    millet_package *p = millet_package_open(of.artifact, NULL, &e);
    if (!p) fail_msg("%s", e.message);
    crowd(5, make_plans, p);
    millet_package_close(p);
}

/* ---- what is made when it is asked for ---- */

static void ask_for_tokens(worker *w) {
    const lm *m = w->ctx;
    err e = {0};
    const vocabulary *v = lm_vocabulary(m, &e);
    check(w, v && vocabulary_words(v) == 4096 / 32, "%s", v ? "other tokens" : e.msg);
}

static void tokens_have_a_lock(void **state) {
    (void)state;
    err e = {0};
    lm *m = lm_open(of.artifact, NULL, &e);
    if (!m) fail_msg("%s", e.msg);
    crowd(4, ask_for_tokens, m);
    lm_close(m);
}

typedef struct {
    matcher *m[4];
    uint32_t bits[4][4096 / 32];
} masks;

static void make_mask(worker *w) {
    masks *x = w->ctx;
    err e = {0};
    check(w, matcher_mask(x->m[w->index], x->bits[w->index], &e), "%s", e.msg);
}

/* Inside of a string, where the masks of states are kept for whoever comes next. */
static void masks_have_a_lock(void **state) {
    (void)state;
    err e = {0};
    lm *m = lm_open(of.artifact, NULL, &e);
    if (!m) fail_msg("%s", e.msg);
    const vocabulary *v = lm_vocabulary(m, &e);
    grammar *g = grammar_json_object(NULL, &e);
    masks x;
    for (int i = 0; i < 4 && g && v; i++) {
        x.m[i] = matcher_new(g, v, &e);
        if (!x.m[i]) fail_msg("%s", e.msg);
        assert_true(matcher_accept_bytes(x.m[i], "{\"a", 3));
    }
    crowd(4, make_mask, &x);
    for (int i = 0; i < 4; i++) {
        assert_memory_equal(x.bits[i], x.bits[0], sizeof x.bits[0]);
        matcher_free(x.m[i]);
    }
    grammar_free(g);
    lm_close(m);
}

/* ---- one session's workers; one flag ---- */

typedef struct {
    millet_session *s;
    millet_cancel *flag;
} stopped;

static void run_and_stop(worker *w) {
    stopped *x = w->ctx;
    millet_error e;
    if (w->index) {
        WATCH(6) millet_cancel_set(x->flag);
        return;
    }
    for (int i = 0; i < 4; i++)
        check(w, one_token(x->s, x->flag, &e) || e.code == MILLET_CANCELLED, "%s", e.message);
}

static void workers_and_flags(void **state) {
    (void)state;
    millet_error e;
    millet_package *p = millet_package_open(of.artifact, NULL, &e);
    const millet_session_options o = {.size = sizeof o, .threads = 3};
    stopped x = {p ? millet_session_new(p, &o, &e) : NULL, millet_cancel_new()};
    if (!x.s || !x.flag || !one_token(x.s, NULL, &e)) fail_msg("%s", e.message);
    crowd(2, run_and_stop, &x);
    millet_session_free(x.s);
    millet_cancel_free(x.flag);
    millet_package_close(p);
}

/* ---- states that sessions share until one writes ---- */

typedef struct {
    millet_session *s[3];
    millet_snapshot *from;
} forks;

static void go_on(worker *w) {
    forks *x = w->ctx;
    millet_error e;
    millet_session *s = x->s[w->index];
    check(w, millet_snapshot_restore(s, x->from, &e) && one_token(s, NULL, &e), "%s", e.message);
}

static void states_are_shared(void **state) {
    (void)state;
    millet_error e;
    millet_package *p = millet_package_open(of.artifact, NULL, &e);
    forks x = {0};
    for (int i = 0; i < 3 && p; i++) {
        x.s[i] = millet_session_new(
            p, &(millet_session_options){.size = sizeof(millet_session_options), .threads = 1}, &e);
        if (!x.s[i] || !one_token(x.s[i], NULL, &e)) fail_msg("%s", e.message);
    }
    x.from = millet_snapshot_take(x.s[0], &e);
    if (!x.from) fail_msg("%s", e.message);
    crowd(3, go_on, &x);
    millet_snapshot_free(x.from);
    for (int i = 0; i < 3; i++) millet_session_free(x.s[i]);
    millet_package_close(p);
}

/* ---- figures ---- */

static void take_and_give(void *ctx) {
    (void)ctx;
    for (int i = 1; i < 200; i++) mem_free(mem_alloc((size_t)i * 16));
}

static void use_heap(worker *w) {
    heap *h = w->ctx;
    if (w->index) {
        check(w, mem_guard(h, take_and_give, NULL, NULL), "no memory");
        return;
    }
    WATCH(5) check(w, heap_bytes(h) <= heap_peak(h), "more than at most");
}

static void use_heaps(bool seen) {
#ifdef __SANITIZE_THREAD__
    heap_seen = seen;
#else
    (void)seen;
#endif
    heap *h = heap_new(NULL, NULL);
    crowd(4, use_heap, h);
    assert_int_equal(heap_bytes(h), 0);
    heap_drop(h);
}

static void heaps_count_and_lock(void **state) {
    (void)state;
    use_heaps(true);
    use_heaps(false);
}

int main(void) {
    const struct CMUnitTest first[] = {cmocka_unit_test(tables_are_made_once)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_have_a_lock), cmocka_unit_test(tokens_have_a_lock),
        cmocka_unit_test(masks_have_a_lock), cmocka_unit_test(workers_and_flags),
        cmocka_unit_test(states_are_shared), cmocka_unit_test(heaps_count_and_lock),
    };
    return cmocka_run_group_tests(first, make_work_dir, remove_work_dir) +
           cmocka_run_group_tests(tests, set_up, remove_work_dir);
}
