/* Packages that other converters wrote, fed one token a call as their README says, against the logits of an
 * independent interpreter (pkg_oracle.safetensors: fp32 inside, nothing rounded). Logits spread by about 2.7.
 * Strict mode rounds every fp16 op, as that interpreter's second variant did: facts/thirdparty.md gives 0.026
 * and 0.16 (recurrent) for it; twice that is allowed, and 5 % of the spread for the Llama packages, of which
 * no figure is known. Fast mode rounds at the interfaces of packages and at states only. The best logit must
 * be the same but for ties. */
#include "base/num.h"
#include "checkpoint/safetensors.h"
#include "runtime/session.h"
#include "test.h"
#include <math.h>

#define MAX_CONTEXT 512

typedef struct {
    const char *dir,
        *package[4];   /* in order; what one returns goes to the next by name or as the hidden states */
    bool shared_state; /* one state object for all packages */
    double atol[2];    /* strict, fast */
} bundle;

/* One token's way through the packages. */
typedef struct {
    rt_session *s[4];
    size_t n;
    int32_t token, position;
    uint16_t causal[MAX_CONTEXT], update[MAX_CONTEXT];
    uint8_t hidden[4096];
    ir_type hidden_type;
} drive;

static void fill_masks(drive *d, size_t context) {
    for (size_t i = 0; i < context; i++) {
        d->causal[i] = i <= (size_t)d->position ? 0 : num_f32_f16(-INFINITY);
        d->update[i] = i == (size_t)d->position ? num_f32_f16(1) : 0;
    }
}

static rt_tensor input(drive *d, const coreml_feature *f) {
    rt_tensor t = {f->name, f->type, &d->position};
    if (!strcmp(f->name, "input_ids"))
        t.data = &d->token;
    else if (!strcmp(f->name, "hidden_states"))
        t.data = d->hidden, t.type = d->hidden_type;
    else if (!strcmp(f->name, "update_mask"))
        t.data = d->update;
    else if (!strcmp(f->name, "causal_mask")) {
        t.data = d->causal;
        if (f->range) t.type.dim[3] = d->position + 1; /* grows with the text */
    } else
        assert_true(!strcmp(f->name, "position_ids") || !strcmp(f->name, "current_pos"));
    return t;
}

static void step(drive *d, size_t stage, float *logits, double *top, int32_t *id) {
    err e = {0};
    const coreml_model *m = rt_model_coreml(rt_session_model(d->s[stage]));
    const coreml_function *f = coreml_function_find(m, m->default_function);
    rt_tensor in[8], out[24];
    rt_call c = {.in = in, .out = out};
    for (size_t i = 0; i < f->n_in; i++) in[c.n_in++] = input(d, &f->in[i]);
    if (!rt_run(d->s[stage], &c, &e)) fail_msg("%s", e.msg);
    size_t at = 0;
    for (size_t i = 0; i < c.n_out; i++) {
        int64_t n = ir_type_count(&out[i].type);
        if (strstr(out[i].name, "hidden_states")) {
            assert_true((size_t)n * 2 <= sizeof d->hidden);
            memcpy(d->hidden, out[i].data, (size_t)n * 2);
            d->hidden_type = out[i].type;
        } else if (!strncmp(out[i].name, "logits", 6)) { /* logits1, logits2, ... follow each other */
            num_f16_to_f32(logits + at, out[i].data, (size_t)n);
            at += (size_t)n;
        } else if (!strcmp(out[i].name, "token_id"))
            memcpy(id, out[i].data, 4);
        else if (!strcmp(out[i].name, "token_logit"))
            *top = (double)num_f16_f32(num_get16(out[i].data));
    }
}

static void share_state(drive *d, size_t from, size_t to) {
    err e = {0};
    rt_tensor t;
    for (size_t i = 0; i < rt_state_count(d->s[from]); i++) {
        assert_true(rt_state_get(d->s[from], rt_state_name(d->s[from], i), &t, &e));
        if (to < d->n && rt_state_count(d->s[to])) assert_true(rt_state_set(d->s[to], t.name, &t, &e));
    }
}

static int64_t argmax(const float *x, int64_t n) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

static void compare(const bundle *b, double atol, int32_t position, const float *got, double top, int32_t id,
                    const float *want, int64_t n) {
    int64_t best = argmax(want, n);
    if (id >= 0) { /* the package picks the id itself */
        if (id != best || fabs(top - (double)want[best]) > atol)
            fail_msg("%s, position %d: id %d at %g, expected %lld at %g", b->dir, position, id, top,
                     (long long)best, (double)want[best]);
        return;
    }
    double worst = 0;
    for (int64_t i = 0; i < n; i++) worst = fmax(worst, fabs((double)(got[i] - want[i])));
    if (worst > atol || (double)(want[best] - want[argmax(got, n)]) > 2 * atol)
        fail_msg("%s, position %d: logits differ by %g, best %lld, expected %lld", b->dir, position, worst,
                 (long long)argmax(got, n), (long long)best);
}

/* The row of a position, NULL when the oracle has none. */
static const float *row(const st_tensor *positions, const st_tensor *logits, int32_t position, float *buf) {
    int64_t n = logits->type.dim[1];
    for (int64_t r = 0; r < positions->type.dim[0]; r++)
        if ((int32_t)num_get32((const uint8_t *)positions->data + 4 * r) == position) {
            memcpy(buf, (const uint8_t *)logits->data + r * n * 4, (size_t)n * 4);
            return buf;
        }
    return NULL;
}

static void run_bundle(const bundle *b, rt_mode mode) {
    err e = {0};
    char path[1200];
    snprintf(path, sizeof path, "%s/%s", test_case_path("thirdparty"), b->dir);
    char file[1300];
    snprintf(file, sizeof file, "%s/oracle.safetensors", path);
    st_file *oracle = st_open(file, &e);
    snprintf(file, sizeof file, "%s/pkg_oracle.safetensors", path);
    st_file *pkg = st_open(file, &e);
    assert_true(oracle && pkg);
    const st_tensor *ids = st_find(oracle, "greedy_full_ids"), *logits = st_find(pkg, "pkg_logits");
    const st_tensor *positions = st_find(pkg, "positions");
    drive d = {0};
    rt_model *m[4];
    for (; d.n < 4 && b->package[d.n]; d.n++) {
        snprintf(file, sizeof file, "%s/%s", path, b->package[d.n]);
        m[d.n] = rt_model_open(file, &e);
        if (!m[d.n]) fail_msg("%s", e.msg);
        d.s[d.n] = rt_session_new(m[d.n], mode, &e);
    }
    int compared = 0;
    for (d.position = 0; d.position + 1 < ids->type.dim[0]; d.position++) {
        float got[1024], want[1024];
        double top = 0;
        int32_t id = -1;
        d.token = (int32_t)num_get32((const uint8_t *)ids->data + 4 * d.position);
        fill_masks(&d, MAX_CONTEXT);
        for (size_t i = 0; i < d.n; i++) {
            if (b->shared_state && i) share_state(&d, i - 1, i);
            step(&d, i, got, &top, &id);
        }
        if (b->shared_state) share_state(&d, 2, 1);
        if (!row(positions, logits, d.position, want)) continue;
        compare(b, b->atol[mode], d.position, got, top, id, want, logits->type.dim[1]);
        compared++;
    }
    assert_int_equal(compared, positions->type.dim[0]);
    for (size_t i = 0; i < d.n; i++) {
        rt_session_free(d.s[i]);
        rt_model_close(m[i]);
    }
    st_close(oracle);
    st_close(pkg);
}

static const bundle bundles[] = {
    {"finnvoor-llama-fp16-dynamic", {"tiny-llama-plain.mlpackage"}, false, {0.14, 0.03}},
    {"johnrocky-qwen3-fp16-monolithic", {"model.mlpackage"}, false, {0.05, 0.03}},
    {"anemll035-qwen3-lut46-2chunk",
     {"qwen_embeddings.mlpackage", "qwen_FFN_PF_lut4_chunk_01of02.mlpackage",
      "qwen_FFN_PF_lut4_chunk_02of02.mlpackage", "qwen_lm_head_lut6.mlpackage"},
     true,
     {0.05, 0.03}},
    {"anemll035-llama-lut6-4pertensor-6",
     {"llama_embeddings_lut6.mlpackage", "llama_FFN_PF_lut4_chunk_01of02.mlpackage",
      "llama_FFN_PF_lut4_chunk_02of02.mlpackage", "llama_lm_head_lut6.mlpackage"},
     true,
     {0.14, 0.03}},
    {"bhctsntrk-anemll-qwen3.5-lut4-2chunk",
     {"qwen35_embeddings.mlpackage", "qwen35_FFN_PF_lut4_chunk_01of02.mlpackage",
      "qwen35_FFN_PF_lut4_chunk_02of02.mlpackage", "qwen35_lm_head_lut6.mlpackage"},
     false,
     {0.32, 0.1}},
};

static void packages_of_others(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bundles / sizeof *bundles; i++) {
        run_bundle(&bundles[i], RT_STRICT);
        run_bundle(&bundles[i], RT_FAST);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(packages_of_others)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
