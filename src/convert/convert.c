#include "convert/convert.h"
#include "convert/job.h"
#include "convert/precision_plan.h"
#include <inttypes.h>
#include <string.h>

#define SPEC        9 /* opset CoreML8: states, slice_update */
#define MAX_CONTEXT (1 << 20)
#define MAX_TOP_K   (1 << 20)

/* Index of word in a NULL-terminated list; fallback when word is NULL; -1 when it is none of them. */
static int choice(const char *word, const char *const *list, int fallback) {
    if (!word) return fallback;
    for (int i = 0; list[i]; i++)
        if (!strcmp(word, list[i])) return i;
    return -1;
}

static bool read_options(job *j, err *e) {
    const convert_options *o = j->o;
    int precision =
        choice(o->precision, (const char *const[]){"mixed", "float16", "float32", NULL}, PRECISION_MIXED);
    int split =
        choice(o->state, (const char *const[]){"fp16", "split", NULL}, precision != PRECISION_FLOAT16);
    int preset = choice(o->preset, (const char *const[]){"chunks", "single", NULL}, PRESET_CHUNKS);
    if (preset < 0) return err_set(e, ERR_USAGE, "preset %s: expected chunks or single", o->preset);
    if (precision < 0)
        return err_set(e, ERR_USAGE, "precision %s: expected mixed, float16 or float32", o->precision);
    if (split < 0) return err_set(e, ERR_USAGE, "state %s: expected split or fp16", o->state);
    if (!split && precision == PRECISION_FLOAT32)
        return err_set(e, ERR_USAGE, "state fp16 contradicts precision float32, which splits every state");
    if (o->context < 0 || o->context > MAX_CONTEXT)
        return err_set(e, ERR_USAGE, "context %" PRId64 ": expected 1 to %d", o->context, MAX_CONTEXT);
    if (o->top_k < -1 || o->top_k > MAX_TOP_K)
        return err_set(e, ERR_USAGE, "top-k %" PRId64 ": expected 0 to %d", o->top_k, MAX_TOP_K);
    j->graph_options = (models_options){
        .preset = (models_preset)preset,
        .precision = (models_precision)precision,
        .split_state = split,
        .context = o->context ? o->context : 2048,
        .top_k = o->top_k < 0 ? 64 : o->top_k,
    };
    return true;
}

/* "4,16,64": ascending numbers. */
static bool read_prefill(job *j, err *e) {
    const char *list = j->o->prefill;
    if (!list) return true;
    int64_t *size = ARENA_ARRAY(j->a, int64_t, MODELS_MAX_PREFILL);
    size_t n = 0;
    for (const char *p = list, *end; p; p = *end ? end + 1 : NULL) {
        end = p + strcspn(p, ",");
        if (n == MODELS_MAX_PREFILL || !str_to_int64(arena_strn(j->a, p, (size_t)(end - p)), &size[n]))
            return err_set(e, ERR_USAGE, "prefill %.100s: expected up to %d sizes, as in 4,16,64", list,
                           MODELS_MAX_PREFILL);
        n++;
    }
    j->graph_options.prefill = size;
    j->graph_options.n_prefill = n;
    return true;
}

bool job_read_recipe(job *j, err *e) {
    const convert_options *o = j->o;
    quant_recipe *r = &j->recipe;
    r->vocab_apart = o->vocab && strcmp(o->vocab, "same");
    j->compress = o->quantize || r->vocab_apart || o->recipe;
    if (!quant_scheme_by_name(&r->weights, o->quantize ? o->quantize : "fp16", e)) return false;
    if (r->vocab_apart && !quant_scheme_by_name(&r->vocab, o->vocab, e)) return false;
    if (o->group_size < 0)
        return err_set(e, ERR_USAGE, "group size %" PRId64 ": expected 1 or more", o->group_size);
    if (o->group_size && r->weights.kind == QUANT_LUT) r->weights.group = o->group_size;
    if (o->group_size && r->vocab.kind == QUANT_LUT) r->vocab.group = o->group_size;
    j->graph_options.fp16_weights = j->compress;
    return !o->recipe || quant_recipe_read(r, j->a, o->recipe, e);
}

static bool read_plan(job *j, err *e) {
    if (!j->o->precision_plan) return true;
    if (j->graph_options.precision == PRECISION_FLOAT32)
        return err_set(e, ERR_USAGE,
                       "a precision plan contradicts precision float32, where everything is fp32");
    return precision_plan_read(&j->plan, &j->n_plan, j->a, j->o->precision_plan, e);
}

static bool is_vocab(const char *name) {
    return !strncmp(name, "lm_head_weight", 14) || !strncmp(name, "embed_tokens_weight", 19);
}

/* The preset asked for must be one the family has. */
static bool choose_preset(job *j, err *e) {
    const ckpt_config *c = checkpoint_config(j->c);
    const char *why = "";
    if (!j->o->preset) j->graph_options.preset = j->n_variant ? PRESET_SINGLE : models_default_preset(c);
    if (j->graph_options.top_k > c->vocab) j->graph_options.top_k = c->vocab;
    return models_has_preset(c, j->graph_options.preset, &why) ||
           err_set(e, ERR_UNSUPPORTED, "%s: preset %s is not for %s: %s", j->dir, job_preset_name(j),
                   c->family->name, why);
}

/* Gives a flexible dimension of an input its bounds. */
static bool set_range(job *j, const models_range *r, err *e) {
    coreml_function *f = &j->m->func[0];
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

const char *job_printable(arena *a, const char *s, char c) {
    char *p = arena_str(a, s);
    for (size_t n = strlen(p), i = 0; (i += utf8_valid(p + i, n - i)) < n;) p[i] = c;
    return p;
}

static bool describe(job *j, err *e) {
    const ckpt_config *c = checkpoint_config(j->c);
    j->m = coreml_model_new(j->a, j->g.program, SPEC);
    for (size_t i = 0; i < j->g.n_range; i++)
        if (!set_range(j, &j->g.range[i], e)) return false;
    j->m->short_description =
        arena_printf(j->a, "%s (%s), preset %s, precision %s", job_printable(j->a, c->name, '?'),
                     c->family->name, job_preset_name(j), job_precision_name(j));
    coreml_add_user(j->m, "millet_version", MILLET_VERSION);
    for (size_t i = 0; i + 1 < j->g.n_user; i += 2) coreml_add_user(j->m, j->g.user[i], j->g.user[i + 1]);
    return true;
}

static void list_weight(job *j, map *seen, size_t *cap, const char *name, const ir_const *c) {
    if (!c || !c->in_blob || !map_add(seen, arena_copy(j->a, &c, sizeof c), sizeof c, 0)) return;
    j->weight = arena_grow(j->a, j->weight, j->n_weight, cap, j->n_weight + 1, sizeof *j->weight);
    j->total_bytes += (uint64_t)ir_type_bytes(&c->type);
    j->weight[j->n_weight++] = (job_weight){name, j->total_bytes};
}

/* Lists the weights in order of first use, which is the order they are written in. */
static void list_weights(job *j) {
    const ir_function *f = j->g.program->func[0];
    map *seen = map_new(j->a, f->body.n_op);
    size_t cap = 0;
    for (size_t i = 0; i < f->body.n_op; i++) {
        const ir_op *op = f->body.op[i];
        const ir_value *v = op->n_out ? op->out[0] : NULL;
        bool compressed = ir_info(op->code)->flags & OPF_CONSTEXPR;
        if (v && (compressed || (v->konst && v->konst->in_blob)))
            j->parameters += (uint64_t)ir_type_count(&v->type);
        if (v) list_weight(j, seen, &cap, v->name, v->konst);
        for (int s = 0; compressed && s < ir_info(op->code)->n_slot; s++)
            if (op->arg[s].n) list_weight(j, seen, &cap, v->name, op->arg[s].v[0]->konst);
    }
    const st_tensor *t = j->g.embedding;
    if (!t) return;
    j->embedding_bytes = (uint64_t)ir_type_count(&t->type) * (strcmp(j->g.input_dtype, "fp32") ? 2 : 4);
    j->total_bytes += j->embedding_bytes;
    j->weight = arena_grow(j->a, j->weight, j->n_weight, &cap, j->n_weight + 1, sizeof *j->weight);
    j->weight[j->n_weight++] = (job_weight){t->name, j->total_bytes};
}

typedef struct {
    job *j;
    err *e;
} build_progress;

static bool on_tensor(void *ctx, const char *tensor) {
    const build_progress *p = ctx;
    return job_report(p->j, tensor, 0, 0, p->e);
}

bool job_build(job *j, err *e) {
    build_progress p = {j, e};
    j->graph_options.progress = on_tensor;
    j->graph_options.ctx = &p;
    if (!models_build(&j->g, j->a, j->c, &j->graph_options, e)) return false;
    if (j->n_plan) widen_program(j->g.program, j->plan, j->n_plan, &j->widened);
    if ((j->compress || j->o->report) &&
        !quantize_program(j->g.program, &j->recipe, is_vocab, &j->compressed, e))
        return false;
    if (!describe(j, e)) return false;
    if (!coreml_verify(j->m, NULL, NULL, e)) return err_where(e, "the program that was built breaks a rule");
    list_weights(j);
    return true;
}

static bool begin(job *j, err *e) {
    j->c = checkpoint_open(j->dir, models_families(), e);
    if (!j->c || !choose_preset(j, e) || !job_check_source(j, e) || !job_make_parent(j, e)) return false;
    j->st = stage_begin(j->out, j->o->overwrite, e);
    return j->st != NULL;
}

static bool commit(job *j, err *e) {
    stage *s = j->st;
    j->st = NULL;
    return stage_commit(s, e);
}

static bool write_one(job *j, err *e) {
    return job_build(j, e) && job_write_package(j, e) && job_write_embedding(j, e) &&
           job_copy_tokenizer(j, e) && job_write_metadata(j, e) && job_write_report(j, e);
}

static bool write_variants(job *j, err *e) {
    return job_write_variants(j, e) && job_copy_tokenizer(j, e) && job_write_manifest(j, e);
}

bool convert_checkpoint(const char *dir, const char *out, const convert_options *o, str *summary, err *e) {
    job j = {.a = arena_new(), .o = o, .package = PACKAGE_NAME};
    bool ok = read_options(&j, e) && read_prefill(&j, e) && job_read_recipe(&j, e) && read_plan(&j, e) &&
              job_read_variants(&j, e) && job_check_places(&j, dir, out, e) && begin(&j, e) &&
              (j.n_variant ? write_variants : write_one)(&j, e) && commit(&j, e);
    if (ok && summary) job_summary(&j, summary);
    stage_abort(j.st);
    checkpoint_close(j.c);
    arena_free(j.a);
    return ok;
}
