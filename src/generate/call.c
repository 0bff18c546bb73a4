#include "generate/call.h"
#include "base/num.h"
#include "coreml/embedding.h"
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool room_for(room *r, size_t count, size_t size, err *e) {
    size_t bytes;
    if (!__builtin_mul_overflow(count, size, &bytes) && bytes <= r->bytes) return true;
    mem_free(r->p);
    r->p = mem_try(count, size);
    r->bytes = r->p ? bytes : 0;
    return r->p || err_set(e, ERR_MEMORY, "no memory for %zu elements of an input", count);
}

/* ---- timelines ---- */

/* States of equal name in several packages become one. */
static bool share_states(const timeline *l, const lm *m, err *e) {
    for (size_t i = 1; i < m->n_model; i++)
        for (size_t k = 0; k < rt_state_count(l->s[i]); k++) {
            const char *name = rt_state_name(l->s[i], k);
            size_t from = 0, at = 0;
            for (; from < i; from++) {
                for (at = 0; at < rt_state_count(l->s[from]); at++)
                    if (!strcmp(rt_state_name(l->s[from], at), name)) break;
                if (at < rt_state_count(l->s[from])) break;
            }
            if (from < i && !rt_state_bind(l->s[i], l->s[from], name, e)) return false;
        }
    return true;
}

bool timeline_new(timeline *l, const lm *m, rt_mode mode, err *e) {
    *l = (timeline){.s = mem_alloc(m->n_model * sizeof *l->s),
                    .carried = mem_alloc((m->form.n_carried + 1) * sizeof *l->carried)};
    memset(l->s, 0, m->n_model * sizeof *l->s);
    memset(l->carried, 0, m->form.n_carried * sizeof *l->carried);
    bool ok = true;
    for (size_t i = 0; ok && i < m->n_model; i++)
        ok = (l->s[i] = rt_session_new(m->model[i], mode, e)) != NULL;
    for (size_t i = 1; ok && i < m->n_model; i++) rt_session_share(l->s[i], l->s[0]);
    for (size_t i = 0; ok && i < m->form.n_carried; i++) {
        l->carried[i] = mem_try((size_t)ir_type_bytes(&m->form.carried[i].type), 1); /* zeroed */
        ok = l->carried[i] || err_set(e, ERR_MEMORY, "no memory for state %s", m->form.carried[i].name);
    }
    return ok && (m->form.d->states != STATES_SHARED || share_states(l, m, e));
}

void timeline_reset(timeline *l, const lm *m) {
    for (size_t i = 0; i < m->n_model; i++) rt_state_reset(l->s[i]);
    for (size_t i = 0; i < m->form.n_carried; i++)
        memset(l->carried[i], 0, (size_t)ir_type_bytes(&m->form.carried[i].type));
}

void timeline_free(timeline *l, const lm *m) {
    for (size_t i = 0; l->s && i < m->n_model; i++) rt_session_free(l->s[i]);
    for (size_t i = 0; l->carried && i < m->form.n_carried; i++) mem_free(l->carried[i]);
    mem_free(l->s);
    mem_free(l->carried);
    *l = (timeline){0};
}

/* ---- work memory ---- */

/* Scores of one token. */
static size_t row_size(const lm *m) {
    return (size_t)(m->form.top_k ? m->form.top_k : m->form.vocab);
}

bool caller_new(caller *c, const lm *m, err *e) {
    *c = (caller){.m = m};
    size_t n_in = 0, n_out = 0, n_score = 0;
    for (size_t f = 0; f < m->form.n_func; f++)
        for (size_t i = 0; i < m->n_model; i++) {
            const contract_stage *g = &m->form.func[f].stage[i];
            if (g->n_input > n_in) n_in = g->n_input;
            if (g->n_out > n_out) n_out = g->n_out;
        }
    for (size_t i = 0; i < m->n_model; i++) n_score += m->form.func[0].stage[i].n_output;
    c->in = mem_alloc((n_in + 1) * sizeof *c->in);
    c->out = mem_alloc((n_out + 1) * sizeof *c->out);
    c->score = mem_alloc((n_score + 1) * sizeof *c->score);
    c->score_is = mem_alloc((n_score + 1) * sizeof *c->score_is);
    c->row = mem_try(row_size(m), sizeof *c->row);
    return c->row || err_set(e, ERR_MEMORY, "no memory for a row of %zu scores", row_size(m));
}

void caller_free(caller *c) {
    for (size_t i = 0; i < MEANS_COUNT; i++) mem_free(c->made[i].p);
    mem_free(c->table.p);
    mem_free(c->converted.p);
    mem_free(c->shown.p);
    mem_free(c->in);
    mem_free(c->out);
    mem_free((void *)c->score);
    mem_free(c->score_is);
    mem_free(c->row);
    *c = (caller){0};
}

/* ---- inputs ---- */

/* Elements between neighbours along an axis; 0 without it. */
static size_t stride_of(const ir_type *t, int axis) {
    size_t n = 1;
    for (int i = t->rank - 1; i > axis && axis >= 0; i--) n *= (size_t)t->dim[i];
    return axis < 0 ? 0 : n;
}

static size_t size_of(const ir_type *t, int axis) {
    return axis < 0 ? 1 : (size_t)t->dim[axis];
}

/* The token in slot t: behind the call's own, what the description fills in. */
static int32_t token(const caller *c, const call *k, size_t t) {
    if (t < k->n) return k->ids[t];
    return c->m->form.d->tail == TAIL_REPEAT ? k->ids[k->n - 1] : c->m->form.d->pad;
}

/* Floats into a tensor's own element type. */
static void store(void *to, ir_dtype type, size_t at, float v) {
    if (type == DT_FP16)
        ((uint16_t *)to)[at] = num_f32_f16(v);
    else
        ((float *)to)[at] = v;
}

static void fill_ints(const caller *c, const call *k, const contract_feature *b, const ir_type *type,
                      int32_t *to) {
    for (size_t j = 0; b->is == MEANS_SEEN && j < size_of(type, b->k); j++)
        to[j * stride_of(type, b->k)] = (int32_t)j;
    for (size_t t = 0; b->is != MEANS_SEEN && t < size_of(type, b->t); t++) switch (b->is) {
        case MEANS_TOKENS: to[t] = token(c, k, t); break;
        case MEANS_VALID: to[t] = (int32_t)k->n; break;
        default: to[t] = (int32_t)(k->position + (int64_t)t); break;
        }
}

/* Token t sees the positions up to its own. */
static void fill_causal(const call *k, const contract_feature *b, const ir_type *type, void *to) {
    size_t n = size_of(type, b->k), by_t = stride_of(type, b->t), by_k = stride_of(type, b->k);
    memset(to, 0, (size_t)ir_type_bytes(type));
    for (size_t t = 0; t < size_of(type, b->t); t++) {
        size_t seen = (size_t)k->position + t + 1;
        if (type->dtype == DT_FP16) {
            uint16_t half = num_f32_f16(b->value), *row = (uint16_t *)to + t * by_t;
            for (size_t j = seen; j < n; j++) row[j * by_k] = half;
        } else {
            float *row = (float *)to + t * by_t;
            for (size_t j = seen; j < n; j++) row[j * by_k] = b->value;
        }
    }
}

static void fill_update(const call *k, const contract_feature *b, const ir_type *type, void *to) {
    size_t by_t = stride_of(type, b->t), by_k = stride_of(type, b->k), n = size_of(type, b->k);
    memset(to, 0, (size_t)ir_type_bytes(type));
    for (size_t t = 0; t < size_of(type, b->t) && (size_t)k->position + t < n; t++)
        store(to, (ir_dtype)type->dtype, t * by_t + ((size_t)k->position + t) * by_k, 1);
}

/* The last axis has R values: cos or sin of position * theta^(-2i/R), i < R/2, each of them twice. */
static void fill_rope(const call *k, const contract_feature *b, const ir_type *type, void *to) {
    size_t n = size_of(type, type->rank - 1), by_t = stride_of(type, b->t);
    for (size_t t = 0; t < size_of(type, b->t); t++)
        for (size_t j = 0; j < n; j++) {
            size_t i = b->pairs ? j / 2 : j % (n / 2 ? n / 2 : 1);
            double angle = (double)(k->position + (int64_t)t) * pow(b->theta, -2.0 * (double)i / (double)n);
            store(to, (ir_dtype)type->dtype, t * by_t + j,
                  (float)(b->is == MEANS_COS ? cos(angle) : sin(angle)));
        }
}

/* Rows of the table in the layout of the input; TAIL_ROWS: zeros for what a call takes beyond n tokens. */
static bool fill_table(caller *c, const call *k, const contract_feature *b, const ir_type *type, void *to,
                       err *e) {
    size_t h = size_of(type, b->c), by_t = stride_of(type, b->t), by_c = stride_of(type, b->c);
    bool zeros = c->m->form.d->tail == TAIL_ROWS, half = type->dtype == DT_FP16;
    if (!room_for(&c->table, h, sizeof(float), e)) return false;
    for (size_t t = 0; t < size_of(type, b->t); t++) {
        float *row = half || by_c != 1 ? c->table.p : (float *)to + t * by_t;
        if (t >= k->n && zeros)
            memset(row, 0, h * sizeof *row);
        else if (!embedding_row(c->m->table, token(c, k, t), row))
            return err_set(e, ERR_USAGE, "the embedding table has no row %d", token(c, k, t));
        if (half && by_c == 1)
            num_f32_to_f16((uint16_t *)to + t * by_t, row, h);
        else
            for (size_t i = 0; by_c != 1 && i < h; i++)
                store(to, (ir_dtype)type->dtype, t * by_t + i * by_c, row[i]);
    }
    return true;
}

/* The input's type in this call. */
static ir_type type_of(const call *k, const contract_feature *b) {
    ir_type type = b->type;
    int64_t tokens = k->fn->flexible ? (int64_t)k->n : k->fn->tokens;
    if (b->t >= 0 && type.dim[b->t] == IR_DIM_UNKNOWN) type.dim[b->t] = tokens;
    if (b->k >= 0 && type.dim[b->k] == IR_DIM_UNKNOWN) type.dim[b->k] = k->position + tokens;
    return type;
}

/* An input that the call itself decides; packages that want the same get the same. */
static bool make_input(caller *c, const call *k, const contract_feature *b, rt_tensor *t, err *e) {
    ir_type type = type_of(k, b);
    rt_tensor *given = &c->given[b->is];
    if (given->type.rank && ir_type_equal(&given->type, &type)) {
        *t = (rt_tensor){b->name, type, given->data};
        return true;
    }
    int64_t n = ir_type_count(&type);
    room *r = &c->made[b->is];
    if (n < 0 || !room_for(r, (size_t)n, sizeof(float), e)) return false;
    switch (b->is) {
    case MEANS_CAUSAL_MASK: fill_causal(k, b, &type, r->p); break;
    case MEANS_UPDATE_MASK: fill_update(k, b, &type, r->p); break;
    case MEANS_COS:
    case MEANS_SIN: fill_rope(k, b, &type, r->p); break;
    case MEANS_TEMPERATURE:
        for (int64_t i = 0; i < n; i++) store(r->p, (ir_dtype)type.dtype, (size_t)i, 1);
        break;
    case MEANS_HIDDEN:
        if (!fill_table(c, k, b, &type, r->p, e)) return false;
        break;
    default: fill_ints(c, k, b, &type, r->p); break;
    }
    *given = *t = (rt_tensor){b->name, type, r->p};
    return true;
}

/* The values of a float tensor in another type: where it has that type, its own bytes. */
static const void *as_type(room *r, const rt_tensor *t, ir_dtype to, err *e) {
    size_t n = (size_t)ir_type_count(&t->type);
    if (t->type.dtype == to) return t->data;
    if (!room_for(r, n, sizeof(float), e)) return NULL;
    if (to == DT_FP16)
        num_f32_to_f16(r->p, t->data, n);
    else
        num_f16_to_f32(r->p, t->data, n);
    return r->p;
}

/* hidden: what the package before returned; NULL: there is none. */
static bool bind_input(caller *c, const call *k, const contract_feature *b, const rt_tensor *hidden,
                       rt_tensor *t, err *e) {
    if (b->is == MEANS_CARRIED) {
        *t = (rt_tensor){b->name, b->type, k->line->carried[b->carried]};
        return true;
    }
    if (b->is != MEANS_HIDDEN || !hidden) return make_input(c, k, b, t, e);
    *t = (rt_tensor){b->name, hidden->type, as_type(&c->converted, hidden, (ir_dtype)b->type.dtype, e)};
    t->type.dtype = b->type.dtype;
    return t->data != NULL;
}

/* ---- the packages in turn ---- */

static bool carries(const contract_stage *g) {
    for (size_t b = 0; b < g->n_input; b++)
        if (g->input[b].is == MEANS_CARRIED) return true;
    return false;
}

bool caller_stage(caller *c, const call *k, size_t i, rt_call *r, err *e) {
    const contract_stage *g = &k->fn->stage[i];
    const rt_tensor *hidden = i ? &c->hidden : NULL;
    for (size_t b = 0; b < g->n_input; b++)
        if (!bind_input(c, k, &g->input[b], hidden, &c->in[b], e)) return false;
    *r = (rt_call){.function = g->function,
                   .in = c->in,
                   .n_in = g->n_input,
                   .out = c->out,
                   .find_nonfinite = k->find,
                   .wide = g->logits && !carries(g),
                   .cancel = k->h ? k->h->cancel : NULL,
                   .leave_states = true}; /* prefix_recover() */
    return true;
}

/* Keeps the states that come out of the call. */
static bool keep_carried(caller *c, const call *k, size_t i, err *e) {
    const contract_stage *g = &k->fn->stage[i];
    for (size_t b = 0; b < g->n_input; b++) {
        if (g->input[b].is != MEANS_CARRIED) continue;
        const rt_tensor *t = &c->out[g->input[b].at];
        if (!ir_type_equal(&t->type, &g->input[b].type))
            return err_set(e, ERR_INVALID, "%s: output %s is not of the type of input %s", c->m->name[i],
                           t->name, g->input[b].name);
        memcpy(k->line->carried[g->input[b].carried], t->data, (size_t)ir_type_bytes(&t->type));
    }
    return true;
}

static bool show_handed(caller *c, const call *k, size_t i, const rt_tensor *t, err *e) {
    const contract_feature *b = k->fn->stage[i].output;
    if (!k->h || !k->h->handed) return true;
    const float *x = as_type(&c->shown, t, DT_FP32, e);
    if (!x) return false;
    bool last = (int64_t)size_of(&t->type, b->t) < k->fn->tokens; /* the last token's only */
    size_t tokens = last ? 1 : k->n, first = last ? k->first + k->n - 1 : k->first;
    k->h->handed(k->h->ctx, i, first, tokens, x, tokens * size_of(&t->type, b->c));
    return true;
}

static bool check_output(const caller *c, const contract_stage *g, const contract_feature *b, size_t i,
                         err *e) {
    const rt_tensor *t = &c->out[b->at];
    ir_type is = t->type;
    if (is.dtype == DT_FP32 && b->type.dtype == DT_FP16) is.dtype = DT_FP16; /* given wide */
    if (ir_type_compatible(&is, &b->type)) return true;
    return err_set(e, ERR_INVALID, "%s: function %s: output %s has another shape than is declared",
                   c->m->name[i], g->function, t->name);
}

size_t caller_begin(caller *c, const call *k) {
    bool none = k->fn->tokens > 1 && k->fn->rows == ROWS_NONE && c->m->n_model > 1;
    c->n_score = 0;
    for (size_t i = 0; i < MEANS_COUNT; i++) c->given[i].type.rank = 0;
    return none || (c->m->form.heads && !k->row) ? c->m->form.n_layers : c->m->n_model;
}

bool caller_end_stage(caller *c, const call *k, size_t i, bool ran, err *e) {
    const contract_stage *g = &k->fn->stage[i];
    if (!ran) return c->m->n_model > 1 ? err_where(e, "%s", c->m->name[i]) : false;
    if (!keep_carried(c, k, i, e)) return false;
    for (size_t b = 0; b < g->n_output; b++) {
        if (!check_output(c, g, &g->output[b], i, e)) return false;
        if (!g->logits) continue;
        ((rt_tensor *)c->score)[c->n_score] = c->out[g->output[b].at];
        c->score_is[c->n_score++] = &g->output[b];
    }
    if (g->logits || !g->n_output) return true;
    c->hidden = c->out[g->at];
    return show_handed(c, k, i, &c->hidden, e);
}

bool caller_run(caller *c, const call *k, err *e) {
    rt_call r;
    for (size_t i = 0, n = caller_begin(c, k); i < n; i++)
        if (!caller_stage(c, k, i, &r, e) || !caller_end_stage(c, k, i, rt_run(k->line->s[i], &r, e), e))
            return false;
    return true;
}

/* ---- rows ---- */

/* Elements along the channels of token t, as floats. */
static void take_row(const rt_tensor *o, const contract_feature *b, size_t t, float *to) {
    size_t n = size_of(&o->type, b->c), by = stride_of(&o->type, b->c), at = t * stride_of(&o->type, b->t);
    bool half = o->type.dtype == DT_FP16;
    if (half && by == 1)
        num_f16_to_f32(to, (const uint16_t *)o->data + at, n);
    else
        for (size_t i = 0; i < n; i++)
            to[i] = half ? num_f16_f32(((const uint16_t *)o->data)[at + i * by])
                         : ((const float *)o->data)[at + i * by];
}

static bool check_ids(const caller *c, const char *name, const decoder_row *r, err *e) {
    int64_t vocab = c->m->vocab;
    for (size_t i = 0; i < r->n; i++)
        if (r->id[i] < 0 || (vocab && r->id[i] >= vocab))
            return err_set(e, ERR_INVALID, "%s: %s holds %d, which is not below the vocabulary size %" PRId64,
                           c->m->form.function, name, r->id[i], vocab);
    return true;
}

/* The best of the slices; their ids may count from the beginning of each. */
static bool best_row(caller *c, size_t t, decoder_row *r, err *e) {
    const contract *f = &c->m->form;
    const rt_tensor *value = &c->score[0], *id = &c->score[1];
    const contract_feature *b = c->score_is[0], *bi = c->score_is[1];
    size_t n = size_of(&value->type, b->c), best = 0;
    if (size_of(&id->type, bi->c) != n)
        return err_set(e, ERR_INVALID, "%s and %s differ in size", value->name, id->name);
    float *v = mem_try(n, sizeof *v);
    if (!v) return err_set(e, ERR_MEMORY, "no memory for %zu scores", n);
    take_row(value, b, t, v);
    for (size_t i = 1; i < n; i++)
        if (v[i] > v[best]) best = i;
    c->row[0] = v[best];
    mem_free(v);
    c->best =
        ((const int32_t *)id->data)[t * stride_of(&id->type, bi->t) + best * stride_of(&id->type, bi->c)];
    if (f->slice && (c->best < 0 || c->best >= f->slice[best]))
        return err_set(e, ERR_INVALID, "%s: %s holds %d for a slice of %" PRId64, f->function, id->name,
                       c->best, f->slice[best]);
    for (size_t i = 0; f->slice && i < best; i++) c->best += (int32_t)f->slice[i];
    *r = (decoder_row){c->row, &c->best, 1, 0};
    return check_ids(c, id->name, r, e);
}

bool caller_row(caller *c, const call *k, size_t t, decoder_row *r, err *e) {
    const contract *f = &c->m->form;
    if (k->fn->tokens > 1 && k->fn->rows == ROWS_LAST) t = 0;
    for (size_t i = 0; i < c->n_score; i++)
        if (t >= size_of(&c->score[i].type, c->score_is[i]->t))
            return err_set(e, ERR_INVALID, "%s: output %s has no row for token %zu", f->function,
                           c->score[i].name, t);
    assert(c->n_score);
    if (f->best) return best_row(c, t, r, e);
    *r = (decoder_row){.score = c->row, .n = row_size(c->m)};
    const rt_tensor *o = &c->score[0];
    const contract_feature *b = c->score_is[0];
    if (f->top_k) {
        const rt_tensor *ids = &c->score[1];
        if (ids->type.dim[b->c] != f->top_k || o->type.dim[b->c] != f->top_k)
            return err_set(e, ERR_INVALID, "%s: outputs %s and %s differ in size", f->function, o->name,
                           ids->name);
        r->id = (const int32_t *)ids->data + t * stride_of(&ids->type, c->score_is[1]->t);
        if (!check_ids(c, ids->name, r, e)) return false;
    }
    if (o->type.dtype == DT_FP32 && stride_of(&o->type, b->c) == 1 && size_of(&o->type, b->c) == r->n) {
        r->score = (const float *)o->data + t * stride_of(&o->type, b->t);
        return true;
    }
    for (size_t i = 0, at = 0; i < (f->top_k ? 1 : c->n_score); i++) {
        if (at + size_of(&c->score[i].type, c->score_is[i]->c) > r->n)
            return err_set(e, ERR_INVALID, "%s: output %s is too large", f->function, c->score[i].name);
        take_row(&c->score[i], c->score_is[i], t, c->row + at);
        at += size_of(&c->score[i].type, c->score_is[i]->c);
    }
    return true;
}
