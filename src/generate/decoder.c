#include "generate/decoder.h"
#include "generate/cover.h"
#include "generate/step.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Tokens of one call of a function of flexible length: enough to pay for reading the weights, few enough to
 * bound memory (the mask and the scores are block * positions). */
#define MAX_BLOCK 64

struct decoder {
    const lm *m;
    rt_mode mode;
    timeline line;
    caller c;
    const contract_function *fn; /* of the next call */
    call last;                   /* the call that ran last, and the first of its rows that is new */
    size_t shift;
    int32_t *past; /* tokens fed so far */
    uint8_t *cut;  /* by token: a call ended behind it, and its states are that call's */
    int64_t position, cap_past;
    int64_t touched; /* rows of caches from here on were never written */
    uint64_t serial;
    bool broken; /* a call failed */
    /* what the next calls are */
    room choice;   /* by tokens left: index of the function */
    int64_t *size; /* forced sizes; NULL: as choice says */
    size_t n_size, at_size;
    /* of the feed under way, behind position: tokens to feed, tokens fed, and whether every row is wanted */
    size_t left, done;
    bool every;
};

decoder *decoder_new(const lm *m, rt_mode mode, err *e) {
    decoder *d = mem_alloc(sizeof *d);
    *d = (decoder){.m = m, .mode = mode};
    if (caller_new(&d->c, m, e) && timeline_new(&d->line, m, mode, e)) return d;
    decoder_free(d);
    return NULL;
}

void decoder_free(decoder *d) {
    if (!d) return;
    timeline_free(&d->line, d->m);
    caller_free(&d->c);
    mem_free(d->past);
    mem_free(d->cut);
    mem_free(d->choice.p);
    mem_free(d->size);
    mem_free(d);
}

const lm *decoder_lm(const decoder *d) {
    return d->m;
}

rt_session *decoder_session(const decoder *d, size_t package) {
    return d->line.s[package];
}

void *decoder_carried(const decoder *d, size_t i) {
    return d->line.carried[i];
}

int64_t decoder_position(const decoder *d) {
    return d->position;
}

const int32_t *decoder_fed(const decoder *d) {
    return d->past;
}

void decoder_restart(decoder *d) {
    timeline_reset(&d->line, d->m);
    d->position = d->touched = 0;
    d->left = 0;
    d->serial++;
    d->broken = false;
}

bool decoder_intact(const decoder *d) {
    return !d->broken;
}

int64_t decoder_sound(const decoder *d) {
    return d->broken ? d->last.position : d->position;
}

uint64_t decoder_serial(const decoder *d) {
    return d->serial;
}

const uint8_t *decoder_cuts(const decoder *d) {
    return d->cut;
}

int64_t decoder_touched(const decoder *d) {
    return d->touched;
}

/* The call that runs next: a padded one that would end behind the context earlier, over tokens that were fed
 * before; their keys and values are written again, the same. */
static void aim(decoder *d, call *k) {
    int64_t over = d->fn->flexible ? 0 : k->position + d->fn->tokens - d->m->form.context;
    d->shift = over > 0 && over <= k->position ? (size_t)over : 0;
    k->fn = d->fn;
    k->position -= (int64_t)d->shift;
    k->n += d->shift;
    if (d->shift) k->ids = d->past + k->position;
    if (d->shift) memset(d->cut + k->position, 0, d->shift); /* written again, by a call that ends later */
    d->last = *k;
    int64_t end = k->position + (d->fn->flexible ? (int64_t)k->n : d->fn->tokens);
    if (end > d->touched) d->touched = end;
}

static bool step(decoder *d, call *k, err *e) {
    aim(d, k);
    return caller_run(&d->c, k, e);
}

/* ---- which call ---- */

bool decoder_set_sizes(decoder *d, const int64_t *sizes, size_t n, err *e) {
    const contract *f = &d->m->form;
    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        while (k < f->n_func && f->func[k].tokens != sizes[i]) k++;
        if (f->func->flexible ? sizes[i] < 1 || sizes[i] > f->func->tokens : k == f->n_func)
            return err_set(e, ERR_USAGE, "no function takes %" PRId64 " tokens a call", sizes[i]);
    }
    mem_free(d->size);
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

/* Tokens that must be left for the function for one token: one, where the others return no rows. */
static size_t held_back(const decoder *d) {
    const contract *f = &d->m->form;
    return f->n_func > 1 && f->func[1].rows == ROWS_NONE;
}

/* Whether a call's rows are all there, and may be looked at one by one. */
static bool gives_each(const contract_function *fn) {
    return fn->tokens == 1 || fn->rows == ROWS_EVERY;
}

/* Whether only calls of the first function will do. */
static bool only_first(const decoder *d, bool every) {
    const contract *f = &d->m->form;
    return f->n_func == 1 || (every && !gives_each(&f->func[1]));
}

/* Decides on calls for n tokens from position on. */
static bool plan(decoder *d, size_t n, int64_t position, bool every, err *e) {
    const contract *f = &d->m->form;
    if (d->size || only_first(d, every) || n <= 1 + held_back(d) || f->func->tokens > 1) return true;
    int64_t size[CONTRACT_MAX_FUNCTIONS];
    for (size_t i = 0; i < f->n_func; i++) size[i] = f->func[i].tokens;
    n -= held_back(d);
    return room_for(&d->choice, n + 1, 1, e) &&
           cover_plan(size, f->n_func, n, f->context - position, f->d->tail != TAIL_STEPS, d->choice.p, e);
}

/* How many of n tokens that are left at position the next call takes, and of which function. */
static size_t next_call(decoder *d, size_t n, int64_t position, bool every) {
    const contract *f = &d->m->form;
    d->fn = f->func;
    int64_t most = f->func->flexible && f->func->tokens > MAX_BLOCK ? MAX_BLOCK : f->func->tokens;
    if (d->size) {
        most = d->size[d->at_size];
        if (d->at_size + 1 < d->n_size) d->at_size++;
    }
    if (!f->func->flexible) {
        if (d->size)
            d->fn = function_for(d, most, position);
        else if (f->func->tokens > 1) /* there is none for one token */
            d->fn = only_first(d, every) ? f->func : function_for(d, (int64_t)n, position);
        else if (n > 1 + held_back(d) && !only_first(d, every))
            d->fn = &f->func[((const uint8_t *)d->choice.p)[n - held_back(d)]];
        if (n <= held_back(d)) d->fn = f->func;
        most = d->fn->tokens;
        bool full = d->fn != f->func && f->d->tail == TAIL_STEPS;
        if (full && (int64_t)n < most + (int64_t)held_back(d)) d->fn = f->func, most = f->func->tokens;
        if (d->fn != f->func) n -= held_back(d);
    }
    return n < (uint64_t)most ? n : (size_t)most;
}

/* ---- rows ---- */

/* Runs the n tokens of past again, looking at every op. False with the error once one makes a NaN or
 * infinity.
 */
static bool replay(decoder *d, const timeline *line, size_t n, bool every, err *e) {
    d->at_size = 0;
    if (!plan(d, n, 0, every, e)) return false;
    for (size_t at = 0, b; at < n; at += b) {
        b = next_call(d, n - at, (int64_t)at, every);
        call c = {
            .line = line, .ids = d->past + at, .n = b, .position = (int64_t)at, .row = true, .find = true};
        if (step(d, &c, e)) continue;
        if (b > 1) return err_where(e, "tokens %zu to %zu", at, at + b - 1);
        return err_where(e, "token %zu (id %d)", at, d->past[at]);
    }
    return true;
}

/* Names what made a row non-finite, from fresh states. Always sets the error. */
static void explain(decoder *d, int64_t position, bool every, err *e) {
    timeline fresh;
    if (timeline_new(&fresh, d->m, d->mode, e) && replay(d, &fresh, (size_t)position, every, e))
        err_set(e, ERR_NUMERIC,
                "the scores behind token %" PRId64
                " (id %d) are not finite, but no op made a NaN or infinity from finite "
                "operands: look for one among the weights",
                position - 1, d->past[position - 1]);
    timeline_free(&fresh, d->m);
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
        int32_t *more = mem_try_realloc(d->past, (size_t)cap * sizeof *more);
        if (!more) return err_set(e, ERR_MEMORY, "no memory for %" PRId64 " tokens", cap);
        d->past = more;
        uint8_t *cut = mem_try_realloc(d->cut, (size_t)cap);
        if (!cut) return err_set(e, ERR_MEMORY, "no memory for %" PRId64 " tokens", cap);
        d->cut = cut;
        d->cap_past = cap;
    }
    memmove(d->past + d->position, ids, n * sizeof *ids);
    memset(d->cut + d->position, 0, n);
    return true;
}

bool decoder_stand(decoder *d, const int32_t *ids, const uint8_t *cuts, size_t n, int64_t touched, err *e) {
    if (cuts) d->position = 0;
    if (cuts && n && !remember(d, ids, n, e)) return false;
    if (cuts && n) memcpy(d->cut, cuts, n);
    d->position = (int64_t)n;
    d->left = 0;
    d->touched = touched;
    d->serial++;
    d->broken = false;
    return true;
}

/* Looks at row t of the last call, whose first token stands at d->position. */
static bool visit(decoder *d, size_t t, size_t index, const decoder_hooks *h, decoder_row *last, err *e) {
    decoder_row r;
    if (!caller_row(&d->c, &d->last, d->shift + t, &r, e)) return false;
    if (!rt_model_scan(d->m->model[0], r.score, r.n, &r.largest)) {
        explain(d, d->position + (int64_t)t + 1, h && h->row, e);
        return false;
    }
    if (last) *last = r;
    return !h || !h->row || h->row(h->ctx, index, &r, e) || err_set(e, ERR_CANCELLED, "cancelled");
}

bool decoder_begin(decoder *d, const int32_t *ids, size_t n, bool every, err *e) {
    d->left = 0;
    if (!decoder_check(d, ids, n, e) || !remember(d, ids, n, e) || !plan(d, n, d->position, every, e))
        return false;
    d->left = n;
    d->done = 0;
    d->every = every;
    return true;
}

size_t decoder_left(const decoder *d) {
    return d->left;
}

bool decoder_call_begin(decoder *d, const decoder_hooks *h, err *e) {
    if (h && h->keep_going && !h->keep_going(h->ctx)) return err_set(e, ERR_CANCELLED, "cancelled");
    size_t b = next_call(d, d->left, d->position, d->every);
    call c = {.line = &d->line,
              .ids = d->past + d->position,
              .n = b,
              .position = d->position,
              .first = d->done,
              .h = h,
              .row = d->every || b == d->left};
    aim(d, &c);
    d->broken = true;
    return true;
}

const call *decoder_call_at(const decoder *d) {
    return &d->last;
}

caller *decoder_caller(decoder *d) {
    return &d->c;
}

bool decoder_call_end(decoder *d, const decoder_hooks *h, decoder_row *last, err *e) {
    size_t b = d->last.n - d->shift;
    bool each = d->every && gives_each(d->fn);
    size_t first = each ? 0 : d->last.row ? b - 1 : b; /* rows of interest */
    for (size_t t = first; t < b; t++)
        if (!visit(d, t, d->done + t, h, last, e)) return false;
    d->position += (int64_t)b;
    d->cut[d->position - 1] = 1;
    d->broken = false;
    d->done += b;
    d->left -= b;
    return true;
}

bool decoder_call(decoder *d, const decoder_hooks *h, decoder_row *last, err *e) {
    return decoder_call_begin(d, h, e) && caller_run(&d->c, &d->last, e) && decoder_call_end(d, h, last, e);
}

bool decoder_feed(decoder *d, const int32_t *ids, size_t n, const decoder_hooks *h, decoder_row *last,
                  err *e) {
    if (!decoder_begin(d, ids, n, h && h->row, e)) return false;
    while (d->left)
        if (!decoder_call(d, h, last, e)) return false;
    return true;
}

/* ---- standing where another decoder stands ---- */

bool decoder_seed(decoder *d, decoder *from, err *e) {
    if (from->position > d->m->form.context)
        return err_set(e, ERR_INVALID, "%" PRId64 " tokens were fed; the context has %" PRId64 " positions",
                       from->position, d->m->form.context);
    bool same = from->m == d->m;
    for (size_t i = 0; same && i < d->m->n_model; i++)
        if (!rt_state_copy(d->line.s[i], from->line.s[i], e)) return false;
    for (size_t i = 0; same && i < d->m->form.n_carried; i++)
        memcpy(d->line.carried[i], from->line.carried[i], (size_t)ir_type_bytes(&d->m->form.carried[i].type));
    for (size_t i = 0; !same && i < decoder_state_count(d); i++) {
        const char *name = decoder_state_name(d, i);
        ir_type to, is;
        if (!decoder_state_type(d, name, &to, e) || !decoder_state_type(from, name, &is, e)) return false;
        if (is.rank != to.rank || memcmp(is.dim, to.dim, (size_t)to.rank * sizeof *to.dim))
            return err_set(e, ERR_INVALID, "state %s has another shape in the other artifact", name);
        float *x = mem_try((size_t)ir_type_count(&to), sizeof *x);
        bool ok = (x || err_set(e, ERR_MEMORY, "no memory for a copy of state %s", name)) &&
                  decoder_state_get(from, name, x, e) && decoder_state_set(d, name, x, e);
        mem_free(x);
        if (!ok) return false;
    }
    return decoder_stand(d, from->past, from->cut, (size_t)from->position, from->touched, e);
}
