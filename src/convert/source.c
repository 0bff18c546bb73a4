/* In which dtype the source is to be read. Converters that trace a model load it in a dtype of one's choice
 * first; float16 is the usual one and the unsafe one. Nothing is traced here: every tensor is read as it is
 * stored, and rounded once, where the package has it narrower. So the choice can only be confirmed, or
 * refused with the reason. */
#include "convert/job.h"
#include <string.h>

static const char *const names[] = {"float16", "bfloat16", "float32"};
static const ir_dtype types[] = {DT_FP16, DT_BF16, DT_FP32};

static const char *name_of(ir_dtype d) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i] == d) return names[i];
    return dtype_name(d);
}

/* The dtype that most of the checkpoint's bytes have. */
static ir_dtype checkpoint_dtype(const checkpoint *c) {
    int64_t bytes[DT_COUNT] = {0};
    ir_dtype most = DT_FP32;
    for (size_t i = 0; i < checkpoint_count(c); i++) {
        const ir_type *t = &checkpoint_at(c, i)->type;
        if (dtype_is_float(t->dtype)) bytes[t->dtype] += ir_type_bytes(t);
        if (bytes[t->dtype] > bytes[most]) most = t->dtype;
    }
    return most;
}

const char *job_source_dtype(const job *j) {
    return j->o->source_dtype ? j->o->source_dtype : name_of(checkpoint_dtype(j->c));
}

bool job_check_source(job *j, err *e) {
    const char *asked = j->o->source_dtype;
    if (!asked) return true;
    size_t i = 0;
    while (i < sizeof names / sizeof *names && strcmp(names[i], asked)) i++;
    if (i == sizeof names / sizeof *names)
        return err_set(e, ERR_USAGE, "--source-dtype %.50s: expected float16, bfloat16 or float32", asked);
    ir_dtype is = checkpoint_dtype(j->c);
    if (types[i] == DT_FP32 || types[i] == is) return true; /* fp32 holds every bf16 and fp16 value */
    if (types[i] == DT_FP16)
        return err_set(
            e, ERR_FORMAT,
            "%s: holds %s: cast to float16 first, values and mask constants beyond 65504 become "
            "infinite, then NaN, and small values vanish; every tensor is read as it is stored: leave "
            "--source-dtype out",
            j->dir, name_of(is));
    return err_set(
        e, ERR_FORMAT,
        "%s: holds %s: cast to %s first, its values lose bits; every tensor is read as it is stored: "
        "leave --source-dtype out",
        j->dir, name_of(is), asked);
}
