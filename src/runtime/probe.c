#include "runtime/probe.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/num.h"
#include "runtime/profile.h"
#include "runtime/session.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_RUNS   5
#define MOST_RUNS    400
#define MOST_SECONDS 0.5

/* ---- made-up inputs ---- */

static void put(void *data, int64_t i, ir_dtype d, double x) {
    float f = (float)x;
    int64_t n = (int64_t)x;
    uint16_t h = num_f32_f16(f);
    unsigned bytes = dtype_bits(d) / 8;
    char *to = (char *)data + i * bytes;
    if (d == DT_FP32)
        memcpy(to, &f, sizeof f);
    else if (d == DT_FP16)
        memcpy(to, &h, sizeof h);
    else if (d == DT_FP64)
        memcpy(to, &x, sizeof x);
    else
        memcpy(to, &n, bytes); /* little-endian */
}

/* Row r of a mask sees what is not behind position + r; a column, one number for each position, chooses the
 * one at hand. */
static double mask_value(const ir_type *t, int64_t i, int64_t position) {
    int64_t columns = t->rank ? t->dim[t->rank - 1] : 1, rows = t->rank > 1 ? t->dim[t->rank - 2] : 1;
    if (columns == 1 && rows > 1) return i % rows == position;
    return i % columns <= position + i / columns % rows ? 0 : (double)-INFINITY;
}

/* The most integers that an input of the function is declared to have side by side: its tokens. */
static int64_t tokens_of(const coreml_function *f) {
    int64_t most = 1;
    for (size_t i = 0; i < f->n_in; i++) {
        const ir_type *t = &f->in[i].type;
        bool ints = t->rank && !f->in[i].other && !dtype_is_float((ir_dtype)t->dtype);
        if (ints && t->dim[t->rank - 1] > most) most = t->dim[t->rank - 1];
    }
    return most;
}

/* The size of an input, which may be open (then the declared one is the least): as many positions as tokens.
 */
static ir_type size_of(const coreml_feature *f, int64_t tokens) {
    ir_type t = f->type;
    int last = t.rank - 1;
    bool open = f->range && last >= 0 && f->range[last].lower != f->range[last].upper;
    if (open && !dtype_is_float((ir_dtype)t.dtype) && t.dim[last] < tokens &&
        (f->range[last].upper < 0 || tokens <= f->range[last].upper))
        t.dim[last] = tokens;
    return t;
}

static rt_tensor made_up(arena *a, const coreml_feature *f, int64_t tokens, int64_t position) {
    rt_tensor t = {f->name, size_of(f, tokens), NULL};
    int64_t n = ir_type_count(&t.type);
    ir_dtype d = (ir_dtype)f->type.dtype;
    bool mask = strstr(f->name, "mask");
    uint32_t seed = 1;
    void *data = arena_alloc(a, (size_t)ir_type_bytes(&t.type) + 8);
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        double random = (double)(seed >> 8) / (1 << 23) - 1;
        put(data, i, d,
            !dtype_is_float(d) ? (double)(position + i)
            : mask             ? mask_value(&t.type, i, position)
                               : random);
    }
    t.data = data;
    return t;
}

/* ---- what was measured ---- */

typedef struct {
    const char *name;
    uint64_t steps;
    double seconds; /* of the mean worker, a run */
    bool slow;
} kernel_row;

typedef struct {
    arena *a;
    kernel_row *row;
    size_t n, cap, steps;
    double all, slow, plain,
        call[2]; /* seconds; call: of a call without clocks in its steps, least and median */
} table;

static kernel_row *row_of(table *t, const char *name, bool slow) {
    for (size_t i = 0; i < t->n; i++)
        if (t->row[i].slow == slow && !strcmp(t->row[i].name, name)) return &t->row[i];
    t->row = arena_grow(t->a, t->row, t->n, &t->cap, t->n + 1, sizeof *t->row);
    t->row[t->n] = (kernel_row){.name = arena_str(t->a, name), .slow = slow};
    return &t->row[t->n++];
}

static void collect(void *ctx, const char *function, const plan_profile *m) {
    table *t = ctx;
    (void)function;
    for (size_t i = 0; i < plan_profile_steps(m); i++) {
        plan_step_info s = plan_profile_step(m, i);
        double seconds = plan_profile_least(m, i) / plan_profile_workers(m);
        kernel_row *r = row_of(t, s.slow ? arena_printf(t->a, "%s: %s", s.kernel, s.op) : s.kernel, s.slow);
        r->steps++, t->steps++;
        r->seconds += seconds, t->all += seconds;
        if (s.slow) t->slow += seconds;
        if (s.plain) t->plain += seconds;
    }
}

static void sort(table *t) {
    for (size_t i = 1; i < t->n; i++)
        for (size_t k = i; k > 0 && t->row[k - 1].seconds < t->row[k].seconds; k--) {
            kernel_row r = t->row[k];
            t->row[k] = t->row[k - 1], t->row[k - 1] = r;
        }
}

static void print(str *out, table *t, const char *function) {
    if (!t->steps) {
        str_printf(out, "profile of %s: no plan, the evaluator runs it: without a fast path 100 %%\n",
                   function);
        return;
    }
    size_t slow = 0;
    for (size_t i = 0; i < t->n; i++) slow += t->row[i].slow ? t->row[i].steps : 0;
    double all = t->all > 0 ? t->all : 1;
    str_printf(
        out,
        "profile of %s: %.4f ms a call (median %.4f), %.4f ms in %zu steps; without a fast path %.1f %% "
        "(%zu steps), in plain loops %.1f %%\n",
        function, t->call[0] * 1e3, t->call[1] * 1e3, t->all * 1e3, t->steps, 100 * t->slow / all, slow,
        100 * t->plain / all);
    sort(t);
    for (size_t i = 0; i < t->n; i++)
        str_printf(out, "  %c %5.1f %% %10.4f ms %6llu  %s\n", t->row[i].slow ? '!' : ' ',
                   100 * t->row[i].seconds / all, t->row[i].seconds * 1e3,
                   (unsigned long long)t->row[i].steps, t->row[i].name);
}

/* ---- runs ---- */

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* took: seconds of each run, MOST_RUNS of them at most; n: how many. */
static bool run_often(rt_session *s, rt_call *c, double *took, size_t *n, err *e) {
    double begin = clock_seconds(), at = begin;
    for (*n = 0; *n < MOST_RUNS && (*n < LEAST_RUNS || at < begin + MOST_SECONDS); ++*n) {
        if (!rt_run(s, c, e)) return false;
        double now = clock_seconds();
        took[*n] = now - at;
        at = now;
    }
    return true;
}

/* Once to make the plan, then with nothing in the way, then with clocks around steps. */
static bool measure(rt_session *s, rt_call *c, table *t, err *e) {
    double took[MOST_RUNS];
    size_t n;
    if (!rt_run(s, c, e) || !run_often(s, c, took, &n, e)) return false;
    qsort(took, n, sizeof *took, by_size);
    t->call[0] = took[0], t->call[1] = took[n / 2];
    rt_session_profile(s, true);
    if (!run_often(s, c, took, &n, e)) return false;
    rt_session_profiles(s, collect, t);
    return true;
}

static bool probe(str *out, const rt_model *m, const coreml_function *f, int64_t position, err *e) {
    arena *a = arena_new();
    rt_call c = {.function = f->name, .in = NULL, .out = ARENA_ARRAY(a, rt_tensor, f->n_out + 1)};
    rt_tensor *in = ARENA_ARRAY(a, rt_tensor, f->n_in + 1);
    for (size_t i = 0; i < f->n_in; i++)
        if (!f->in[i].optional && !f->in[i].other && ir_type_count(&f->in[i].type) > 0)
            in[c.n_in++] = made_up(a, &f->in[i], tokens_of(f), position);
    c.in = in;
    rt_session *s = rt_session_new(m, RT_FAST, e);
    table t = {.a = a};
    bool ok = s && measure(s, &c, &t, e);
    if (ok) print(out, &t, f->name);
    if (s) rt_session_free(s);
    arena_free(a);
    return ok || err_where(e, "function %s", f->name);
}

bool rt_probe(str *out, const rt_model *m, int64_t position, err *e) {
    const coreml_model *c = rt_model_coreml(m);
    for (size_t i = 0; i < c->n_func; i++)
        if (!probe(out, m, &c->func[i], position, e)) return false;
    return true;
}
