#include "generate/decoder.h"
#include "base/num.h"
#include "coreml/embedding.h"
#include "generate/cover.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Tokens of one call of the single form: enough to pay for reading the weights, few enough to bound memory
 * (the mask and the scores are block * positions). */
#define MAX_BLOCK 64

/* Memory that grows. */
typedef struct {
    void *p;
    size_t bytes;
} room;

struct decoder {
    const lm *m;
    rt_mode mode;
    rt_session **s;              /* one a package */
    const contract_function *fn; /* of the last call */
    rt_tensor *out;              /* outputs of the package that ran last */
    int32_t *past;               /* tokens fed so far */
    int64_t position, cap_past;
    room input;          /* chunks: table rows; single: the mask */
    room handed, shown;  /* hidden_out in the next package's type; as floats, for a hook */
    float *row;          /* a row of scores that had to be converted or put together */
    const float *logits; /* chunks: of the last call */
    /* what the next calls are */
    room choice;   /* by tokens left: index of the function */
    int64_t *size; /* forced sizes; NULL: as choice says */
    size_t n_size, at_size;
};

/* Scores of one token. */
static size_t row_size(const lm *m) {
    return (size_t)(m->form.top_k ? m->form.top_k : m->form.vocab);
}

decoder *decoder_new(const lm *m, rt_mode mode, err *e) {
    decoder *d = mem_alloc(sizeof *d);
    *d = (decoder){.m = m, .mode = mode};
    d->s = mem_try(m->n_model, sizeof *d->s);
    size_t n_out = 0;
    for (size_t f = 0; f < m->form.n_func; f++)
        for (size_t i = 0; i < m->n_model; i++)
            if (m->form.func[f].stage[i].n_out > n_out) n_out = m->form.func[f].stage[i].n_out;
    d->out = mem_alloc(n_out * sizeof *d->out);
    d->row = mem_try(row_size(m), sizeof *d->row);
    bool ok = (d->s && d->row) || err_set(e, ERR_MEMORY, "no memory for a row of %zu scores", row_size(m));
    for (size_t i = 0; ok && i < m->n_model; i++)
        ok = (d->s[i] = rt_session_new(m->model[i], mode, e)) != NULL;
    if (ok) return d;
    decoder_free(d);
    return NULL;
}

void decoder_free(decoder *d) {
    if (!d) return;
    for (size_t i = 0; d->s && i < d->m->n_model; i++) rt_session_free(d->s[i]);
    free(d->s);
    free(d->out);
    free(d->past);
    free(d->input.p);
    free(d->handed.p);
    free(d->shown.p);
    free(d->row);
    free(d->choice.p);
    free(d->size);
    free(d);
}

const lm *decoder_lm(const decoder *d) {
    return d->m;
}

rt_session *decoder_session(const decoder *d, size_t package) {
    return d->s[package];
}

int64_t decoder_position(const decoder *d) {
    return d->position;
}

const int32_t *decoder_fed(const decoder *d) {
    return d->past;
}

void decoder_restart(decoder *d) {
    for (size_t i = 0; i < d->m->n_model; i++) rt_state_reset(d->s[i]);
    d->position = 0;
}

static bool have_room(room *r, size_t count, size_t size, err *e) {
    if (count * size <= r->bytes) return true;
    free(r->p);
    r->p = mem_try(count, size);
    r->bytes = r->p ? count * size : 0;
    return r->p || err_set(e, ERR_MEMORY, "no memory for %zu elements of an input", count);
}

/* ---- one call ---- */

/* A call under way. */
typedef struct {
    rt_session *const *s; /* the decoder's, or fresh ones */
    const int32_t *ids;
    size_t n; /* tokens */
    int64_t position;
    size_t first; /* index of the first token in the feed */
    const decoder_hooks *h;
    bool row;  /* its last row will be looked at */
    bool find; /* look for the first op that makes a NaN or infinity */
} call;

static bool run(decoder *d, const call *c, size_t package, const rt_tensor *in, size_t n_in, err *e) {
    rt_call r = {.function = d->fn->stage[package].function,
                 .in = in,
                 .n_in = n_in,
                 .out = d->out,
                 .find_nonfinite = c->find,
                 .cancel = c->h ? c->h->cancel : NULL};
    return rt_run(c->s[package], &r, e) || (d->m->n_model > 1 && err_where(e, "%s", d->m->name[package]));
}

/* Rows of the table, and zeros for what a prefill function takes beyond n tokens. */
static bool table_rows(decoder *d, const call *c, rt_tensor *hidden, err *e) {
    const contract *f = &d->m->form;
    size_t h = (size_t)f->hidden, all = (size_t)d->fn->tokens * h;
    if (!have_room(&d->input, all, sizeof(float) + sizeof(uint16_t), e)) return false;
    float *row = d->input.p;
    uint16_t *half = (void *)(row + all);
    memset(row, 0, all * sizeof *row);
    for (size_t t = 0; t < c->n; t++)
        if (!embedding_row(d->m->table, c->ids[t], row + t * h))
            return err_set(e, ERR_USAGE, "the embedding table has no row %d", c->ids[t]);
    if (f->input_type == DT_FP16) num_f32_to_f16(half, row, all);
    *hidden = (rt_tensor){"hidden", d->fn->stage[0].in, f->input_type == DT_FP16 ? (const void *)half : row};
    return true;
}

/* The values of a float tensor in another type: where it has that type, its own bytes. */
static const void *as_type(room *r, const rt_tensor *t, ir_dtype to, err *e) {
    size_t n = (size_t)ir_type_count(&t->type);
    if (t->type.dtype == to) return t->data;
    if (!have_room(r, n, sizeof(float), e)) return NULL;
    if (to == DT_FP16)
        num_f32_to_f16(r->p, t->data, n);
    else
        num_f16_to_f32(r->p, t->data, n);
    return r->p;
}

static bool show_handed(decoder *d, const call *c, size_t i, const rt_tensor *t, err *e) {
    if (!c->h || !c->h->handed) return true;
    const float *x = as_type(&d->shown, t, DT_FP32, e);
    if (!x) return false;
    bool last = t->type.dim[1] < d->fn->tokens; /* the last token's only */
    size_t tokens = last ? 1 : c->n, first = last ? c->first + c->n - 1 : c->first;
    c->h->handed(c->h->ctx, i, first, tokens, x, tokens * (size_t)t->type.dim[2]);
    return true;
}

/* A piece of the row of logits, behind the at that are there. */
static void take_logits(decoder *d, const rt_tensor *t, size_t *at) {
    size_t n = (size_t)ir_type_count(&t->type);
    bool half = t->type.dtype == DT_FP16, whole = n == row_size(d->m) && !half;
    if (half)
        num_f16_to_f32(d->row + *at, t->data, n);
    else if (!whole)
        memcpy(d->row + *at, t->data, n * sizeof *d->row);
    d->logits = whole ? t->data : d->row;
    *at += n;
}

/* The packages in turn. hidden: what the next one takes, in whatever float type it is there. */
static bool run_chunks(decoder *d, const call *c, err *e) {
    int32_t at = (int32_t)c->position, valid = (int32_t)c->n;
    rt_tensor hidden, in[3];
    size_t filled = 0;
    if (!table_rows(d, c, &hidden, e)) return false;
    size_t n_run = c->row || !d->m->form.heads ? d->m->n_model : d->m->form.n_layers;
    for (size_t i = 0; i < n_run; i++) {
        const contract_stage *g = &d->fn->stage[i];
        size_t n = 1;
        in[0] = (rt_tensor){"hidden", g->in, as_type(&d->handed, &hidden, g->in.dtype, e)};
        if (g->position) in[n++] = (rt_tensor){"current_pos", IR_TYPE(DT_INT32, 1), &at};
        if (g->valid) in[n++] = (rt_tensor){"valid_length", IR_TYPE(DT_INT32, 1), &valid};
        if (!in[0].data || !run(d, c, i, in, n, e)) return false;
        const rt_tensor *out = &d->out[g->at];
        if (!ir_type_equal(&out->type, &g->out))
            return err_set(e, ERR_INVALID, "%s: function %s: output %s has another shape than is declared",
                           d->m->name[i], g->function, out->name);
        if (g->logits)
            take_logits(d, out, &filled);
        else if (hidden = *out, !show_handed(d, c, i, out, e))
            return false;
    }
    return true;
}

/* causal_mask [1,1,n,position + n]: row t sees the columns up to position + t. */
static bool make_mask(decoder *d, size_t n, size_t position, err *e) {
    size_t k = position + n;
    bool half = d->m->form.input_type == DT_FP16;
    if (!have_room(&d->input, n * k, sizeof(float), e)) return false;
    for (size_t t = 0; t < n; t++)
        for (size_t j = 0; j < k; j++) {
            bool hidden = j > position + t;
            if (half)
                ((uint16_t *)d->input.p)[t * k + j] = hidden ? 0xFBFF : 0; /* -65504 */
            else
                ((float *)d->input.p)[t * k + j] = hidden ? -65504.0f : 0.0f;
        }
    return true;
}

static bool run_single(decoder *d, const call *c, err *e) {
    if (!make_mask(d, c->n, (size_t)c->position, e)) return false;
    int64_t t = (int64_t)c->n;
    const rt_tensor in[2] = {
        {"input_ids", IR_TYPE(DT_INT32, 1, t), c->ids},
        {"causal_mask", IR_TYPE(d->m->form.input_type, 1, 1, t, c->position + t), d->input.p}};
    return run(d, c, 0, in, 2, e);
}

static bool step(decoder *d, const call *c, err *e) {
    return d->m->form.form == CONTRACT_CHUNKS ? run_chunks(d, c, e) : run_single(d, c, e);
}

/* ---- which call ---- */

bool decoder_set_sizes(decoder *d, const int64_t *sizes, size_t n, err *e) {
    const contract *f = &d->m->form;
    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        while (k < f->n_func && f->func[k].tokens != sizes[i]) k++;
        if (f->form == CONTRACT_SINGLE ? sizes[i] < 1 || sizes[i] > f->func->tokens : k == f->n_func)
            return err_set(e, ERR_USAGE, "no function takes %" PRId64 " tokens a call", sizes[i]);
    }
    free(d->size);
    d->size = n ? mem_alloc(n * sizeof *sizes) : NULL;
    if (n) memcpy(d->size, sizes, n * sizeof *sizes);
    d->n_size = n;
    d->at_size = 0;
    return true;
}

/* The largest function of at most `most` tokens that ends within the context; there is one for one token. */
static const contract_function *function_for(const decoder *d, int64_t most, int64_t position) {
    const contract *f = &d->m->form;
    size_t i = f->n_func - 1;
    while (i && (f->func[i].tokens > most || f->func[i].tokens > f->context - position)) i--;
    return &f->func[i];
}

/* Decides on calls for n tokens from position on. */
static bool plan(decoder *d, size_t n, int64_t position, bool every, err *e) {
    const contract *f = &d->m->form;
    if (d->size || every || n == 1 || f->n_func == 1) return true;
    int64_t size[CONTRACT_MAX_FUNCTIONS];
    for (size_t i = 0; i < f->n_func; i++) size[i] = f->func[i].tokens;
    return have_room(&d->choice, n + 1, 1, e) &&
           cover_plan(size, f->n_func, n, f->context - position, d->choice.p, e);
}

/* How many of n tokens that are left at position the next call takes, and of which function. */
static size_t next_call(decoder *d, size_t n, int64_t position, bool every) {
    const contract *f = &d->m->form;
    d->fn = f->func;
    int64_t most = f->form == CONTRACT_SINGLE && f->func->tokens > MAX_BLOCK ? MAX_BLOCK : f->func->tokens;
    if (d->size) {
        most = d->size[d->at_size];
        if (d->at_size + 1 < d->n_size) d->at_size++;
    }
    if (f->form == CONTRACT_CHUNKS) {
        if (d->size)
            d->fn = function_for(d, most, position);
        else if (!every && n > 1 && f->n_func > 1)
            d->fn = &f->func[((const uint8_t *)d->choice.p)[n]];
        most = d->fn->tokens;
    }
    return n < (uint64_t)most ? n : (size_t)most;
}

/* ---- rows ---- */

static bool check_ids(const decoder *d, const decoder_row *r, err *e) {
    for (size_t i = 0; i < r->n; i++)
        if (r->id[i] < 0 || (d->m->vocab && r->id[i] >= d->m->vocab))
            return err_set(e, ERR_INVALID,
                           "%s: topk_ids holds %d, which is not below the vocabulary size %" PRId64,
                           d->fn->name, r->id[i], d->m->vocab);
    return true;
}

/* The scores behind token t of the last call; of a prefill function, of its last one. */
static bool get_row(decoder *d, size_t t, decoder_row *r, err *e) {
    const contract *f = &d->m->form;
    size_t n = row_size(d->m);
    *r = (decoder_row){.n = n, .score = d->logits};
    if (f->form == CONTRACT_CHUNKS) return true;
    const rt_tensor *o = &d->out[d->fn->stage->at], *ids = &d->out[f->ids];
    int64_t count = ir_type_count(&o->type);
    if (count < 0 || (uint64_t)count < (t + 1) * n)
        return err_set(e, ERR_INVALID, "%s: output %s has %" PRId64 " elements, not %zu a token", f->function,
                       o->name, count, n);
    if (o->type.dtype == DT_FP16) {
        num_f16_to_f32(d->row, (const uint16_t *)o->data + t * n, n);
        r->score = d->row;
    } else {
        r->score = (const float *)o->data + t * n;
    }
    if (!f->top_k) return true;
    if (ir_type_count(&ids->type) != count)
        return err_set(e, ERR_INVALID, "%s: outputs %s and %s differ in size", f->function, o->name,
                       ids->name);
    r->id = (const int32_t *)ids->data + t * n;
    return check_ids(d, r, e);
}

static bool finite_row(const decoder_row *r) {
    float bad[16] = {0}, all = 0; /* NaN once a score is not finite; many sums, not to wait for each */
    size_t i = 0;
    for (; i + 16 <= r->n; i += 16)
        for (size_t k = 0; k < 16; k++) bad[k] += r->score[i + k] * 0.0f;
    for (; i < r->n; i++) all += r->score[i] * 0.0f;
    for (size_t k = 0; k < 16; k++) all += bad[k];
    return all == 0;
}

/* Runs the n tokens of past again, looking at every op. False with the error once one makes a NaN or
 * infinity.
 */
static bool replay(decoder *d, rt_session *const *s, size_t n, bool every, err *e) {
    d->at_size = 0;
    if (!plan(d, n, 0, every, e)) return false;
    for (size_t at = 0, b; at < n; at += b) {
        b = next_call(d, n - at, (int64_t)at, every);
        const call c = {
            .s = s, .ids = d->past + at, .n = b, .position = (int64_t)at, .row = true, .find = true};
        if (step(d, &c, e)) continue;
        if (b > 1) return err_where(e, "tokens %zu to %zu", at, at + b - 1);
        return err_where(e, "token %zu (id %d)", at, d->past[at]);
    }
    return true;
}

/* Names what made a row non-finite, from fresh states. Always sets the error. */
static void explain(decoder *d, int64_t position, bool every, err *e) {
    size_t n = d->m->n_model;
    rt_session **s = mem_alloc(n * sizeof *s);
    bool ok = true;
    for (size_t i = 0; i < n; i++) ok &= (s[i] = rt_session_new(d->m->model[i], d->mode, e)) != NULL;
    if (ok && replay(d, s, (size_t)position, every, e))
        err_set(e, ERR_NUMERIC,
                "the scores behind token %" PRId64
                " (id %d) are not finite, but no op made a NaN or infinity from finite "
                "operands: look for one among the weights",
                position - 1, d->past[position - 1]);
    for (size_t i = 0; i < n; i++) rt_session_free(s[i]);
    free(s);
}

/* ---- feeding ---- */

bool decoder_check(const decoder *d, const int32_t *ids, size_t n, err *e) {
    if (!n) return err_set(e, ERR_USAGE, "no tokens");
    if (n > (uint64_t)(d->m->form.context - d->position))
        return err_set(e, ERR_LIMIT,
                       "%zu tokens do not fit: %" PRId64 " of the context's %" PRId64 " positions are free",
                       n, d->m->form.context - d->position, d->m->form.context);
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || (d->m->vocab && ids[i] >= d->m->vocab))
            return err_set(e, ERR_USAGE,
                           "token id %d at index %zu is outside the vocabulary (0 to %" PRId64 ")", ids[i], i,
                           d->m->vocab ? d->m->vocab - 1 : INT32_MAX);
    return true;
}

static bool remember(decoder *d, const int32_t *ids, size_t n, err *e) {
    int64_t need = d->position + (int64_t)n;
    if (need > d->cap_past) {
        int64_t cap = need + need / 2 + 64;
        int32_t *more = realloc(d->past, (size_t)cap * sizeof *more);
        if (!more) return err_set(e, ERR_MEMORY, "no memory for %" PRId64 " tokens", cap);
        d->past = more;
        d->cap_past = cap;
    }
    memcpy(d->past + d->position, ids, n * sizeof *ids);
    return true;
}

/* Looks at row t of the last call, whose first token stands at d->position. */
static bool visit(decoder *d, size_t t, size_t index, const decoder_hooks *h, decoder_row *last, err *e) {
    decoder_row r;
    if (!get_row(d, t, &r, e)) return false;
    if (!finite_row(&r)) {
        explain(d, d->position + (int64_t)t + 1, h && h->row, e);
        return false;
    }
    if (last) *last = r;
    return !h || !h->row || h->row(h->ctx, index, &r, e) || err_set(e, ERR_CANCELLED, "cancelled");
}

bool decoder_feed(decoder *d, const int32_t *ids, size_t n, const decoder_hooks *h, decoder_row *last,
                  err *e) {
    bool all = h && h->row;
    if (!decoder_check(d, ids, n, e) || !remember(d, ids, n, e) || !plan(d, n, d->position, all, e))
        return false;
    for (size_t done = 0, b; done < n; done += b) {
        if (h && h->keep_going && !h->keep_going(h->ctx)) return err_set(e, ERR_CANCELLED, "cancelled");
        b = next_call(d, n - done, d->position, all);
        bool each = all && d->m->form.form == CONTRACT_SINGLE, row = all || done + b == n;
        const call c = {
            .s = d->s, .ids = ids + done, .n = b, .position = d->position, .first = done, .h = h, .row = row};
        if (!step(d, &c, e)) return false;
        size_t first = each ? 0 : row ? b - 1 : b; /* rows of interest */
        for (size_t t = first; t < b; t++)
            if (!visit(d, t, done + t, h, last, e)) return false;
        d->position += (int64_t)b;
    }
    return true;
}

/* ---- standing where another decoder stands ---- */

bool decoder_seed(decoder *d, decoder *from, err *e) {
    if (from->position > d->m->form.context)
        return err_set(e, ERR_INVALID, "%" PRId64 " tokens were fed; the context has %" PRId64 " positions",
                       from->position, d->m->form.context);
    for (size_t i = 0; i < decoder_state_count(d); i++) {
        const char *name = decoder_state_name(d, i);
        ir_type to, is;
        if (!decoder_state_type(d, name, &to, e) || !decoder_state_type(from, name, &is, e)) return false;
        if (is.rank != to.rank || memcmp(is.dim, to.dim, (size_t)to.rank * sizeof *to.dim))
            return err_set(e, ERR_INVALID, "state %s has another shape in the other artifact", name);
        float *x = mem_try((size_t)ir_type_count(&to), sizeof *x);
        bool ok = (x || err_set(e, ERR_MEMORY, "no memory for a copy of state %s", name)) &&
                  decoder_state_get(from, name, x, e) && decoder_state_set(d, name, x, e);
        free(x);
        if (!ok) return false;
    }
    d->position = 0;
    if (from->position && !remember(d, from->past, (size_t)from->position, e)) return false;
    d->position = from->position;
    return true;
}
