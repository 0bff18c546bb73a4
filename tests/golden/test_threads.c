#define _GNU_SOURCE
/* Many threads on one model, through the public interface; `make tsan` looks for races in it. What each gets
 * must be what one alone gets: transformers' ids (tests/data/generate), or the bytes of a run without
 * company. */
#include "counted.h"
#include "crowd.h"
#include "golden/tiny.h"
#include <time.h>
#include <unistd.h>

enum { IDS = 6, STEPS = 3, LOGITS = 4096, WIDTH = 256 };

static tiny of;

static int set_up(void **state) {
    (void)state;
    return tiny_make(&of, &(millet_convert_options){.size = sizeof(millet_convert_options),
                                                    .precision = "float32",
                                                    .context = 64,
                                                    .prefill = "4,16"});
}

static void pause_for(double seconds) {
    nanosleep(&(struct timespec){(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)}, NULL);
}

/* ---- what they share ---- */

/* An opened model or package whose memory and log are counted. The log asks back, and takes a lock that is
 * also held around questions to the library. */
typedef struct {
    counted memory;
    pthread_mutex_t lock;
    atomic_uint lines;
    millet_lm *_Atomic lm;
    const millet_package *_Atomic package;
} shared;

static void listen(void *ctx, millet_log_level level, const char *text) {
    shared *s = ctx;
    millet_model_stats st = {.size = sizeof st};
    pthread_mutex_lock(&s->lock);
    if (s->lm) millet_lm_stats(s->lm, &st);
    if (s->package) millet_package_stats(s->package, &st);
    s->lines += level == MILLET_LOG_INFO && strstr(text, "planned in") != NULL;
    pthread_mutex_unlock(&s->lock);
}

static void share(shared *s, millet_allocator *a, millet_open_options *o) {
    *s = (shared){.memory = {.left = -1}, .lock = PTHREAD_MUTEX_INITIALIZER};
    *a = (millet_allocator){sizeof *a, counted_take, counted_give, &s->memory};
    *o = (millet_open_options){.size = sizeof *o, .allocator = a, .log = listen, .log_ctx = s};
}

/* ---- generators ---- */

/* Greedy ids of one generator; half of the crowd also feeds by hand. */
static void generate(worker *w) {
    shared *s = w->ctx;
    const int at = w->index % 2;
    millet_error e;
    const millet_session_options so = {.size = sizeof so, .threads = 1 + w->index % 3};
    const millet_generate_options o = {
        .size = sizeof o, .repetition_penalty = 1, .max_new_tokens = IDS, .ignore_eos = true};
    millet_generator *g = millet_generator_new(s->lm, &so, &e);
    if (!check(w, g != NULL, "%s", e.message)) return;
    for (int turn = 0; turn < 2; turn++) {
        millet_generation r = {.size = sizeof r};
        if (check(w, millet_generator_run(g, of.prompt[at].ids, of.prompt[at].n, &o, &r, &e), "%s",
                  e.message))
            check(w, r.n_ids == IDS && !memcmp(r.ids, of.prompt[at].greedy, IDS * sizeof *r.ids),
                  "other ids in turn %d", turn);
        millet_free(r.ids);
        millet_model_stats m = {.size = sizeof m};
        pthread_mutex_lock(&s->lock);
        check(w, millet_lm_stats(s->lm, &m) && m.memory && m.memory <= m.memory_peak, "no figures");
        pthread_mutex_unlock(&s->lock);
        millet_generator_reset(g);
    }
    millet_scores scores = {.size = sizeof scores};
    check(w,
          millet_generator_feed(g, of.prompt[at].ids, of.prompt[at].n, NULL, &scores, &e) &&
              scores.n == LOGITS,
          "%s", e.message);
    millet_generator_free(g);
}

static void generators_of_one_model(void **state) {
    (void)state;
    shared s;
    millet_allocator a;
    millet_open_options o;
    millet_error e;
    share(&s, &a, &o);
    s.lm =
        millet_lm_open(of.artifact, &(millet_lm_options){.size = sizeof(millet_lm_options), .open = &o}, &e);
    if (!s.lm) fail_msg("%s", e.message);
    crowd(6, generate, &s);
    millet_model_stats m = {.size = sizeof m};
    assert_true(millet_lm_stats(s.lm, &m));
    assert_int_equal(m.plans, 3); /* decode, and prefill of 4 and 16: made once, whoever came first */
    assert_int_equal(s.lines, 3);
    millet_lm_close(s.lm);
    assert_int_equal(s.memory.blocks, 0);
    assert_int_equal(s.memory.bytes, 0);
}

/* ---- sessions ---- */

/* A token, or with `many` 4 of them, made up of x; the logits. */
static bool step(millet_session *s, bool many, float x, int32_t pos, const millet_cancel *cancel,
                 float *logits, millet_error *e) {
    float row[4 * WIDTH];
    int32_t valid = 4;
    const int64_t tokens = many ? 4 : 1;
    for (int i = 0; i < 4 * WIDTH; i++) row[i] = x * (float)(i % 7 - 3);
    const millet_tensor in[] = {
        {"current_pos", MILLET_INT32, 1, {1}, &pos, sizeof pos},
        {"hidden", MILLET_FP32, 3, {1, tokens, WIDTH}, row, (size_t)tokens * WIDTH * sizeof *row},
        {"valid_length", MILLET_INT32, 1, {1}, &valid, sizeof valid}};
    millet_tensor out[1];
    millet_call c = {.size = sizeof c,
                     .function = many ? "prefill_4" : "decode",
                     .input = in,
                     .n_input = many ? 3 : 2,
                     .output = out,
                     .max_output = 1,
                     .cancel = cancel};
    if (!millet_run(s, &c, e)) return false;
    memcpy(logits, out[0].data, LOGITS * sizeof *logits);
    return true;
}

static float alone[2][STEPS][LOGITS]; /* by mode: what a session gets without company */

/* Four tokens of a prompt, then single ones. */
static bool steps(millet_session *s, int from, int to, float (*logits)[LOGITS], millet_error *e) {
    bool ok = true;
    for (int i = from; i < to && ok; i++)
        ok = step(s, i == 0, 0.1f + 0.1f * (float)i, i ? 3 + i : 0, NULL, logits[i], e);
    return ok;
}

static millet_session *session_of(const millet_package *p, int mode, unsigned threads, millet_error *e) {
    const millet_session_options o = {
        .size = sizeof o, .precision = mode ? MILLET_STRICT : MILLET_FAST, .threads = threads};
    return millet_session_new(p, &o, e);
}

static void run_alone(void) {
    millet_error e;
    millet_package *p = millet_package_open(of.artifact, NULL, &e);
    if (!p) fail_msg("%s", e.message);
    for (int mode = 0; mode < 2; mode++) {
        millet_session *s = session_of(p, mode, 1, &e);
        if (!s || !steps(s, 0, STEPS, alone[mode], &e)) fail_msg("%s", e.message);
        millet_session_free(s);
    }
    millet_package_close(p);
}

static void compare(worker *w, millet_session *s, int mode, int from) {
    float(*got)[LOGITS] = calloc(STEPS, sizeof *got);
    millet_error e;
    if (check(w, got && steps(s, from, STEPS, got, &e), "%s", e.message))
        check(w, !memcmp(got[from], alone[mode][from], (size_t)(STEPS - from) * sizeof *got), "other logits");
    free(got);
}

static void run_sessions(worker *w) {
    shared *s = w->ctx;
    const int mode = w->index % 2;
    millet_error e;
    for (int round = 0; round < 2; round++) {
        millet_session *own = session_of(s->package, mode, 1 + w->index / 2, &e);
        if (!check(w, own != NULL, "%s", e.message)) return;
        compare(w, own, mode, 0);
        millet_state_reset(own);
        compare(w, own, mode, 0);
        millet_session_free(own);
    }
}

static millet_package *open_shared(shared *s, millet_allocator *a) {
    millet_open_options o;
    millet_error e;
    share(s, a, &o);
    millet_package *p = millet_package_open(of.artifact, &o, &e);
    if (!p) fail_msg("%s", e.message);
    s->package = p;
    return p;
}

static void close_shared(shared *s, millet_package *p) {
    millet_package_close(p);
    assert_int_equal(s->memory.blocks, 0);
}

static void sessions_of_one_package(void **state) {
    (void)state;
    shared s;
    millet_allocator a;
    run_alone();
    millet_package *p = open_shared(&s, &a);
    crowd(4, run_sessions, &s);
    assert_int_equal(s.lines, 4); /* two functions in two modes */
    close_shared(&s, p);
}

/* The first layer's result, which the evaluator looks up. */
static bool look_inside(millet_session *s, float *layer, millet_error *e) {
    float row[WIDTH];
    int32_t pos = 0;
    const char *value = "layer_0_out";
    for (int i = 0; i < WIDTH; i++) row[i] = 0.1f * (float)(i % 7 - 3);
    const millet_tensor in[] = {{"current_pos", MILLET_INT32, 1, {1}, &pos, sizeof pos},
                                {"hidden", MILLET_FP32, 3, {1, 1, WIDTH}, row, sizeof row}};
    millet_tensor out[2];
    millet_call c = {.size = sizeof c,
                     .input = in,
                     .n_input = 2,
                     .value = &value,
                     .n_value = 1,
                     .output = out,
                     .max_output = 2};
    if (!millet_run(s, &c, e)) return false;
    memcpy(layer, out[1].data, WIDTH * sizeof *layer);
    return true;
}

static float first_layer[WIDTH];

static void evaluate(worker *w) {
    float got[WIDTH];
    millet_error e;
    millet_session *s = session_of(((shared *)w->ctx)->package, 1, 2, &e);
    if (check(w, s && look_inside(s, got, &e), "%s", e.message))
        check(w, !memcmp(got, first_layer, sizeof got), "other values");
    millet_session_free(s);
}

static void values_of_one_package(void **state) {
    (void)state;
    shared s;
    millet_allocator a;
    millet_error e;
    millet_package *p = open_shared(&s, &a);
    millet_session *one = session_of(p, 1, 1, &e);
    assert_true(one && look_inside(one, first_layer, &e));
    millet_session_free(one);
    crowd(3, evaluate, &s);
    close_shared(&s, p);
}

/* ---- opening and closing ---- */

static void open_and_close(worker *w) {
    millet_error e;
    for (unsigned i = 0; i < 4; i++) {
        if ((w->index + i) % 4 == 0) {
            millet_lm *m = millet_lm_open(of.artifact, NULL, &e);
            check(w, m != NULL, "%s", e.message);
            millet_lm_close(m);
        } else if ((w->index + i) % 4 == 1) {
            millet_tokenizer *t = millet_tokenizer_open(of.checkpoint, &e);
            check(w, t != NULL, "%s", e.message);
            millet_tokenizer_close(t);
        } else {
            millet_package *p = millet_package_open(of.artifact, NULL, &e);
            millet_session *s = p ? session_of(p, 0, 2, &e) : NULL;
            if (check(w, s != NULL, "%s", e.message)) compare(w, s, 0, 0);
            millet_session_free(s);
            millet_package_close(p);
        }
        check(w, !millet_package_open("/nowhere", NULL, &e) && e.code == MILLET_IO, "opened nothing");
    }
}

static void packages_come_and_go(void **state) {
    (void)state;
    crowd(4, open_and_close, NULL);
}

/* ---- cancellation ---- */

typedef struct {
    const millet_package *p;
    millet_cancel *flag;
    pthread_barrier_t turn; /* in front of a call and behind it */
    double call;            /* seconds that one takes */
} cancelling;

enum { CANCELS = 24 };

/* Cancels each call a little later than the last one. */
static void cancel_calls(worker *w) {
    cancelling *c = w->ctx;
    for (int i = 0; i < CANCELS; i++) {
        pthread_barrier_wait(&c->turn);
        pause_for(c->call * 1.5 * i / CANCELS);
        millet_cancel_set(c->flag);
        pthread_barrier_wait(&c->turn);
    }
}

static void run_until_cancelled(worker *w) {
    cancelling *c = w->ctx;
    if (w->index) {
        cancel_calls(w);
        return;
    }
    static float logits[LOGITS];
    millet_error e;
    millet_session *s = session_of(c->p, 0, 2, &e);
    check(w, s != NULL, "%s", e.message);
    unsigned cancelled = 0;
    for (int i = 0; i < CANCELS; i++) {
        pthread_barrier_wait(&c->turn);
        bool ok = !s || step(s, true, 0.1f, 0, c->flag, logits, &e);
        pthread_barrier_wait(&c->turn);
        check(w, ok || e.code == MILLET_CANCELLED, "%s", e.message);
        cancelled += !ok;
        millet_cancel_clear(c->flag);
        if (ok && s) millet_state_reset(s);
        if (s && i % 6 == 5)
            compare(w, s, 0, 0), millet_state_reset(s); /* states are zero, nothing is broken */
    }
    check(w, cancelled > 0, "nothing was cancelled");
    millet_session_free(s);
}

static double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void calls_are_cancelled_from_another_thread(void **state) {
    (void)state;
    static float logits[LOGITS];
    millet_error e;
    millet_package *p = millet_package_open(of.artifact, NULL, &e);
    cancelling c = {.p = p, .flag = millet_cancel_new()};
    millet_session *s = session_of(p, 0, 2, &e);
    assert_true(s && c.flag && step(s, true, 0.1f, 0, NULL, logits, &e));
    double begun = seconds_now();
    assert_true(step(s, true, 0.1f, 4, NULL, logits, &e));
    c.call = seconds_now() - begun;
    millet_session_free(s);
    pthread_barrier_init(&c.turn, NULL, 2);
    crowd(2, run_until_cancelled, &c);
    pthread_barrier_destroy(&c.turn);
    millet_cancel_free(c.flag);
    millet_package_close(p);
}

typedef struct {
    millet_lm *lm;
    millet_cancel *flag;
    atomic_uint tokens;
    char out[400];
} stopping;

static bool count_token(void *ctx, int32_t id, const char *text, size_t len) {
    (void)id, (void)text, (void)len;
    atomic_fetch_add(&((stopping *)ctx)->tokens, 1);
    return true;
}

/* One thread generates endlessly (as far as the context goes), one converts, one ends both. */
static void stop_work(worker *w) {
    stopping *s = w->ctx;
    millet_error e;
    if (w->index == 0) {
        const millet_generate_options o = {.size = sizeof o,
                                           .repetition_penalty = 1,
                                           .max_new_tokens = 40,
                                           .ignore_eos = true,
                                           .on_token = count_token,
                                           .ctx = s,
                                           .cancel = s->flag};
        millet_generation r = {.size = sizeof r};
        if (check(w, millet_generate(s->lm, of.prompt[0].text, &o, &r, &e), "%s", e.message))
            check(w,
                  r.n_ids >= 3 && r.finish == (r.n_ids == 40 ? MILLET_LENGTH : MILLET_STOPPED) &&
                      !memcmp(r.ids, of.prompt[0].greedy, r.n_ids * sizeof *r.ids),
                  "%zu ids, end %d", r.n_ids, (int)r.finish);
        millet_free(r.ids);
    } else if (w->index == 1) {
        while (atomic_load(&s->tokens) < 3) pause_for(1e-4);
        millet_cancel_set(s->flag);
    } else {
        const millet_convert_options o = {.size = sizeof o, .cancel = s->flag};
        bool ok = millet_convert(of.checkpoint, s->out, &o, NULL, &e);
        check(w, ok || e.code == MILLET_CANCELLED, "%s", e.message);
        check(w, file_exists(s->out) == ok, "something is left of a cancelled conversion");
    }
}

static void one_flag_ends_all(void **state) {
    (void)state;
    millet_error e;
    stopping s = {.lm = millet_lm_open(of.artifact, NULL, &e), .flag = millet_cancel_new()};
    assert_true(s.lm && s.flag);
    snprintf(s.out, sizeof s.out, "%s/stopped", work_dir);
    crowd(3, stop_work, &s);
    millet_cancel_free(s.flag);
    millet_lm_close(s.lm);
}

/* ---- states ---- */

typedef struct {
    millet_session *prefill, *decode;
    millet_snapshot *behind; /* the prompt */
    const millet_package *p;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    int next; /* step, which thread next % 2 does */
} relay;

/* Sessions with the same states go from thread to thread. */
static void take_turns(worker *w) {
    relay *r = w->ctx;
    static float got[STEPS][LOGITS];
    millet_error e;
    for (int i = (int)w->index; i < STEPS; i += 2) {
        pthread_mutex_lock(&r->lock);
        while (r->next != i) pthread_cond_wait(&r->moved, &r->lock);
        check(w, steps(i ? r->decode : r->prefill, i, i + 1, got, &e), "%s", e.message);
        check(w, !memcmp(got[i], alone[0][i], sizeof got[i]), "other logits at step %d", i);
        if (!i) r->behind = millet_snapshot_take(r->decode, &e);
        r->next++;
        pthread_cond_broadcast(&r->moved);
        pthread_mutex_unlock(&r->lock);
    }
}

/* All go on from one snapshot, while its session does. */
static void go_on(worker *w) {
    relay *r = w->ctx;
    millet_error e;
    millet_session *own = w->index ? session_of(r->p, 0, 2, &e) : r->decode;
    if (check(w, own && millet_snapshot_restore(own, r->behind, &e), "%s", e.message)) compare(w, own, 0, 1);
    if (w->index) millet_session_free(own);
}

static void states_go_from_thread_to_thread(void **state) {
    (void)state;
    shared s;
    millet_allocator a;
    millet_error e;
    run_alone();
    millet_package *p = open_shared(&s, &a);
    relay r = {.prefill = session_of(p, 0, 1, &e),
               .decode = session_of(p, 0, 2, &e),
               .p = p,
               .lock = PTHREAD_MUTEX_INITIALIZER,
               .moved = PTHREAD_COND_INITIALIZER};
    assert_true(r.prefill && r.decode);
    for (size_t i = 0; i < millet_state_count(r.decode); i++)
        assert_true(millet_state_bind(r.decode, r.prefill, millet_state_name(r.decode, i), &e));
    crowd(2, take_turns, &r);
    assert_non_null(r.behind);
    millet_session_free(r.prefill);
    crowd(4, go_on, &r);
    millet_snapshot_free(r.behind);
    millet_session_free(r.decode);
    close_shared(&s, p);
}

/* ---- texts ---- */

static void there_and_back(worker *w) {
    const millet_tokenizer *t = w->ctx;
    millet_error e;
    for (int i = 0; i < 20; i++) {
        const int at = (w->index + (unsigned)i) % 2;
        int32_t *ids;
        size_t n, len, joined = 0;
        if (!check(w, millet_encode(t, of.prompt[at].text, strlen(of.prompt[at].text), &ids, &n, &e), "%s",
                   e.message))
            return;
        check(w, n == of.prompt[at].n && !memcmp(ids, of.prompt[at].ids, n * sizeof *ids), "other ids");
        char *text = millet_decode(t, ids, n, true, &len);
        check(w, text && !strcmp(text, of.prompt[at].text), "other text");
        millet_stream *s = millet_stream_new(t, true);
        const char *piece;
        for (size_t k = 0; s && text && k < n; k++, joined += len) {
            millet_stream_push(s, ids[k], &piece, &len);
            check(w, !memcmp(piece, text + joined, len), "other piece");
        }
        millet_stream_free(s);
        millet_free(text);
        millet_free(ids);
    }
}

static void texts_of_one_tokenizer(void **state) {
    (void)state;
    millet_error e;
    millet_tokenizer *t = millet_tokenizer_open(of.checkpoint, &e);
    if (!t) fail_msg("%s", e.message);
    crowd(4, there_and_back, t);
    millet_tokenizer_close(t);
}

/* ---- conversions ---- */

/* Two want the same place: the second finds it taken, or finds it made. */
static void convert(worker *w) {
    char out[400];
    millet_error e;
    snprintf(out, sizeof out, "%s/made-%u", work_dir, w->index / 2);
    const millet_convert_options o = {.size = sizeof o, .context = 64};
    bool ok = millet_convert(of.checkpoint, out, &o, NULL, &e);
    check(w, ok || strstr(e.message, out), "%s", e.message);
    if (ok) atomic_fetch_add((atomic_uint *)w->ctx, 1);
}

static void conversions_at_the_same_time(void **state) {
    (void)state;
    atomic_uint made = 0;
    crowd(3, convert, &made);
    assert_int_equal(made, 2);
    for (int i = 0; i < 2; i++) {
        char out[400];
        millet_error e;
        snprintf(out, sizeof out, "%s/made-%d", work_dir, i);
        millet_lm *m = millet_lm_open(out, NULL, &e);
        if (!m) fail_msg("%s", e.message);
        millet_lm_close(m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(generators_of_one_model),
        cmocka_unit_test(sessions_of_one_package),
        cmocka_unit_test(values_of_one_package),
        cmocka_unit_test(packages_come_and_go),
        cmocka_unit_test(calls_are_cancelled_from_another_thread),
        cmocka_unit_test(one_flag_ends_all),
        cmocka_unit_test(states_go_from_thread_to_thread),
        cmocka_unit_test(texts_of_one_tokenizer),
        cmocka_unit_test(conversions_at_the_same_time),
    };
    return cmocka_run_group_tests(tests, set_up, remove_work_dir);
}
