/* Wrong arguments of the public interface: refused with a code and a line that names them; nothing breaks,
 * and what was opened goes on. (Run under the sanitizers by `make sanitize`.) */
#define _GNU_SOURCE
#include "golden/tiny.h"
#include <math.h>
#include <unistd.h>

static tiny of;
static millet_package *package;
static millet_lm *lm;

static int set_up(void **state) {
    (void)state;
    millet_error e;
    if (tiny_make(&of, &(millet_convert_options){.size = sizeof(millet_convert_options), .context = 64}))
        return -1;
    package = millet_package_open(of.artifact, NULL, &e);
    lm = millet_lm_open(of.artifact, NULL, &e);
    return package && lm ? 0 : -1;
}

static int tear_down(void **state) {
    millet_lm_close(lm);
    millet_package_close(package);
    return remove_work_dir(state);
}

static void refused(bool ok, const millet_error *e, millet_code code, const char *says) {
    if (ok) fail_msg("taken, expected \"%s\"", says);
    if (e->code != code || !strstr(e->message, says))
        fail_msg("%d \"%s\", expected %d \"%s\"", (int)e->code, e->message, (int)code, says);
    assert_null(strchr(e->message, '\n'));
}

/* ---- calls ---- */

typedef struct {
    millet_tensor in[2];
    millet_call call;
    int32_t position;
    uint16_t row[256];
    millet_tensor out[2];
} one_call;

static void good_call(one_call *c) {
    memset(c, 0, sizeof *c);
    c->in[0] = (millet_tensor){"hidden", MILLET_FP16, 3, {1, 1, 256}, c->row, sizeof c->row};
    c->in[1] = (millet_tensor){"current_pos", MILLET_INT32, 1, {1}, &c->position, sizeof c->position};
    c->call = (millet_call){
        .size = sizeof c->call, .input = c->in, .n_input = 2, .output = c->out, .max_output = 2};
}

static void calls(void **state) {
    (void)state;
    millet_error e;
    one_call c;
    millet_session *s = millet_session_new(package, NULL, &e);
    assert_non_null(s);
    static const char *const no_value[] = {NULL}, *const unknown[] = {"no such value"};
#define BAD(text, statement)                                                                                 \
    do {                                                                                                     \
        good_call(&c);                                                                                       \
        statement;                                                                                           \
        refused(millet_run(s, &c.call, &e), &e, MILLET_USAGE, text);                                         \
    } while (0)
    refused(millet_run(s, NULL, &e), &e, MILLET_USAGE, "no call");
    BAD("millet_call: set its size", c.call.size = 0);
    BAD("no function nothing", c.call.function = "nothing");
    BAD("unknown dtype 77", c.in[0].dtype = (millet_dtype)77);
    BAD("rank -1", c.in[0].rank = -1);
    BAD("rank 9", c.in[0].rank = 9);
    BAD("size -5", c.in[0].shape[1] = -5);
    BAD("bytes where its shape takes", c.in[0].shape[1] = INT64_MAX);
    BAD("bytes where its shape takes", c.in[0].bytes = SIZE_MAX);
    BAD("no data", c.in[0].data = NULL);
    BAD("no name of an input", c.in[0].name = NULL);
    BAD("no such input", c.in[0].name = "no such input");
    BAD("needs input hidden", c.call.n_input = 0);
    BAD("input hidden is given twice", c.in[1] = c.in[0]);
    BAD("room for", c.call.max_output = 0);
    BAD("no inputs", c.call.input = NULL);
    BAD("no outputs", c.call.output = NULL);
    BAD("no value no such value", (c.call.value = unknown, c.call.n_value = 1));
    BAD("no name of a value", (c.call.value = no_value, c.call.n_value = 1));
    BAD("no names of values", c.call.n_value = 1);
    good_call(&c); /* it goes on */
    if (!millet_run(s, &c.call, &e)) fail_msg("%s", e.message);
    millet_session_free(s);
}

static void states(void **state) {
    (void)state;
    millet_error e;
    millet_tensor t;
    one_call c;
    good_call(&c);
    millet_session *s = millet_session_new(package, NULL, &e);
    assert_non_null(s);
    refused(millet_state_get(s, NULL, &t, &e), &e, MILLET_USAGE, "no name of a state");
    refused(millet_state_get(s, "", &t, &e), &e, MILLET_USAGE, "no state");
    refused(millet_state_set(s, "k_3", &c.in[0], &e), &e, MILLET_USAGE, "state k_3 is");
    refused(millet_state_set(s, "k_3", NULL, &e), &e, MILLET_USAGE, "no tensor");
    refused(millet_state_set(s, NULL, &c.in[0], &e), &e, MILLET_USAGE, "no name of a state");
    refused(millet_state_bind(s, s, "nothing", &e), &e, MILLET_USAGE, "no state nothing");
    if (!millet_state_bind(s, s, "k_3", &e) || !millet_state_copy(s, s, &e)) fail_msg("%s", e.message);
    if (!millet_run(s, &c.call, &e)) fail_msg("%s", e.message);
    assert_null(millet_state_name(s, SIZE_MAX));
    millet_session_free(s);
    const millet_session_options o = {.size = sizeof o, .precision = (millet_precision)9};
    s = millet_session_new(package, &o, &e);
    refused(s != NULL, &e, MILLET_USAGE, "precision 9");
}

static void descriptions(void **state) {
    (void)state;
    millet_feature f = {.size = sizeof f};
    assert_int_equal(millet_feature_count(package, NULL, (millet_kind)9), 0);
    assert_false(millet_feature_at(package, NULL, (millet_kind)9, 0, &f));
    assert_false(millet_feature_at(package, NULL, MILLET_INPUT, SIZE_MAX, &f));
    assert_string_equal(millet_dtype_name((millet_dtype)77), "?");
    assert_int_equal(millet_dtype_size((millet_dtype)-1), 0);
    assert_null(millet_metadata(package, NULL));
    assert_null(millet_function_name(package, SIZE_MAX));
}

static void paths(void **state) {
    (void)state;
    millet_error e;
    refused(millet_package_open(NULL, NULL, &e), &e, MILLET_USAGE, "no path");
    refused(millet_lm_open(NULL, NULL, &e), &e, MILLET_USAGE, "no path");
    refused(millet_tokenizer_open(NULL, &e), &e, MILLET_USAGE, "no path");
    refused(millet_convert(NULL, "out", NULL, NULL, &e), &e, MILLET_USAGE, "no checkpoint");
    refused(millet_convert(of.checkpoint, NULL, NULL, NULL, &e), &e, MILLET_USAGE, "no output");
}

/* ---- generation ---- */

static void sampling(double t, double top_p, double min_p, double penalty, int64_t top_k, const char *says) {
    millet_error e;
    const millet_generate_options o = {.size = sizeof o,
                                       .temperature = t,
                                       .top_p = top_p,
                                       .min_p = min_p,
                                       .repetition_penalty = penalty,
                                       .top_k = top_k,
                                       .max_new_tokens = 2};
    refused(millet_generate(lm, "Once", &o, NULL, &e), &e, MILLET_USAGE, says);
}

static void generation(void **state) {
    (void)state;
    millet_error e;
    sampling(NAN, 0, 0, 0, 0, "temperature must be");
    sampling(-1, 0, 0, 0, 0, "temperature must be");
    sampling(INFINITY, 0, 0, 0, 0, "temperature must be");
    sampling(1, NAN, 0, 0, 0, "top_p must be");
    sampling(1, -1, 0, 0, 0, "top_p must be");
    sampling(1, 0, 1e9, 0, 0, "min_p must be");
    sampling(1, 0, NAN, 0, 0, "min_p must be");
    sampling(1, 0, 0, -1, 0, "repetition_penalty must be");
    sampling(1, 0, 0, 0, INT64_MAX, "top_k must be");
    millet_generate_options o = {.size = sizeof o, .max_new_tokens = INT64_MAX};
    refused(millet_generate(lm, "Once", &o, NULL, &e), &e, MILLET_LIMIT, "do not fit the context");
    refused(millet_generate(lm, NULL, NULL, NULL, &e), &e, MILLET_USAGE, "the prompt is empty");
    refused(millet_generate_ids(lm, NULL, 3, NULL, NULL, &e), &e, MILLET_USAGE, "no ids");
    millet_generator *g = millet_generator_new(lm, NULL, &e);
    assert_non_null(g);
    refused(millet_generator_feed(g, NULL, 3, NULL, NULL, &e), &e, MILLET_USAGE, "no ids");
    refused(millet_generator_feed(g, NULL, 0, NULL, NULL, &e), &e, MILLET_USAGE, "no tokens");
    millet_scores unsized = {0};
    refused(millet_generator_feed(g, of.prompt[0].ids, 1, NULL, &unsized, &e), &e, MILLET_USAGE,
            "millet_scores");
    if (!millet_generator_feed(g, of.prompt[0].ids, 1, NULL, NULL, &e)) fail_msg("%s", e.message);
    millet_generator_free(g);
}

static void tokens(void **state) {
    (void)state;
    const millet_tokenizer *t = millet_lm_tokenizer(lm);
    const int32_t ids[] = {-1, INT32_MAX, 449};
    size_t n;
    const char *piece;
    char *text = millet_decode(t, ids, 3, true, &n);
    assert_string_equal(text, " time"); /* ids that don't exist are nothing */
    millet_free(text);
    text = millet_decode(t, NULL, 0, true, NULL);
    assert_string_equal(text, "");
    millet_free(text);
    millet_stream *s = millet_stream_new(t, false);
    millet_stream_push(s, -5, &piece, &n);
    assert_int_equal(n, 0);
    millet_stream_free(s);
}

/* ---- conversion ---- */

static void conversions(void **state) {
    (void)state;
    static const struct {
        millet_convert_options o;
        millet_code code;
        const char *says;
    } bad[] = {
        {{.preset = "x"}, MILLET_USAGE, "preset x"},
        {{.precision = "x"}, MILLET_USAGE, "precision x"},
        {{.state = "x"}, MILLET_USAGE, "state x"},
        {{.context = -1}, MILLET_USAGE, "context -1"},
        {{.context = INT64_MAX}, MILLET_USAGE, "context 9223372036854775807"},
        {{.quantize = "x"}, MILLET_USAGE, "scheme x"},
        {{.quantize = "lut4", .group_size = -3}, MILLET_USAGE, "group size -3"},
        {{.recipe = "/nowhere"}, MILLET_IO, "/nowhere"},
        {{.prefill = "99999999999999999999"}, MILLET_USAGE, "prefill 9999"},
        {{.prefill = ""}, MILLET_USAGE, "prefill"},
        {{.chunks = INT64_MAX}, MILLET_USAGE, "chunks 9223372036854775807"},
        {{.kv = "x"}, MILLET_USAGE, "kv x"},
        {{.table = "x"}, MILLET_USAGE, "table x"},
        {{.max_file_size = 1}, MILLET_LIMIT, "more than the 1 that a file may have"},
        {{.top_k = INT64_MAX}, MILLET_USAGE, "top-k 9223372036854775807"},
        {{.share_weights = "/nowhere"}, MILLET_IO, "/nowhere"},
    };
    char out[400];
    snprintf(out, sizeof out, "%s/bad", work_dir);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        millet_convert_options o = bad[i].o;
        millet_error e;
        o.size = sizeof o;
        refused(millet_convert(of.checkpoint, out, &o, NULL, &e), &e, bad[i].code, bad[i].says);
        assert_false(file_exists(out));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls),       cmocka_unit_test(states),     cmocka_unit_test(descriptions),
        cmocka_unit_test(paths),       cmocka_unit_test(generation), cmocka_unit_test(tokens),
        cmocka_unit_test(conversions),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
