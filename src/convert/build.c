/* The program of each package: built, compressed, described, verified. */
#include "convert/job.h"
#include <inttypes.h>
#include <string.h>

#define SPEC 9 /* opset CoreML8: states, slice_update */

bool job_build_part(job *j, const models_part *part, models_graph *g, quant_report *report, err *e) {
    quant_report ignored = {0};
    if (!models_build_part(j->work, part, !report, g, e)) return false;
    if (j->n_plan && report) widen_program(g->program, j->plan, j->n_plan, &j->widened);
    if (!j->compress && !(j->o->report && report)) return true;
    return quantize_program(g->program, &j->recipe, job_is_vocab, report ? report : &ignored, e);
}

/* Gives a flexible dimension of an input its bounds. */
static bool set_range(job *j, const job_package *p, const models_range *r, err *e) {
    coreml_function *f = &p->m->func[0];
    for (size_t i = 0; i < f->n_in; i++) {
        coreml_feature *in = &f->in[i];
        if (strcmp(in->name, r->input) || r->dim < 0 || r->dim >= in->type.rank) continue;
        coreml_range *range = (coreml_range *)in->range;
        if (!range) {
            range = ARENA_ARRAY(j->a, coreml_range, IR_MAX_RANK);
            for (int d = 0; d < in->type.rank; d++)
                range[d] = (coreml_range){in->type.dim[d], in->type.dim[d]};
            in->range = range;
        }
        range[r->dim] = (coreml_range){r->lower, r->upper};
        in->type.dim[r->dim] = r->fallback;
        return true;
    }
    return err_set(e, ERR_INVALID, "no input %s with a dimension %d to give a range", r->input, r->dim);
}

static bool describe(job *j, job_package *p, err *e) {
    const ckpt_config *c = checkpoint_config(j->c);
    p->m = coreml_model_new(j->a, p->g.program, SPEC);
    for (size_t i = 0; i < p->g.n_range; i++)
        if (!set_range(j, p, &p->g.range[i], e)) return false;
    const char *which = j->n_package == 1 ? ""
                                          : arena_printf(j->a, ", package %zu of %zu",
                                                         (size_t)(p - j->package) + 1, j->n_package);
    p->m->short_description =
        arena_printf(j->a, "%s (%s), preset %s, precision %s%s", job_printable(j->a, j->model_name, '?'),
                     c->family->name, job_preset_name(j), job_precision_name(j), which);
    coreml_add_user(p->m, "millet_version", MILLET_VERSION);
    for (size_t i = 0; i + 1 < p->g.n_user; i += 2) coreml_add_user(p->m, p->g.user[i], p->g.user[i + 1]);
    return true;
}

static void list_weight(job *j, map *seen, uint64_t *at, const char *name, const ir_const *c) {
    if (!c || !c->in_blob || !map_add(seen, arena_copy(j->a, &c, sizeof c), sizeof c, 0)) return;
    j->weight = arena_grow(j->a, j->weight, j->n_weight, &j->cap_weight, j->n_weight + 1, sizeof *j->weight);
    *at += (uint64_t)ir_type_bytes(&c->type);
    j->weight[j->n_weight++] = (job_weight){name, *at};
}

/* Lists a package's weights in order of first use, which is the order they are written in. */
void job_list_weights(job *j, const job_package *p) {
    const ir_function *f = p->g.program->func[0];
    map *seen = map_new(j->a, f->body.n_op);
    uint64_t at = j->total_bytes;
    for (size_t i = 0; i < f->body.n_op; i++) {
        const ir_op *op = f->body.op[i];
        const ir_value *v = op->n_out ? op->out[0] : NULL;
        bool compressed = ir_info(op->code)->flags & OPF_CONSTEXPR;
        if (v && (compressed || (v->konst && v->konst->in_blob)))
            j->parameters += (uint64_t)ir_type_count(&v->type);
        if (v) list_weight(j, seen, &at, v->name, v->konst);
        for (int s = 0; compressed && s < ir_info(op->code)->n_slot; s++)
            if (op->arg[s].n) list_weight(j, seen, &at, v->name, op->arg[s].v[0]->konst);
    }
    j->total_bytes += p->weight_bytes;
}

static void list_table(job *j) {
    const st_tensor *t = j->table.tensor;
    if (!t) return;
    j->total_bytes = (uint64_t)t->type.dim[0] * embedding_row_bytes(j->table.kind, t->type.dim[1]);
    j->weight = arena_grow(j->a, j->weight, j->n_weight, &j->cap_weight, j->n_weight + 1, sizeof *j->weight);
    j->weight[j->n_weight++] = (job_weight){t->name, j->total_bytes};
}

/* What became of the weights of all packages. */
static void add_report(job *j, const quant_report *r) {
    const quant_result **all = ARENA_ARRAY(j->a, const quant_result *, j->compressed.n + r->n);
    if (j->compressed.n) memcpy(all, j->compressed.weight, j->compressed.n * sizeof *all);
    if (r->n) memcpy(all + j->compressed.n, r->weight, r->n * sizeof *all);
    j->compressed = (quant_report){all, j->compressed.n + r->n};
}

bool job_build(job *j, err *e) {
    list_table(j);
    for (size_t i = 0; i < j->n_package; i++) {
        job_package *p = &j->package[i];
        quant_report report = {0};
        if (!job_build_part(j, &p->part, &p->g, &report, e) || !describe(j, p, e)) return false;
        if (!coreml_verify(p->m, NULL, NULL, e))
            return err_where(e, "%s: the program that was built breaks a rule", p->name);
        if (!coreml_weight_bytes(p->g.program, &p->weight_bytes, e)) return false;
        add_report(j, &report);
        job_list_weights(j, p);
    }
    j->note = models_notes(j->work, &j->n_note);
    return true;
}
