/* Packages as samples: every function is called a few times, with numbers that its inputs' names suggest. */
#define _GNU_SOURCE /* nftw */
#include "packages.h"
#include "base/num.h"
#include "coreml/model.h"
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const coreml_feature *feature_of(const coreml_function *f, const char *name) {
    for (size_t i = 0; i < f->n_in; i++)
        if (!strcmp(f->in[i].name, name)) return &f->in[i];
    return NULL;
}

static bool named(const ir_value *v, const char *part) {
    return strstr(v->name, part) != NULL;
}

/* The default sizes, the least ones where they are flexible. A mask over all positions is one longer at every
 * call. */
static ir_type type_of(const ir_value *v, const coreml_feature *f, size_t call) {
    ir_type t = v->type;
    bool known = f && f->type.rank == t.rank;
    for (int d = 0; d < t.rank; d++) {
        if (t.dim[d] >= 0) continue;
        t.dim[d] = known && f->type.dim[d] > 0 ? f->type.dim[d] : 1;
        if (!known || !f->range) continue;
        if (f->range[d].lower > 0) t.dim[d] = f->range[d].lower;
        if (d == t.rank - 1 && named(v, "mask")) t.dim[d] += (int64_t)call;
    }
    return t;
}

/* Positions count on from call to call; masks show what lies up to them; an update mask takes one place. */
static float float_of(dice *d, const ir_value *v, const ir_type *t, int64_t i, size_t call) {
    int64_t last = t->rank ? t->dim[t->rank - 1] : 1, at = i % last, row = i / last;
    int64_t rows = t->rank > 1 ? t->dim[t->rank - 2] : 1;
    if (named(v, "update_mask")) return (last > 1 ? at : row % rows) == (int64_t)call ? 1 : 0;
    if (named(v, "mask"))
        return at <= (int64_t)call + row % rows || t->dim[t->rank - 1] <= rows + (int64_t)call ? 0 : -30000;
    return num_round_f16(roll_float(d));
}

static int32_t int_of(dice *d, const ir_value *v, int64_t i, size_t call) {
    if (named(v, "pos")) return (int32_t)(i + (int64_t)call);
    if (named(v, "valid") || named(v, "length")) return 1;
    if (v->type.dtype == DT_BOOL) return (int32_t)roll(d, 2);
    return (int32_t)roll(d, 4);
}

static bool fill_call(sample *s, const coreml_function *desc, size_t c, dice *d, err *e) {
    const ir_function *f = s->p->func[s->call[c].func];
    s->call[c].in = ARENA_ARRAY(s->a, ref_tensor, MOST_IN);
    if (f->n_in > MOST_IN) return err_set(e, ERR_LIMIT, "too many inputs");
    for (size_t i = 0; i < f->n_in; i++) {
        if (f->in[i]->type.kind == IR_STATE) continue;
        ir_type t = type_of(f->in[i], feature_of(desc, f->in[i]->name), c);
        ref_tensor *r = &s->call[c].in[i];
        if (!ref_tensor_new(r, &t, e)) return false;
        for (int64_t k = 0; k < ref_count(r); k++) {
            if (dtype_is_float((ir_dtype)t.dtype))
                ref_floats(r)[k] = float_of(d, f->in[i], &t, k, c);
            else
                ref_ints(r)[k] = int_of(d, f->in[i], k, c);
        }
    }
    return true;
}

static bool add_states(sample *s, err *e) {
    for (size_t i = 0; i < s->p->n_func; i++)
        for (size_t k = 0; k < s->p->func[i]->n_in; k++) {
            const ir_value *v = s->p->func[i]->in[k];
            ir_type t = v->type;
            if (t.kind != IR_STATE || sample_state_of(s, v) != SIZE_MAX) continue;
            t.kind = IR_TENSOR;
            if (s->n_state == MOST_STATES) return err_set(e, ERR_LIMIT, "too many states");
            s->state[s->n_state].name = v->name;
            ref_tensor *r = &s->state[s->n_state++].start;
            if (!ref_tensor_new(r, &t, e)) return false;
            memset(r->cell, 0, (size_t)ref_count(r) * 4);
        }
    return true;
}

static sample *sample_of(const coreml_model *m, err *e) {
    arena *a = arena_new();
    sample *s = ARENA_NEW(a, sample);
    dice d = dice_of(1);
    *s = (sample){.a = a, .p = m->program, .one_isa = true};
    bool good = m->program->n_func <= MOST_FUNCS || err_set(e, ERR_LIMIT, "too many functions");
    good = good && add_states(s, e);
    for (size_t round = 0; round < 2 && good; round++)
        for (size_t f = 0; f < m->program->n_func && s->n_call < MOST_CALLS && good; f++) {
            const coreml_function *desc = coreml_function_find(m, m->program->func[f]->name);
            s->call[s->n_call++].func = f;
            good = desc && fill_call(s, desc, s->n_call - 1, &d, e);
        }
    if (good) return s;
    sample_free(s);
    return NULL;
}

static bool check_model(const char *path, const coreml_model *m, tally *t) {
    char text[500] = "";
    err e = {0};
    bool good = true;
    for (size_t i = 0; i < m->n_part; i++) good &= check_model(path, m->part[i], t);
    if (!m->program) return good;
    sample *s = sample_of(m, &e);
    if (!s) {
        printf("%s: %s\n", path, e.msg);
        return false;
    }
    uint64_t unplanned = t->unplanned, refused = t->refused;
    t->graphs++;
    good &= sample_agrees(s, t->graphs, t, text, sizeof text);
    if (*text || t->unplanned > unplanned || t->refused > refused)
        printf("%s: %s%s%s\n", path, t->unplanned > unplanned ? "no plan " : "",
               t->refused > refused ? "refused " : "", text);
    sample_free(s);
    return good;
}

/* ---- directories ---- */

static tally *counts;
static uint64_t differ;

static int visit(const char *path, const struct stat *st, int kind, struct FTW *at) {
    size_t n = strlen(path), suffix = strlen(".mlpackage");
    (void)st, (void)at;
    if (kind != FTW_D || n < suffix || strcmp(path + n - suffix, ".mlpackage")) return FTW_CONTINUE;
    err e = {0};
    coreml_package *p = coreml_open(path, &e);
    if (!p) {
        printf("%s\n", e.msg);
        differ++;
        return FTW_SKIP_SUBTREE;
    }
    differ += !check_model(path, p->model, counts);
    coreml_close(p);
    return FTW_SKIP_SUBTREE;
}

uint64_t check_packages(const char *dir, tally *t) {
    counts = t;
    differ = 0;
    if (nftw(dir, visit, 16, FTW_PHYS | FTW_ACTIONRETVAL) < 0) {
        fprintf(stderr, "graphs: %s can't be read\n", dir);
        return 1;
    }
    return differ;
}
