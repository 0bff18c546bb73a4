#include "check/side.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_TOKENS 16 /* preset single: tokens of a call */
#define MOST_SIZES   CONTRACT_MAX_FUNCTIONS

typedef struct {
    check_prefill *r;
    const lm *m;
    rt_mode mode;
    check_watch *w;
    size_t budget, fed; /* tokens; budget 0: no limit */
} prefilling;

/* Cost of a case: its tokens, twice. The first case always runs. */
static bool affordable(prefilling *p, size_t n) {
    if (p->budget && p->r->n && p->fed + 2 * n > p->budget) {
        p->r->skipped++;
        return false;
    }
    p->fed += 2 * n;
    return true;
}

/* The sizes of calls are those of functions, not any. */
static bool by_function(const contract *f) {
    return f->form == CONTRACT_CHUNKS || (f->n_func > 1 && f->func->tokens == 1 && !f->func->flexible);
}

/* Both ways from fresh states; the decoders stand behind the last token. */
static bool feed_both(prefilling *p, const int32_t *ids, size_t n, const int64_t *size, size_t n_size,
                      decoder *by_step, decoder *by_block, decoder_row *want, decoder_row *got, err *e) {
    const decoder_hooks h = {.keep_going = check_go, .ctx = p->w};
    const int64_t one = 1;
    bool chosen = by_function(&p->m->form);
    if (chosen && (!decoder_set_sizes(by_step, &one, 1, e) || !decoder_set_sizes(by_block, size, n_size, e)))
        return false;
    if (chosen)
        return decoder_feed(by_step, ids, n, &h, want, e) && decoder_feed(by_block, ids, n, &h, got, e);
    for (size_t i = 0; i < n; i++)
        if (!decoder_feed(by_step, ids + i, 1, &h, want, e)) return false;
    for (size_t i = 0, k = 0; i < n; k++) {
        size_t take = (size_t)size[k < n_size ? k : n_size - 1];
        if (take > n - i) take = n - i;
        if (!decoder_feed(by_block, ids + i, take, &h, got, e)) return false;
        i += take;
    }
    return true;
}

/* A cache [..., context, D]: what stands behind the tokens fed so far is seen by nobody, and padded calls
 * write there. Rows of D numbers that count, in each of the others. */
static size_t seen_rows(const ir_type *t, int64_t context, size_t tokens, size_t *rows) {
    *rows = t->rank > 1 ? (size_t)t->dim[t->rank - 2] : 1;
    return t->rank > 3 && t->dim[t->rank - 2] == context && tokens < *rows ? tokens : *rows;
}

static bool compare_state(check_prefill_case *c, const char *name, decoder *by_step, decoder *by_block,
                          err *e) {
    ir_type type;
    if (!decoder_state_type(by_step, name, &type, e)) return false;
    size_t n = (size_t)ir_type_count(&type);
    float *a = mem_try(n, 2 * sizeof *a), *b = a ? a + n : NULL;
    if (!a) return err_set(e, ERR_MEMORY, "no memory for two copies of state %s", name);
    bool ok = decoder_state_get(by_step, name, b, e) && decoder_state_get(by_block, name, a, e);
    double difference = 0, norm = 0;
    size_t width = type.rank ? (size_t)type.dim[type.rank - 1] : 1, rows;
    size_t seen = seen_rows(&type, decoder_lm(by_step)->form.context, c->tokens, &rows);
    for (size_t i = 0; ok && i < n; i++) {
        if (i / width % rows >= seen) continue;
        difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        norm += (double)b[i] * b[i];
    }
    mem_free(a);
    double error = norm > 0 ? sqrt(difference / norm) : difference > 0 ? INFINITY : 0;
    if (ok && (!c->state || error > c->state_error)) c->state = name, c->state_error = error;
    return ok;
}

static bool compare(check_prefill_case *c, decoder *by_step, decoder *by_block, const decoder_row *want,
                    const decoder_row *got, err *e) {
    row_result row;
    if (!row_compare(&row, want, got, e)) return false;
    c->want = row.want;
    c->got = row.got;
    c->margin = row.margin;
    c->kl = row.kl;
    c->error = row.error;
    for (size_t i = 0; i < decoder_state_count(by_step); i++)
        if (!compare_state(c, decoder_state_name(by_step, i), by_step, by_block, e)) return false;
    c->scores_ok = c->want == c->got || c->margin < CHECK_TIE;
    c->states_ok = c->state_error <= CHECK_STATE_ERROR;
    return true;
}

/* "4,16,1". */
static void print_sizes(char *out, size_t room, const int64_t *size, size_t n) {
    str s = {0};
    for (size_t i = 0; i < n; i++) str_printf(&s, "%s%" PRId64, i ? "," : "", size[i]);
    memcpy(out, str_get(&s), s.len < room ? s.len : room - 1);
    out[s.len < room ? s.len : room - 1] = 0;
    str_free(&s);
}

static bool run_case(prefilling *p, const char *name, const int32_t *ids, size_t n, const int64_t *size,
                     size_t n_size, err *e) {
    if (!n || n > (uint64_t)p->m->form.context || !affordable(p, n)) return true;
    check_prefill_case c = {.text = name, .tokens = n};
    print_sizes(c.sizes, sizeof c.sizes, size, n_size);
    decoder *by_step = decoder_new(p->m, p->mode, e),
            *by_block = by_step ? decoder_new(p->m, p->mode, e) : NULL;
    decoder_row want, got;
    bool ok = by_block && feed_both(p, ids, n, size, n_size, by_step, by_block, &want, &got, e) &&
              compare(&c, by_step, by_block, &want, &got, e) && check_step(p->w, 2 * n, e);
    if (ok) {
        check_prefill *r = p->r;
        r->test = mem_realloc(r->test, (r->n + 1) * sizeof *r->test);
        r->test[r->n++] = c;
        r->failed += !c.scores_ok || !c.states_ok;
        if (n > r->longest) r->longest = n;
    }
    decoder_free(by_step);
    decoder_free(by_block);
    return ok || err_where(e, "%s, %zu tokens in calls of %s", name, n, c.sizes);
}

/* Tokens of all texts, one behind the other; and one token again and again. */
typedef struct {
    int32_t *ids, *same;
    size_t n;
} material;

static material make_material(const check_texts *t, size_t n) {
    material m = {mem_alloc(n * sizeof *m.ids), mem_alloc(n * sizeof *m.same), n};
    for (size_t i = 0, text = 0, at = 0; i < n; i++) {
        m.ids[i] = t->text[text].ids[at];
        m.same[i] = t->text[0].ids[t->text[0].n / 2];
        if (++at >= t->text[text].n) at = 0, text = (text + 1) % t->n;
    }
    return m;
}

/* What matters most for one size: full calls and one that is padded or left to smaller ones; equal keys. */
static bool run_size(prefilling *p, const material *m, int64_t size, err *e) {
    size_t s = (size_t)size;
    return run_case(p, "mixed texts", m->ids, s + 1 <= m->n ? s + 1 : m->n, &size, 1, e) &&
           run_case(p, "one token", m->same, 2 * s <= m->n ? 2 * s : s, &size, 1, e);
}

/* Further lengths around it. */
static bool run_lengths(prefilling *p, const material *m, int64_t size, err *e) {
    size_t s = (size_t)size, n[] = {s, s > 1 ? s - 1 : 0, 2 * s + 1};
    for (size_t i = 0; i < sizeof n / sizeof *n; i++)
        if (!run_case(p, "mixed texts", m->ids, n[i] <= m->n ? n[i] : 0, &size, 1, e)) return false;
    return true;
}

static bool run_mixtures(prefilling *p, const material *m, const int64_t *size, size_t n, err *e) {
    int64_t falling[MOST_SIZES + 1], rising[MOST_SIZES + 1];
    size_t sum = 1;
    for (size_t i = 0; i < n; i++) {
        rising[i + 1] = falling[n - 1 - i] = size[i];
        sum += (size_t)size[i];
    }
    falling[n] = rising[0] = 1;
    return run_case(p, "mixed texts", m->ids, sum + 2 <= m->n ? sum + 2 : m->n, falling, n + 1, e) &&
           run_case(p, "mixed texts", m->ids, sum <= m->n ? sum : m->n, rising, n + 1, e) &&
           run_case(p, "one token", m->same, sum <= m->n ? sum : m->n, falling, n + 1, e);
}

/* Up to the end of the context, where only smaller functions fit. */
static bool run_long(prefilling *p, const material *m, const int64_t *size, size_t n, err *e) {
    int64_t falling[MOST_SIZES + 1];
    for (size_t i = 0; i < n; i++) falling[n - 1 - i] = size[i];
    return run_case(p, "mixed texts", m->ids, m->n, falling, n, e);
}

static bool run_all(prefilling *p, const check_texts *t, const int64_t *size, size_t n, err *e) {
    int64_t context = p->m->form.context;
    size_t longest = context > 1 && context < 1 << 20 ? (size_t)context - 1 : (size_t)(4 * size[n - 1]);
    material m = make_material(t, longest);
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++)
        if (size[i] <= context) ok = run_size(p, &m, size[i], e);
    ok = ok && run_mixtures(p, &m, size, n, e);
    for (size_t i = 0; ok && i < n; i++)
        if (size[i] <= context) ok = run_lengths(p, &m, size[i], e);
    ok = ok && run_long(p, &m, size, n, e);
    mem_free(m.ids);
    mem_free(m.same);
    return ok;
}

bool check_prefill_run(check_prefill *r, const lm *artifact, const check_texts *t, size_t budget,
                       rt_mode mode, check_watch *w, err *e) {
    *r = (check_prefill){0};
    prefilling p = {.r = r, .m = artifact, .mode = mode, .w = w, .budget = budget};
    const contract *f = &artifact->form;
    int64_t size[MOST_SIZES] = {BLOCK_TOKENS};
    size_t n = f->func->flexible;
    for (size_t i = 1; by_function(f) && i < f->n_func && n < MOST_SIZES; i++) size[n++] = f->func[i].tokens;
    check_phase(w, "prefill", budget);
    return !n || run_all(&p, t, size, n, e) || err_where(e, "prefill");
}

void check_prefill_free(check_prefill *r) {
    mem_free(r->test);
    *r = (check_prefill){0};
}
