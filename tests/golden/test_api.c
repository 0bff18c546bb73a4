#define _GNU_SOURCE
/* The public interface on the model in models/: converted, described, run, continued. Expected ids, texts and
 * the mean NLL are transformers' (tests/data/generate). */
#include "base/file.h"
#include "base/json.h"
#include "millet.h"
#include "work_dir.h"
#include <math.h>
#include <pthread.h>
#include <unistd.h>

static char checkpoint[512], artifact[300];
static arena *golden_arena;
static const json *golden;
static millet_lm *lm;

static void must(bool ok, const millet_error *e) {
    if (!ok) fail_msg("%s", e->message);
}

static const json *prompt(const char *list, int at) {
    const json *p = json_get(golden, list)->child;
    while (at--) p = p->next;
    return p;
}

static size_t ids_of(const json *list, int32_t *ids) {
    size_t n = 0;
    JSON_EACH(c, list) ids[n++] = (int32_t)c->i;
    return n;
}

static bool count_progress(void *ctx, const char *tensor, uint64_t done, uint64_t total,
                           uint64_t tensors_done, uint64_t tensors) {
    assert_true(done <= total && tensors_done <= tensors);
    assert_non_null(tensor);
    return --*(int *)ctx != 0;
}

static int set_up(void **state) {
    const char *source = getenv("MILLET_SOURCE");
    snprintf(checkpoint, sizeof checkpoint, "%s/models/tiny-qwen3.5", source ? source : ".");
    if (make_work_dir(state)) return -1;
    snprintf(artifact, sizeof artifact, "%s/artifact", work_dir);
    char path[600];
    err e = {0};
    snprintf(path, sizeof path, "%s/tests/data/generate/tiny-qwen3.5.json", source ? source : ".");
    golden_arena = arena_new();
    golden = json_parse_file(golden_arena, path, &e);
    int calls = -1;
    char *summary;
    millet_error me;
    const millet_convert_options o = {
        .size = sizeof o, .precision = "float32", .context = 128, .progress = count_progress, .ctx = &calls};
    if (!golden || !millet_convert(checkpoint, artifact, &o, &summary, &me)) return -1;
    bool said = calls < -1 && strlen(summary) > 0;
    millet_free(summary);
    lm = millet_lm_open(artifact, NULL, &me);
    return lm && said ? 0 : -1;
}

static int tear_down(void **state) {
    millet_lm_close(lm);
    arena_free(golden_arena);
    return remove_work_dir(state);
}

static void a_cancelled_conversion_leaves_nothing(void **state) {
    (void)state;
    char out[400];
    int calls = 1;
    millet_error e;
    snprintf(out, sizeof out, "%s/cancelled", work_dir);
    const millet_convert_options o = {.size = sizeof o, .progress = count_progress, .ctx = &calls};
    assert_false(millet_convert(checkpoint, out, &o, NULL, &e));
    assert_int_equal(e.code, MILLET_CANCELLED);
    assert_false(file_exists(out));
}

static void an_existing_output_is_kept(void **state) {
    (void)state;
    millet_error e;
    assert_false(millet_convert(checkpoint, artifact, NULL, NULL, &e));
    assert_non_null(strstr(e.message, artifact));
    assert_non_null(strstr(e.message, "exists"));
    assert_true(millet_lm_context(lm) == 128);
}

/* ---- generation ---- */

typedef struct {
    char text[4096];
    size_t len, calls, stop_after;
} collected;

static bool collect(void *ctx, int32_t id, const char *text, size_t len) {
    collected *c = ctx;
    assert_true(id >= 0 || len > 0);
    assert_true(c->len + len < sizeof c->text);
    memcpy(c->text + c->len, text, len);
    c->len += len;
    return ++c->calls != c->stop_after;
}

static void greedy_ids_and_text(void **state) {
    (void)state;
    for (int at = 0; at < 2; at++) {
        const json *p = prompt("prompts", at), *want = json_get(p, "greedy")->child,
                   *m = json_get(p, "greedy_margin")->child;
        collected c = {0};
        millet_error e;
        millet_generation r = {.size = sizeof r};
        const millet_generate_options o = {.size = sizeof o,
                                           .repetition_penalty = 1,
                                           .max_new_tokens = 64,
                                           .ignore_eos = true,
                                           .on_token = collect,
                                           .ctx = &c};
        must(millet_generate(lm, json_str(p, "text", ""), &o, &r, &e), &e);
        assert_int_equal(r.prompt_tokens, json_get(p, "ids")->len);
        assert_int_equal(r.n_ids, 64);
        assert_int_equal(r.finish, MILLET_LENGTH);
        for (size_t i = 0; i < 64; i++, want = want->next, m = m->next) {
            assert_true(m->d > 1e-3); /* no ties in these */
            assert_int_equal(r.ids[i], want->i);
        }
        assert_string_equal(c.text, json_str(p, "greedy_text", ""));
        millet_free(r.ids);
    }
}

/* A chat turn, which ends with <|im_end|>: the last id, without text. */
static void a_turn_ends(void **state) {
    (void)state;
    for (int at = 0; at < 2; at++) {
        const json *c = prompt("chat", at);
        int64_t stop = json_int(c, "greedy_first_stop", -1);
        collected got = {0};
        millet_error e;
        millet_generation r = {.size = sizeof r};
        const millet_generate_options o = {.size = sizeof o,
                                           .repetition_penalty = 1,
                                           .max_new_tokens = 64,
                                           .on_token = collect,
                                           .ctx = &got};
        must(millet_generate(lm, json_str(c, "text", ""), &o, &r, &e), &e);
        assert_int_equal(r.finish, MILLET_STOP);
        assert_int_equal(r.n_ids, stop + 1);
        int32_t want[200];
        ids_of(json_get(c, "greedy"), want);
        assert_memory_equal(r.ids, want, r.n_ids * sizeof *want);
        const char *text = json_str(c, "greedy_text", ""), *end = strstr(text, "<|im_end|>");
        assert_int_equal(got.len, end - text);
        assert_memory_equal(got.text, text, got.len);
        millet_free(r.ids);
    }
}

static void a_callback_stops(void **state) {
    (void)state;
    collected c = {.stop_after = 3};
    millet_error e;
    millet_generation r = {.size = sizeof r};
    const millet_generate_options o = {.size = sizeof o, .on_token = collect, .ctx = &c};
    must(millet_generate(lm, "Once upon a", &o, &r, &e), &e);
    assert_int_equal(r.finish, MILLET_STOPPED);
    assert_int_equal(r.n_ids, 3);
    assert_int_equal(c.calls, 3);
    millet_free(r.ids);
}

static bool never(void *ctx) {
    ++*(int *)ctx;
    return false;
}

static void a_prompt_can_be_interrupted(void **state) {
    (void)state;
    int polled = 0;
    millet_error e;
    millet_generation r = {.size = sizeof r};
    const millet_generate_options o = {.size = sizeof o, .keep_going = never, .ctx = &polled};
    must(millet_generate(lm, "Once upon a", &o, &r, &e), &e);
    assert_int_equal(r.finish, MILLET_STOPPED);
    assert_int_equal(r.n_ids, 0);
    assert_int_equal(polled, 1);
}

static void sampling_repeats_with_its_seed(void **state) {
    (void)state;
    millet_error e;
    millet_generation r[3];
    for (int i = 0; i < 3; i++) {
        r[i] = (millet_generation){.size = sizeof r[i]};
        const millet_generate_options o = {.size = sizeof o,
                                           .temperature = 1.5,
                                           .top_k = -1,
                                           .top_p = 1,
                                           .max_new_tokens = 24,
                                           .ignore_eos = true,
                                           .seed = i == 2 ? 8 : 7};
        must(millet_generate(lm, "Once upon a", &o, &r[i], &e), &e);
        assert_int_equal(r[i].n_ids, 24);
    }
    assert_memory_equal(r[0].ids, r[1].ids, 24 * sizeof *r[0].ids);
    assert_memory_not_equal(r[0].ids, r[2].ids, 24 * sizeof *r[0].ids);
    for (int i = 0; i < 3; i++) millet_free(r[i].ids);
}

static void expect_refusal(const int32_t *ids, size_t n, int64_t max_new, millet_code code,
                           const char *says) {
    millet_error e;
    millet_generation r = {.size = sizeof r};
    const millet_generate_options o = {.size = sizeof o, .max_new_tokens = max_new};
    assert_false(millet_generate_ids(lm, ids, n, &o, &r, &e));
    assert_int_equal(e.code, code);
    if (!strstr(e.message, says)) fail_msg("'%s' does not say '%s'", e.message, says);
    assert_null(r.ids);
}

static void refusals(void **state) {
    (void)state;
    int32_t ids[200] = {1};
    assert_int_equal(millet_lm_context(lm), 128);
    expect_refusal(ids, 0, 1, MILLET_USAGE, "empty");
    expect_refusal(ids, 129, 1, MILLET_LIMIT, "129 tokens");
    expect_refusal(ids, 100, 30, MILLET_LIMIT, "at most 29");
    ids[3] = 4096;
    expect_refusal(ids, 5, 1, MILLET_USAGE, "4096 at index 3");
    ids[3] = -1;
    expect_refusal(ids, 5, 1, MILLET_USAGE, "-1 at index 3");
    millet_error e;
    millet_generate_options o = {0};
    assert_false(millet_generate(lm, "Once", &o, NULL, &e));
    assert_int_equal(e.code, MILLET_USAGE);
    assert_non_null(strstr(e.message, "size"));
    assert_false(millet_generate(lm, "", NULL, NULL, &e));
    assert_non_null(strstr(e.message, "empty"));
    assert_null(millet_lm_open("/nowhere", NULL, &e));
    assert_int_equal(e.code, MILLET_IO);
    assert_null(millet_lm_open("/nowhere", NULL, NULL));
}

/* The whole context can be used: the last token is not fed. */
static void the_context_can_be_filled(void **state) {
    (void)state;
    int32_t ids[128];
    for (int i = 0; i < 128; i++) ids[i] = 300 + i;
    millet_error e;
    for (int64_t n = 127; n <= 128; n++) {
        millet_generation r = {.size = sizeof r};
        const millet_generate_options o = {.size = sizeof o, .max_new_tokens = 129 - n, .ignore_eos = true};
        must(millet_generate_ids(lm, ids, (size_t)n, &o, &r, &e), &e);
        assert_int_equal(r.n_ids, 129 - n);
        millet_free(r.ids);
    }
}

/* ---- generators and cancellation ---- */

/* transformers' greedy ids, from a generator that goes on, begins anew, and is told of its own ids. */
static void a_generator_feeds_what_is_new(void **state) {
    (void)state;
    millet_error e;
    const millet_session_options so = {.size = sizeof so, .threads = 1};
    millet_generator *g = millet_generator_new(lm, &so, &e);
    must(g, &e);
    const millet_generate_options o = {
        .size = sizeof o, .repetition_penalty = 1, .max_new_tokens = 20, .ignore_eos = true};
    for (int at = 0; at < 2; at++) {
        int32_t ids[300], want[200];
        const json *p = prompt("prompts", at);
        size_t n = ids_of(json_get(p, "ids"), ids);
        ids_of(json_get(p, "greedy"), want);
        for (int turn = 0; turn < 3; turn++) {
            millet_generation r = {.size = sizeof r};
            must(millet_generator_run(g, ids, n, &o, &r, &e), &e);
            assert_int_equal(r.n_ids, 20);
            assert_int_equal(r.prompt_tokens, n);
            assert_int_equal(r.reused_tokens, turn ? n - 1 : 0); /* the last id was not fed */
            assert_memory_equal(r.ids, want + 20 * turn, 20 * sizeof *want);
            memcpy(ids + n, r.ids, 20 * sizeof *ids);
            n += 20;
            millet_free(r.ids);
            assert_int_equal(millet_generator_position(g), n - 1);
        }
    }
    millet_stats st = {.size = sizeof st};
    assert_true(millet_generator_stats(g, &st));
    assert_true(st.calls >= 120 && st.seconds > 0 && st.state_bytes > 0);
    millet_generator_reset(g);
    assert_int_equal(millet_generator_position(g), 0);
    millet_generator_free(g);
}

/* Scores behind a prompt: the best id is transformers' first greedy one. */
static void scores_behind_a_token(void **state) {
    (void)state;
    millet_error e;
    millet_generator *g = millet_generator_new(lm, NULL, &e);
    must(g, &e);
    int32_t ids[200];
    const json *p = prompt("prompts", 0), *greedy = json_get(p, "greedy")->child;
    size_t n = ids_of(json_get(p, "ids"), ids);
    for (int i = 0; i < 8; i++, greedy = greedy->next) {
        millet_scores s = {.size = sizeof s};
        must(millet_generator_feed(g, ids, n, NULL, &s, &e), &e);
        assert_int_equal(s.n, 4096);
        assert_int_equal(millet_lm_vocabulary(lm), 4096);
        assert_null(s.id);
        int32_t best = 0;
        for (int32_t k = 1; k < 4096; k++)
            if (s.score[k] > s.score[best]) best = k;
        assert_int_equal(best, greedy->i);
        ids[0] = best;
        n = 1;
    }
    ids[0] = -1;
    assert_false(millet_generator_feed(g, ids, 1, NULL, NULL, &e));
    assert_int_equal(millet_generator_position(g), 0);
    millet_generator_free(g);
}

static bool set_flag(void *ctx, int32_t id, const char *text, size_t len) {
    (void)id, (void)text, (void)len;
    millet_cancel_set(ctx);
    return true;
}

/* A flag that is set ends each kind of work; what was cancelled can be used again. */
static void cancelled_work_can_begin_again(void **state) {
    (void)state;
    millet_error e;
    millet_cancel *c = millet_cancel_new();
    assert_non_null(c);
    assert_false(millet_cancel_is_set(c));
    millet_generator *g = millet_generator_new(lm, NULL, &e);
    int32_t ids[200], want[200];
    size_t n = ids_of(json_get(prompt("prompts", 0), "ids"), ids);
    ids_of(json_get(prompt("prompts", 0), "greedy"), want);
    for (int again = 0; again < 2; again++) {
        millet_generation r = {.size = sizeof r};
        const millet_generate_options o = {.size = sizeof o,
                                           .repetition_penalty = 1,
                                           .max_new_tokens = 20,
                                           .on_token = again ? NULL : set_flag,
                                           .ctx = c,
                                           .cancel = c};
        must(millet_generator_run(g, ids, n, &o, &r, &e), &e);
        assert_int_equal(r.finish, again ? MILLET_LENGTH : MILLET_STOPPED);
        assert_int_equal(r.n_ids, again ? 20 : 1);
        assert_memory_equal(r.ids, want, r.n_ids * sizeof *want);
        millet_free(r.ids);
        assert_int_equal(millet_cancel_is_set(c), !again);
        millet_cancel_clear(c);
    }
    millet_cancel_set(c);
    assert_false(millet_generator_feed(g, ids, n, c, NULL, &e));
    assert_int_equal(e.code, MILLET_CANCELLED);
    char out[400];
    snprintf(out, sizeof out, "%s/cancelled", work_dir);
    const millet_convert_options co = {.size = sizeof co, .cancel = c};
    assert_false(millet_convert(checkpoint, out, &co, NULL, &e));
    assert_int_equal(e.code, MILLET_CANCELLED);
    assert_false(file_exists(out));
    millet_generator_free(g);
    millet_cancel_free(c);
}

/* What belongs to an lm. */
static void packages_of_a_model(void **state) {
    (void)state;
    assert_int_equal(millet_lm_package_count(lm), 1);
    assert_null(millet_lm_package(lm, 1));
    const millet_package *p = millet_lm_package(lm, 0);
    assert_int_equal(millet_function_count(p), 1);
    assert_non_null(strstr(millet_package_path(p), artifact));
    const json *c = prompt("chat", 0);
    int32_t want[200];
    ids_of(json_get(c, "greedy"), want);
    assert_true(millet_lm_is_stop(lm, want[json_int(c, "greedy_first_stop", -1)]));
    assert_false(millet_lm_is_stop(lm, want[0]));
    millet_error e;
    const millet_open_options open = {.size = sizeof open, .linear = "quick"};
    assert_null(
        millet_lm_open(artifact, &(millet_lm_options){.size = sizeof(millet_lm_options), .open = &open}, &e));
    assert_non_null(strstr(e.message, "linear quick"));
    assert_null(millet_package_open(artifact, &open, &e));
    assert_int_equal(e.code, MILLET_USAGE);
}

/* ---- packages and sessions ---- */

static millet_feature feature(const millet_package *p, millet_kind k, const char *name) {
    millet_feature f = {.size = sizeof f};
    for (size_t i = 0; millet_feature_at(p, NULL, k, i, &f); i++)
        if (!strcmp(f.name, name)) return f;
    fail_msg("no feature %s", name);
    return f;
}

static void signature(void **state) {
    (void)state;
    millet_error e;
    millet_package *p = millet_package_open(artifact, NULL, &e);
    must(p, &e);
    assert_int_equal(millet_function_count(p), 1);
    assert_string_equal(millet_function_name(p, 0), millet_default_function(p));
    assert_null(millet_function_name(p, 1));
    assert_int_equal(millet_feature_count(p, NULL, MILLET_INPUT), 2);
    assert_int_equal(millet_feature_count(p, "nothing", MILLET_INPUT), 0);
    millet_feature h = feature(p, MILLET_INPUT, "hidden"), l = feature(p, MILLET_OUTPUT, "logits"),
                   k = feature(p, MILLET_STATE, "k_3");
    assert_int_equal(h.rank, 3);
    assert_int_equal(h.dtype, MILLET_FP32);
    assert_int_equal(h.shape[2], 256);
    assert_int_equal(h.lower[2], 256);
    assert_int_equal(h.upper[2], 256);
    assert_int_equal(l.rank, 2);
    assert_int_equal(l.shape[1], 4096);
    assert_int_equal(k.dtype, MILLET_FP16);
    assert_int_equal(k.shape[2], 128);
    assert_string_equal(h.description, "");
    assert_false(h.ranged || h.has_default || h.default_dtype);
    assert_null(millet_metadata(p, "no such key"));
    const char *key, *value;
    size_t n = 0;
    for (; millet_metadata_at(p, n, &key, &value); n++) assert_string_equal(millet_metadata(p, key), value);
    assert_true(n > 0);
    millet_package_info info = {.size = sizeof info};
    assert_true(millet_package_describe(p, &info));
    assert_int_equal(info.specification_version, 9);
    assert_false(info.multifunction || info.pipeline);
    info.size = 0;
    assert_false(millet_package_describe(p, &info));
    millet_package_close(p);
}

/* One call with a constant row; returns the first logit. */
static float call(millet_session *s, float x, int32_t pos) {
    static float row[256];
    for (int i = 0; i < 256; i++) row[i] = x * (float)((i % 7) - 3);
    const millet_tensor in[] = {{"current_pos", MILLET_INT32, 1, {1}, &pos, sizeof pos},
                                {"hidden", MILLET_FP32, 3, {1, 1, 256}, row, sizeof row}};
    millet_tensor out[4];
    const char *value = "layer_0_out";
    millet_call c = {.size = sizeof c,
                     .input = in,
                     .n_input = 2,
                     .value = &value,
                     .n_value = 1,
                     .output = out,
                     .max_output = 4};
    millet_error e;
    must(millet_run(s, &c, &e), &e);
    assert_int_equal(c.n_output, 2);
    assert_string_equal(out[0].name, "logits");
    assert_string_equal(out[1].name, "layer_0_out");
    assert_int_equal(out[0].bytes, 4096 * sizeof(float));
    return *(const float *)out[0].data;
}

/* Sessions over two openings of the package take turns on the states of one. */
static void bound_states(const millet_package *p, millet_session *a, float first, float second) {
    millet_error e;
    millet_package *again = millet_package_open(artifact, NULL, &e);
    must(again, &e);
    millet_session *b = millet_session_new(again, NULL, &e);
    must(b, &e);
    assert_false(millet_state_bind(b, a, "nothing", &e));
    assert_non_null(strstr(e.message, "no state nothing"));
    for (size_t i = 0; i < millet_state_count(a); i++)
        must(millet_state_bind(b, a, millet_state_name(a, i), &e), &e);
    millet_state_reset(b); /* both */
    assert_true(call(a, 0.1f, 0) == first);
    assert_true(call(b, 0.2f, 1) == second);
    millet_session *c = millet_session_new(p, NULL, &e);
    must(c, &e);
    must(millet_state_copy(c, a, &e), &e);
    assert_true(call(a, 0.2f, 2) == call(c, 0.2f, 2));
    millet_session_free(c);
    millet_session_free(b);
    millet_package_close(again);
    millet_state_reset(a); /* b has left its states to a */
    assert_true(call(a, 0.1f, 0) == first);
}

static void states(void **state) {
    (void)state;
    millet_error e;
    millet_package *p = millet_package_open(artifact, NULL, &e);
    must(p, &e);
    millet_session *a = millet_session_new(p, NULL, &e), *b = millet_session_new(p, NULL, &e);
    must(a && b, &e);
    float first = call(a, 0.1f, 0), second = call(a, 0.2f, 1);
    millet_state_reset(a);
    assert_true(call(a, 0.1f, 0) == first); /* fresh again */
    must(millet_state_copy(b, a, &e), &e);
    millet_snapshot *snap = millet_snapshot_take(a, &e);
    must(snap, &e);
    assert_true(call(b, 0.2f, 1) == second); /* b goes on where a was */
    assert_true(call(a, 0.2f, 1) == second);
    assert_true(call(a, 0.2f, 2) != second);
    must(millet_snapshot_restore(a, snap, &e), &e);
    assert_true(call(a, 0.2f, 1) == second);
    millet_snapshot_free(snap);
    /* state by state into a fresh session */
    millet_session *c = millet_session_new(p, NULL, &e);
    must(c, &e);
    for (size_t i = 0; i < millet_state_count(a); i++) {
        millet_tensor t;
        must(millet_state_get(a, millet_state_name(a, i), &t, &e), &e);
        assert_int_equal(t.dtype, MILLET_FP16);
        must(millet_state_set(c, t.name, &t, &e), &e);
    }
    assert_true(call(c, 0.3f, 2) == call(a, 0.3f, 2));
    bound_states(p, a, first, second);
    millet_tensor t;
    assert_false(millet_state_get(a, "nothing", &t, &e));
    assert_non_null(strstr(e.message, "nothing"));
    millet_session_free(a);
    millet_session_free(b);
    millet_session_free(c);
    millet_package_close(p);
}

static void bad_calls(void **state) {
    (void)state;
    millet_error e;
    millet_package *p = millet_package_open(artifact, NULL, &e);
    millet_session *s = millet_session_new(
        p, &(millet_session_options){.size = sizeof(millet_session_options), .precision = MILLET_STRICT}, &e);
    must(s, &e);
    int32_t pos = 0;
    float row[256] = {0};
    millet_tensor in[] = {{"current_pos", MILLET_INT32, 1, {1}, &pos, sizeof pos},
                          {"hidden", MILLET_FP32, 3, {1, 1, 255}, row, sizeof row}};
    millet_tensor out[2];
    millet_call c = {.size = sizeof c, .input = in, .n_input = 2, .output = out, .max_output = 2};
    assert_false(millet_run(s, &c, &e));
    assert_non_null(strstr(e.message, "hidden: 1024 bytes where its shape takes 1020"));
    in[1].bytes = 1020;
    assert_false(millet_run(s, &c, &e));
    assert_non_null(strstr(e.message, "hidden"));
    c.n_input = 1;
    assert_false(millet_run(s, &c, &e));
    assert_non_null(strstr(e.message, "hidden"));
    c.max_output = 0;
    assert_false(millet_run(s, &c, &e));
    assert_non_null(strstr(e.message, "returns 1 tensors, there is room for 0"));
    c.function = "nothing";
    assert_false(millet_run(s, &c, NULL));
    millet_session_free(s);
    millet_package_close(p);
}

/* ---- text ---- */

static void text_there_and_back(void **state) {
    (void)state;
    const millet_tokenizer *t = millet_lm_tokenizer(lm);
    assert_non_null(strstr(millet_lm_tokenizer_path(lm), "Tokenizer"));
    const json *p = prompt("prompts", 1);
    const char *text = json_str(p, "text", "");
    int32_t want[200], *ids;
    size_t n, len, want_n = ids_of(json_get(p, "ids"), want);
    millet_error e;
    must(millet_encode(t, text, strlen(text), &ids, &n, &e), &e);
    assert_int_equal(n, want_n);
    assert_memory_equal(ids, want, n * sizeof *ids);
    int32_t *prompt_ids; /* this tokenizer puts nothing around a text */
    must(millet_encode_prompt(t, text, strlen(text), &prompt_ids, &len, &e), &e);
    assert_int_equal(len, n);
    assert_memory_equal(prompt_ids, want, n * sizeof *want);
    millet_free(prompt_ids);
    char *back = millet_decode(t, ids, n, true, &len);
    assert_int_equal(len, strlen(text));
    assert_string_equal(back, text);
    millet_stream *s = millet_stream_new(t, true);
    char joined[1000] = "";
    const char *piece;
    for (size_t i = 0; i < n; i++) {
        millet_stream_push(s, ids[i], &piece, &len);
        strncat(joined, piece, len);
    }
    millet_stream_flush(s, &piece, &len);
    strncat(joined, piece, len);
    assert_string_equal(joined, text);
    millet_stream_free(s);
    millet_free(back);
    millet_free(ids);
    assert_false(millet_encode(t, "\xff", 1, &ids, &n, &e));
    assert_null(millet_tokenizer_open("/nowhere", &e));
    millet_tokenizer *own = millet_tokenizer_open(checkpoint, &e);
    must(own, &e);
    millet_tokenizer_close(own);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cancelled_conversion_leaves_nothing),
        cmocka_unit_test(an_existing_output_is_kept),
        cmocka_unit_test(greedy_ids_and_text),
        cmocka_unit_test(a_turn_ends),
        cmocka_unit_test(a_callback_stops),
        cmocka_unit_test(a_prompt_can_be_interrupted),
        cmocka_unit_test(sampling_repeats_with_its_seed),
        cmocka_unit_test(refusals),
        cmocka_unit_test(the_context_can_be_filled),
        cmocka_unit_test(a_generator_feeds_what_is_new),
        cmocka_unit_test(scores_behind_a_token),
        cmocka_unit_test(cancelled_work_can_begin_again),
        cmocka_unit_test(packages_of_a_model),
        cmocka_unit_test(signature),
        cmocka_unit_test(states),
        cmocka_unit_test(bad_calls),
        cmocka_unit_test(text_there_and_back),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
