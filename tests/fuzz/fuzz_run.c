#include "runtime/session.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define MAX_ELEMENTS (1 << 16)

/* Zeros of the described shape; false when the input is large or no array. */
static bool zeros(arena *a, const coreml_feature *f, rt_tensor *t) {
    int64_t count = ir_type_count(&f->type);
    if (f->other || count < 0 || count > MAX_ELEMENTS) return false;
    *t = (rt_tensor){f->name, f->type, arena_alloc(a, (size_t)ir_type_bytes(&f->type))};
    return true;
}

static void run(const rt_model *m, const coreml_function *f, rt_mode mode) {
    err e = {0};
    arena *a = arena_new();
    rt_tensor *in = ARENA_ARRAY(a, rt_tensor, f->n_in), *out = ARENA_ARRAY(a, rt_tensor, f->n_out);
    rt_call c = {.function = f->name, .in = in, .out = out, .find_nonfinite = mode == RT_FAST};
    bool ok = true;
    for (size_t i = 0; i < f->n_in && ok; i++) ok = zeros(a, &f->in[i], &in[c.n_in++]);
    rt_session *s = ok ? rt_session_new(m, mode, &e) : NULL;
    for (int i = 0; s && i < 2; i++) { /* the second run meets the states of the first */
        e = (err){0};
        if (rt_run(s, &c, &e) == (e.code != ERR_NONE)) abort();
    }
    rt_session_free(s);
    arena_free(a);
}

/* A model that verifies runs or fails with an error; it never crashes. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    err e = {0};
    rt_model *m = rt_model_open_memory(data, n, &e);
    if (!m == (e.code == ERR_NONE)) abort();
    const coreml_model *c = m ? rt_model_coreml(m) : NULL;
    for (size_t i = 0; c && i < c->n_func; i++) {
        run(m, &c->func[i], RT_STRICT);
        run(m, &c->func[i], RT_FAST);
    }
    rt_model_close(m);
    return 0;
}
