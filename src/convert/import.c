/* From one of Apple's formats to the other, op by op: X.mlpackage to X.aimodel and back. */
#include "base/file.h"
#include "convert/job.h"
#include "coreai/package.h"
#include <inttypes.h>
#include <string.h>

static bool holds_manifest(const char *path) {
    arena *a = arena_new();
    bool yes = file_exists(arena_printf(a, "%s/Manifest.json", path));
    arena_free(a);
    return yes;
}

bool convert_is_program(const char *path) {
    return file_is_dir(path) && (ai_asset_is(path) || holds_manifest(path));
}

/* Options that say how a checkpoint becomes a program. */
static bool refuse_options(const convert_options *o, err *e) {
    const struct {
        const char *option;
        bool given;
    } rows[] = {{"preset", o->preset != NULL},
                {"precision", o->precision != NULL},
                {"state", o->state != NULL},
                {"context", o->context != 0},
                {"top-k", o->top_k > 0},
                {"prefill", o->prefill != NULL},
                {"chunks", o->chunks != NULL},
                {"kv", o->kv != NULL},
                {"table", o->table != NULL},
                {"quantize", o->quantize != NULL},
                {"vocab", o->vocab && strcmp(o->vocab, "same") != 0},
                {"steer-around", o->steer_around != NULL},
                {"recipe", o->recipe != NULL},
                {"variants", o->variants != NULL},
                {"precision-plan", o->precision_plan != NULL},
                {"into", o->into},
                {"share-weights", o->share_weights != NULL},
                {"report", o->report != NULL},
                {"source-dtype", o->source_dtype != NULL},
                {"tokenizer", o->tokenizer != NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].given)
            return err_set(e, ERR_USAGE,
                           "--%s is for checkpoints, not for programs in one of Apple's formats",
                           rows[i].option);
    return true;
}

static bool on_written(void *ctx, uint64_t done, uint64_t total) {
    const convert_options *o = ctx;
    return !o->progress || o->progress(o->ctx, "", done, total, 0, 1);
}

static bool write_asset(arena *a, const coreml_package *p, const char *dir, const convert_options *o,
                        err *e) {
    if (!p->model->program)
        return err_set(e, ERR_UNSUPPORTED, "a pipeline of several models has no counterpart in Core AI");
    const ai_tree *t = ai_from_program(a, p->model->program, ASSET_PRODUCER, e);
    return t && asset_write(a, t, dir, on_written, (void *)o, e);
}

static bool write_package(const coreml_package *p, const char *dir, const convert_options *o, err *e) {
    coreml_model m = *p->model;
    m.spec = 9;
    for (size_t i = 0; i < m.program->n_func; i++) m.program->func[i]->spec = 9;
    return coreml_verify(&m, NULL, NULL, e) &&
           coreml_write(dir, &m, &(coreml_write_options){.progress = on_written, .ctx = (void *)o}, e);
}

/* int8 with one scale for all of a channel's weights: what a checkpoint's bundle can't have. */
static bool has_channel_scales(const ir_op *op) {
    if (op->code != OP_constexpr_blockwise_shift_scale) return false;
    const ir_type *data = &ir_args(op, A_data)->v[0]->type, *scale = &ir_args(op, A_scale)->v[0]->type;
    int last = data->rank - 1;
    return dtype_bits((ir_dtype)data->dtype) == 8 && last >= 1 && data->dim[last] > 1 &&
           scale->dim[last] == 1;
}

static void warn_of_channel_scales(const ir_program *p, str *summary) {
    const char *first = NULL;
    size_t n = 0;
    for (size_t i = 0; i < p->n_func; i++)
        for (size_t k = 0; k < p->func[i]->body.n_op; k++) {
            const ir_op *op = p->func[i]->body.op[k];
            if (has_channel_scales(op) && !n++) first = op->out[0]->name;
        }
    if (n)
        str_printf(
            summary,
            "warning: %zu weight%s in int8 per channel (%s%s), which gives garbage on the GPU delegate\n", n,
            n == 1 ? " is" : "s are", first, n > 1 ? ", ..." : "");
}

bool convert_program(const char *from, const char *out, const convert_options *o, str *summary, err *e) {
    bool asset = ai_asset_is(from), to_asset = o->format && !strcmp(o->format, "coreai");
    if (!refuse_options(o, e)) return false;
    if (asset == to_asset)
        return err_set(e, ERR_USAGE, "%s: is %s already%s", from,
                       asset ? "a Core AI asset" : "a Core ML package",
                       asset ? "; without --format coreai it becomes a package"
                             : "; with --format coreai it becomes an asset");
    if (file_exists(out) && !convert_is_program(out))
        return err_set(e, ERR_USAGE, "%s: holds other things than a program; it is not overwritten", out);
    /* composites as what they are made of: Core ML has no names for them */
    const coreai_options spelled = {.decompose = true};
    coreml_package *p = asset ? coreai_open(from, &spelled, e) : coreml_open(from, e);
    if (!p) return false;
    arena *a = arena_new();
    stage *s = stage_begin(out, o->overwrite, e);
    bool ok =
        s && (to_asset ? write_asset(a, p, stage_path(s), o, e) : write_package(p, stage_path(s), o, e));
    if (ok)
        ok = stage_commit(s, e);
    else
        stage_abort(s);
    if (!ok) err_where(e, "%s", from);
    if (ok && summary)
        str_printf(summary, "%s: %s, from %s\n", out, to_asset ? "Core AI asset" : "Core ML package", from);
    if (ok && summary && to_asset) warn_of_channel_scales(p->model->program, summary);
    arena_free(a);
    coreml_close(p);
    return ok;
}
