#include "generate/decoder.h"
#include "base/num.h"
#include "coreml/embedding.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Tokens of one call of the single form: enough to pay for reading the weights, few enough to bound memory
 * (the mask and the scores are block * positions). */
#define MAX_BLOCK 64

struct decoder {
    const lm *m;
    rt_mode mode;
    rt_session *s;
    rt_tensor *out;                  /* the outputs of the last call */
    const contract_prefill *prefill; /* of the last call; NULL: the contract's own function */
    int32_t *past;                   /* tokens fed so far */
    int64_t position, cap_past;
    void *input; /* chunks: a table row; single: the mask */
    size_t cap_input;
    float *row; /* scores of one row when the package returns fp16 */
};

decoder *decoder_new(const lm *m, rt_mode mode, err *e) {
    decoder *d = mem_alloc(sizeof *d);
    *d = (decoder){.m = m, .mode = mode};
    d->s = rt_session_new(m->model, mode, e);
    size_t n_out = m->form.n_out;
    for (size_t i = 0; i < m->form.n_prefill; i++)
        if (m->form.prefill[i].n_out > n_out) n_out = m->form.prefill[i].n_out;
    d->out = mem_alloc(n_out * sizeof *d->out);
    int64_t n = m->form.top_k ? m->form.top_k : m->form.vocab;
    d->row = d->s ? mem_try((size_t)n, sizeof *d->row) : NULL;
    if (d->row) return d;
    err_set(e, ERR_MEMORY, "no memory for a row of %" PRId64 " scores", n);
    decoder_free(d);
    return NULL;
}

void decoder_free(decoder *d) {
    if (!d) return;
    rt_session_free(d->s);
    free(d->out);
    free(d->past);
    free(d->input);
    free(d->row);
    free(d);
}

rt_session *decoder_session(const decoder *d) {
    return d->s;
}

int64_t decoder_position(const decoder *d) {
    return d->position;
}

static bool input_room(decoder *d, size_t count, size_t size, err *e) {
    if (count * size <= d->cap_input) return true;
    free(d->input);
    d->input = mem_try(count, size);
    d->cap_input = d->input ? count * size : 0;
    return d->input || err_set(e, ERR_MEMORY, "no memory for an input of %zu elements", count);
}

static bool run(decoder *d, rt_session *s, const rt_tensor *in, bool find, err *e) {
    rt_call c = {.function = d->prefill ? d->prefill->function : d->m->form.function,
                 .in = in,
                 .n_in = d->prefill ? 3 : 2,
                 .out = d->out,
                 .find_nonfinite = find};
    return rt_run(s, &c, e);
}

/* Rows of the table, and zeros for what a prefill function takes beyond n tokens. */
static bool run_chunks(decoder *d, rt_session *s, const int32_t *ids, size_t n, int64_t position, bool find,
                       err *e) {
    const contract *f = &d->m->form;
    int64_t tokens = d->prefill ? d->prefill->tokens : 1;
    size_t h = (size_t)f->hidden, all = (size_t)tokens * h;
    if (!input_room(d, all, sizeof(float) + sizeof(uint16_t), e)) return false;
    float *row = d->input;
    void *hidden = row;
    memset(row, 0, all * sizeof *row);
    for (size_t t = 0; t < n; t++)
        if (!embedding_row(d->m->table, ids[t], row + t * h))
            return err_set(e, ERR_USAGE, "the embedding table has no row %d", ids[t]);
    if (f->input_type == DT_FP16) num_f32_to_f16(hidden = row + all, row, all);
    int32_t at = (int32_t)position, valid = (int32_t)n;
    const rt_tensor in[3] = {{"hidden", IR_TYPE(f->input_type, 1, tokens, f->hidden), hidden},
                             {"current_pos", IR_TYPE(DT_INT32, 1), &at},
                             {"valid_length", IR_TYPE(DT_INT32, 1), &valid}};
    return run(d, s, in, find, e);
}

/* causal_mask [1,1,n,position + n]: row t sees the columns up to position + t. */
static bool make_mask(decoder *d, size_t n, size_t position, err *e) {
    size_t k = position + n;
    bool half = d->m->form.input_type == DT_FP16;
    if (!input_room(d, n * k, sizeof(float), e)) return false;
    for (size_t t = 0; t < n; t++)
        for (size_t j = 0; j < k; j++) {
            bool hidden = j > position + t;
            if (half)
                ((uint16_t *)d->input)[t * k + j] = hidden ? 0xFBFF : 0; /* -65504 */
            else
                ((float *)d->input)[t * k + j] = hidden ? -65504.0f : 0.0f;
        }
    return true;
}

static bool run_single(decoder *d, rt_session *s, const int32_t *ids, size_t n, int64_t position, bool find,
                       err *e) {
    if (!make_mask(d, n, (size_t)position, e)) return false;
    int64_t t = (int64_t)n;
    const rt_tensor in[2] = {
        {"input_ids", IR_TYPE(DT_INT32, 1, t), ids},
        {"causal_mask", IR_TYPE(d->m->form.input_type, 1, 1, t, position + t), d->input}};
    return run(d, s, in, find, e);
}

/* The prefill function for the next of n tokens at position: the largest one that they fill at least half of
 * and that ends within the context; NULL: none. What it writes to the caches behind its n tokens is seen by
 * no token before those that come next have overwritten it. */
static const contract_prefill *choose_prefill(const decoder *d, size_t n, int64_t position) {
    const contract *f = &d->m->form;
    for (size_t i = f->n_prefill; n > 1 && i-- > 0;)
        if ((uint64_t)f->prefill[i].tokens <= 2 * (uint64_t)n &&
            f->prefill[i].tokens <= f->context - position)
            return &f->prefill[i];
    return NULL;
}

/* How many of the n tokens that start at position the next call takes, and of which function. every: the rows
 * behind all tokens are wanted, and prefill functions give only the last one. */
static size_t block(decoder *d, size_t n, int64_t position, bool every) {
    d->prefill = every ? NULL : choose_prefill(d, n, position);
    int64_t most = d->prefill ? d->prefill->tokens : d->m->form.block;
    if (!d->prefill && most > MAX_BLOCK) most = MAX_BLOCK;
    return n < (uint64_t)most ? n : (size_t)most;
}

static bool step(decoder *d, rt_session *s, const int32_t *ids, size_t n, int64_t position, bool find,
                 err *e) {
    return d->m->form.form == CONTRACT_CHUNKS ? run_chunks(d, s, ids, n, position, find, e)
                                              : run_single(d, s, ids, n, position, find, e);
}

/* The scores behind token t of the last call. */
static bool get_row(decoder *d, size_t t, decoder_row *r, err *e) {
    const contract *f = &d->m->form;
    size_t n = (size_t)(f->top_k ? f->top_k : f->vocab);
    const rt_tensor *o = &d->out[f->top_k ? f->values : d->prefill ? d->prefill->logits : f->logits];
    if (d->prefill) t = 0; /* the only row, that of the last token */
    int64_t count = ir_type_count(&o->type);
    if (count < 0 || (uint64_t)count < (t + 1) * n)
        return err_set(e, ERR_INVALID, "%s: output %s has %" PRId64 " elements, not %zu a token", f->function,
                       o->name, count, n);
    *r = (decoder_row){.n = n};
    if (o->type.dtype == DT_FP16) {
        num_f16_to_f32(d->row, (const uint16_t *)o->data + t * n, n);
        r->score = d->row;
    } else {
        r->score = (const float *)o->data + t * n;
    }
    if (!f->top_k) return true;
    if (ir_type_count(&d->out[f->ids].type) != count)
        return err_set(e, ERR_INVALID, "%s: outputs %s and %s differ in size", f->function, o->name,
                       d->out[f->ids].name);
    r->id = (const int32_t *)d->out[f->ids].data + t * n;
    for (size_t i = 0; i < n; i++)
        if (r->id[i] < 0 || (d->m->vocab && r->id[i] >= d->m->vocab))
            return err_set(e, ERR_INVALID,
                           "%s: topk_ids holds %d, which is not below the vocabulary size %" PRId64,
                           f->function, r->id[i], d->m->vocab);
    return true;
}

static bool finite_row(const decoder_row *r) {
    float bad = 0;
    for (size_t i = 0; i < r->n; i++) bad += r->score[i] * 0.0f; /* NaN once one is not finite */
    return bad == 0;
}

/* Runs everything up to position again from fresh states, looking at every op. Always sets the error. */
static void explain(decoder *d, int64_t position, bool every, err *e) {
    rt_session *s = rt_session_new(d->m->model, d->mode, e);
    for (int64_t at = 0; s && at < position;) {
        size_t n = block(d, (size_t)(position - at), at, every);
        if (!step(d, s, d->past + at, n, at, true, e)) {
            if (d->prefill)
                err_where(e, "tokens %" PRId64 " to %" PRId64, at, at + (int64_t)n - 1);
            else
                err_where(e, "token %" PRId64 " (id %d)", at, d->past[at]);
            break;
        }
        at += (int64_t)n;
    }
    rt_session_free(s);
    err_set(e, ERR_NUMERIC,
            "the scores behind token %" PRId64
            " (id %d) are not finite, but no op made a NaN or infinity from finite "
            "operands: look for one among the weights",
            position - 1, d->past[position - 1]);
}

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
    if (!h || !h->row || h->row(h->ctx, index, &r, e)) return true;
    return err_set(e, ERR_CANCELLED, "stopped");
}

bool decoder_feed(decoder *d, const int32_t *ids, size_t n, const decoder_hooks *h, decoder_row *last,
                  err *e) {
    if (!decoder_check(d, ids, n, e) || !remember(d, ids, n, e)) return false;
    bool all = h && h->row;
    for (size_t done = 0; done < n;) {
        if (h && h->keep_going && !h->keep_going(h->ctx)) return err_set(e, ERR_CANCELLED, "stopped");
        size_t b = block(d, n - done, d->position, all);
        if (!step(d, d->s, ids + done, b, d->position, false, e)) return false;
        size_t first = all ? 0 : done + b == n ? b - 1 : b; /* rows of interest */
        for (size_t t = first; t < b; t++)
            if (!visit(d, t, done + t, h, last, e)) return false;
        d->position += (int64_t)b;
        done += b;
    }
    return true;
}
