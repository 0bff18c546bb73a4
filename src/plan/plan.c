#include "plan/plan.h"
#include "ir/print.h"
#include "optimize/optimize.h"
#include "plan/lower.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void dump(const plan_options *o, const char *stage, const ir_function *f) {
    if (!o->dump || !o->dump_stages || !strstr(o->dump_stages, stage)) return;
    str_printf(o->dump, "--- %s: %s\n", stage, f->name);
    ir_print_function(o->dump, f);
}

static bool lower_to(plan *p, const ir_function *f, const plan_options *o, err *e) {
    lower l = {.p = p,
               .a = p->a,
               .scratch = arena_new(),
               .f = f,
               .strict = p->strict,
               .kernels = o->kernels,
               .linear = o->linear,
               .e = e};
    arena *side = arena_new();
    l.at = ARENA_ARRAY(side, place, f->n_values);
    l.last = ARENA_ARRAY(side, uint32_t, f->n_values);
    l.uses = ARENA_ARRAY(side, uint32_t, f->n_values);
    l.state = ARENA_ARRAY(side, lower_state, f->n_values);
    bool ok = lower_function(&l);
    arena_free(l.scratch);
    arena_free(side);
    return ok;
}

plan *plan_new(const ir_function *f, const ir_type *in, const plan_options *o, err *e) {
    arena *a = arena_new();
    plan *p = ARENA_NEW(a, plan);
    *p = (plan){.holders = 1, .a = a, .program = ir_program_new(a), .strict = o->strict};
    p->ops = *o->ops;
    p->fast = *o->fast;
    ir_function *copy = opt_specialize(p->program, f, in, o->strict, e);
    if (copy) {
        opt_clean(copy);
        dump(o, "fold", copy);
        opt_unstack(p->program, copy);
        opt_fuse(p->program, copy, o->strict);
        opt_share(copy);
        opt_order(copy);
        dump(o, "fuse", copy);
        p->f = copy;
    }
    if (!copy || !lower_to(p, copy, o, e)) {
        err_where(e, "function %s", f->name);
        plan_free(p);
        return NULL;
    }
    plan_spread_steps(p);
    plan_place_buffers(p);
    plan_place_barriers(p);
    plan_find_many(p);
    if (o->dump && o->dump_stages && strstr(o->dump_stages, "plan")) plan_print(o->dump, p);
    return p;
}

plan *plan_keep(plan *p) {
    atomic_fetch_add(&p->holders, 1);
    return p;
}

void plan_free(plan *p) {
    if (!p || atomic_fetch_sub(&p->holders, 1) != 1) return;
    for (size_t i = 0; i < p->n_big; i++) mem_free(p->big[i]);
    arena_free(p->a);
}

const ir_function *plan_function(const plan *p) {
    return p->f;
}

plan_traffic plan_traffic_of(const plan *p) {
    plan_traffic t = {0, 0, 0};
    for (size_t i = 0; i < p->n_step; i++) {
        const plan_step *s = &p->step[i];
        bool attention = s->origin && s->origin->code == OP_fused_attention;
        t.bytes += attention ? 0 : s->bytes;
        t.shared += s->many ? s->bytes : 0;
        for (uint32_t k = 0; attention && k < s->n_arg; k++)
            if (s->arg[k].space == SPACE_STATE)
                t.cache += (uint64_t)(s->arg[k].high - s->arg[k].low) * s->arg[k].size;
    }
    return t;
}

void plan_print(str *out, const plan *p) {
    size_t barriers = 0, fallbacks = 0;
    for (size_t i = 0; i < p->n_step; i++) barriers += p->step[i].barrier, fallbacks += p->step[i].fallback;
    str_printf(out,
               "plan of %s: %zu steps, %zu barriers, %zu without a kernel, %" PRId64 " KiB of work memory\n",
               p->f->name, p->n_step, barriers, fallbacks, p->cells * 4 / 1024);
    for (size_t i = 0; i < p->n_step; i++) {
        const plan_step *s = &p->step[i];
        str_printf(out, "%5zu %c%c %-20s %8" PRId64 " x%-6" PRId64 " %10" PRIu64 " B  %s %s\n", i,
                   s->barrier ? '|' : ' ', " ~*1"[s->spread], s -> kernel, s -> extent, s -> grain,
                   s -> bytes, s -> origin ? ir_info(s->origin->code) -> name : "",
                   s->origin && s->origin->n_out ? s->origin->out[0]->name : "result");
    }
}
