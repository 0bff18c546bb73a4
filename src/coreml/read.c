/* Models and descriptions. */
#include "coreml/read.h"
#include "base/num.h"
#include "base/str.h"
#include "coreml/schema.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

bool read_bad(reader *r, const wire_in *in, err_code code, const char *fmt, ...) {
    char text[700];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    size_t at = in->bad ? in->bad_at : (size_t)((in->bytes ? in->bytes : in->p) - in->base);
    const char *f = r->f ? r->f->name : NULL, *op = f ? r->op_type : NULL, *name = op ? r->op_name : NULL;
    return err_set(r->e, code, "byte %zu: %s%.100s%s%.100s%s%.100s%s%s", at, f ? "function " : "", f ? f : "",
                   op ? ", op " : "", op ? op : "", name ? " " : "", name ? name : "", f ? ": " : "", text);
}

bool read_done(reader *r, const wire_in *in) {
    if (!in->bad) return r->e->code == ERR_NONE;
    if (in->depth > WIRE_MAX_DEPTH)
        return read_bad(r, in, ERR_FORMAT, "protobuf nested deeper than %d levels", WIRE_MAX_DEPTH);
    return read_bad(r, in, ERR_FORMAT, "malformed protobuf");
}

const char *read_text(reader *r, wire_in *in) {
    if (!wire_is(in, WIRE_BYTES)) {
        read_done(r, in);
        return NULL;
    }
    const char *s = (const char *)in->bytes;
    if (utf8_valid(s, in->len) != in->len || memchr(s, 0, in->len)) {
        read_bad(r, in, ERR_FORMAT, "text that is not UTF-8");
        return NULL;
    }
    return arena_strn(r->a, s, in->len);
}

bool read_number(reader *r, wire_in *in, uint64_t *v) {
    if (!wire_is(in, WIRE_VARINT)) return read_done(r, in);
    *v = in->number;
    return true;
}

bool read_map_entry(reader *r, wire_in *in, read_entry *entry) {
    wire_in m = wire_message(in);
    *entry = (read_entry){"", m, false};
    while (wire_next(&m)) {
        if (m.field == ENTRY_KEY && !(entry->key = read_text(r, &m))) return false;
        if (m.field != ENTRY_VALUE) continue;
        entry->value = m;
        entry->has_value = true;
    }
    if (!read_done(r, &m)) return false;
    if (!entry->has_value) { /* an absent value is an empty one */
        entry->value.type = WIRE_BYTES;
        entry->value.bytes = m.end;
        entry->value.len = 0;
    }
    return true;
}

/* The field as a repeated int64 sizes, all of them >= 0. */
static bool read_sizes(reader *r, wire_in *m, int64_t dim[IR_MAX_RANK], int *rank) {
    const uint8_t *at = NULL;
    uint64_t v;
    while (wire_scalar(m, WIRE_VARINT, &at, &v)) {
        if (*rank == IR_MAX_RANK)
            return read_bad(r, m, ERR_UNSUPPORTED, "a shape of more than %d dimensions", IR_MAX_RANK);
        if (v > INT64_MAX) return read_bad(r, m, ERR_FORMAT, "size %" PRId64 " in a shape", (int64_t)v);
        dim[(*rank)++] = (int64_t)v;
    }
    return read_done(r, m);
}

static bool read_enumerated(reader *r, wire_in *in, coreml_feature *f) {
    wire_in m = wire_message(in);
    int64_t(*shape)[IR_MAX_RANK] = NULL;
    size_t cap = 0;
    while (wire_next(&m)) {
        if (m.field != 1) continue;
        shape = arena_grow(r->a, shape, f->n_shapes, &cap, f->n_shapes + 1, sizeof *shape);
        wire_in s = wire_message(&m);
        int rank = 0;
        memset(shape[f->n_shapes], 0, sizeof *shape);
        while (wire_next(&s))
            if (s.field == 1 && !read_sizes(r, &s, shape[f->n_shapes], &rank)) return false;
        if (!read_done(r, &s)) return false;
        if (f->type.rank != rank && (f->n_shapes || !f->no_shape))
            return read_bad(r, &m, ERR_INVALID, "enumerated shapes of different rank");
        f->type.rank = (int8_t)rank;
        f->n_shapes++;
    }
    f->shapes = (const int64_t(*)[IR_MAX_RANK])shape;
    if (f->no_shape && shape) memcpy(f->type.dim, shape[0], sizeof *shape);
    return read_done(r, &m);
}

static bool read_ranges(reader *r, wire_in *in, coreml_feature *f) {
    wire_in m = wire_message(in);
    coreml_range *range = ARENA_ARRAY(r->a, coreml_range, IR_MAX_RANK);
    int n = 0;
    while (wire_next(&m)) {
        if (m.field != 1) continue;
        if (n == IR_MAX_RANK)
            return read_bad(r, &m, ERR_UNSUPPORTED, "ranges of more than %d dimensions", IR_MAX_RANK);
        uint64_t lower = 0, upper = 0;
        wire_in s = wire_message(&m);
        while (wire_next(&s)) {
            if (s.field == 1 && !read_number(r, &s, &lower)) return false;
            if (s.field == 2 && !read_number(r, &s, &upper)) return false;
        }
        if (!read_done(r, &s)) return false;
        if (lower > INT64_MAX) return read_bad(r, &s, ERR_FORMAT, "a range from %" PRIu64, lower);
        range[n++] = (coreml_range){(int64_t)lower, (int64_t)upper < 0 ? -1 : (int64_t)upper};
    }
    if (!read_done(r, &m)) return false;
    if (f->no_shape) {
        f->type.rank = (int8_t)n;
        for (int i = 0; i < n; i++) f->type.dim[i] = range[i].lower;
    } else if (f->type.rank != n) {
        return read_bad(r, &m, ERR_INVALID, "%d ranges for a shape of rank %d", n, f->type.rank);
    }
    f->range = range;
    return true;
}

static bool read_default(reader *r, wire_in *m, coreml_feature *f) {
    f->has_default = true;
    if (m->field == ARRAY_DEFAULT_INT) {
        f->default_dtype = DT_INT32;
        f->default_value = (double)(int32_t)m->number;
        return wire_is(m, WIRE_VARINT) || read_done(r, m);
    }
    if (m->field == ARRAY_DEFAULT_FLOAT) {
        f->default_dtype = DT_FP32;
        f->default_value = (double)num_bits_f32((uint32_t)m->number);
        return wire_is(m, WIRE_FIXED32) || read_done(r, m);
    }
    f->default_dtype = DT_FP64;
    memcpy(&f->default_value, &m->number, sizeof m->number);
    return wire_is(m, WIRE_FIXED64) || read_done(r, m);
}

/* The field as an ArrayFeatureType. */
static bool read_array(reader *r, wire_in *in, coreml_feature *f) {
    wire_in whole = wire_message(in), m = whole;
    uint64_t code = 0;
    int rank = 0;
    while (wire_next(&m)) {
        if (m.field == ARRAY_DTYPE && !read_number(r, &m, &code)) return false;
        if (m.field == ARRAY_SHAPE && !read_sizes(r, &m, f->type.dim, &rank)) return false;
        if (m.field == ARRAY_DEFAULT_INT || m.field == ARRAY_DEFAULT_FLOAT || m.field == ARRAY_DEFAULT_DOUBLE)
            if (!read_default(r, &m, f)) return false;
    }
    if (!read_done(r, &m)) return false;
    f->type.dtype = (uint8_t)schema_by_array(code);
    if (f->type.dtype == DT_NONE)
        return read_bad(r, &m, ERR_UNSUPPORTED, "feature %s: unknown multi-array element type %" PRIu64,
                        f->name, code);
    f->type.rank = (int8_t)rank;
    f->no_shape = !rank;
    for (m = whole; wire_next(&m);) {
        if (m.field == ARRAY_ENUMERATED && !read_enumerated(r, &m, f)) return false;
        if (m.field == ARRAY_RANGE && !read_ranges(r, &m, f)) return false;
    }
    return true;
}

/* The field as a FeatureType. */
static bool read_feature_type(reader *r, wire_in *in, coreml_feature *f) {
    static const char *const others[TYPE_LAST + 1] = {"", "int64",      "double",   "string", "image",
                                                      "", "dictionary", "sequence", ""};
    wire_in m = wire_message(in);
    uint64_t optional = 0;
    bool set = false;
    while (wire_next(&m)) {
        if (m.field == TYPE_OPTIONAL && !read_number(r, &m, &optional)) return false;
        if (!m.field || m.field > TYPE_LAST) continue;
        set = true;
        if (m.field == TYPE_MULTI_ARRAY) {
            if (!read_array(r, &m, f)) return false;
        } else if (m.field == TYPE_STATE) {
            f->type.kind = IR_STATE;
            wire_in s = wire_message(&m);
            while (wire_next(&s))
                if (s.field == 1 && !read_array(r, &s, f)) return false;
            if (!read_done(r, &s)) return false;
            if (!f->type.dtype) return read_bad(r, &s, ERR_FORMAT, "state %s without a type", f->name);
        } else {
            f->other = others[m.field];
            f->other_type = (ir_string){(const char *)in->bytes, in->len};
            f->no_shape = true;
        }
    }
    f->optional = optional != 0;
    return read_done(r, &m) && (set || read_bad(r, &m, ERR_FORMAT, "feature %s without a type", f->name));
}

typedef struct {
    coreml_feature *v;
    size_t n, cap;
} features;

/* The field as a FeatureDescription. */
static bool read_feature(reader *r, wire_in *in, features *list) {
    wire_in whole = wire_message(in), m = whole;
    coreml_feature f = {.name = ""};
    bool typed = false;
    while (wire_next(&m)) {
        if (m.field == FEATURE_NAME && !(f.name = read_text(r, &m))) return false;
        if (m.field == FEATURE_DESCRIPTION && !(f.description = read_text(r, &m))) return false;
    }
    if (!read_done(r, &m)) return false;
    for (m = whole; wire_next(&m);) {
        if (m.field != FEATURE_TYPE) continue;
        if (!read_feature_type(r, &m, &f)) return false;
        typed = true;
    }
    if (!typed) return read_bad(r, &whole, ERR_FORMAT, "feature %s without a type", f.name);
    list->v = arena_grow(r->a, list->v, list->n, &list->cap, list->n + 1, sizeof f);
    list->v[list->n++] = f;
    return true;
}

/* Field numbers of the six things that ModelDescription and FunctionDescription have in common. */
typedef struct {
    uint32_t name, in, out, state, predicted, probabilities;
} function_fields;

static bool read_function_desc(reader *r, wire_in m, const function_fields *id, coreml_function *f) {
    features in = {0}, out = {0}, state = {0};
    while (wire_next(&m)) {
        if (m.field == id->in && !read_feature(r, &m, &in)) return false;
        if (m.field == id->out && !read_feature(r, &m, &out)) return false;
        if (m.field == id->state && !read_feature(r, &m, &state)) return false;
        if (m.field == id->predicted && !(f->predicted = read_text(r, &m))) return false;
        if (m.field == id->probabilities && !(f->probabilities = read_text(r, &m))) return false;
        if (id->name && m.field == id->name && !(f->name = read_text(r, &m))) return false;
    }
    *f = (coreml_function){f->name, in.v,    out.v,        state.v,         in.n,
                           out.n,   state.n, f->predicted, f->probabilities};
    return read_done(r, &m);
}

static bool read_metadata(reader *r, wire_in *in, coreml_model *model) {
    wire_in m = wire_message(in);
    size_t cap = 0;
    while (wire_next(&m)) {
        const char **text = m.field == META_DESCRIPTION ? &model->short_description
                            : m.field == META_VERSION   ? &model->version
                            : m.field == META_AUTHOR    ? &model->author
                            : m.field == META_LICENSE   ? &model->license
                                                        : NULL;
        if (text && !(*text = read_text(r, &m))) return false;
        if (m.field != META_USER) continue;
        read_entry entry;
        if (!read_map_entry(r, &m, &entry)) return false;
        const char *value = read_text(r, &entry.value);
        if (!value) return false;
        model->user =
            arena_grow(r->a, model->user, model->n_user, &cap, model->n_user + 1, sizeof *model->user);
        model->user[model->n_user++] = (coreml_pair){entry.key, value};
    }
    return read_done(r, &m);
}

static bool read_description(reader *r, wire_in *in, coreml_model *model) {
    static const function_fields top = {0,          DESC_INPUT,     DESC_OUTPUT,
                                        DESC_STATE, DESC_PREDICTED, DESC_PROBABILITIES};
    static const function_fields listed = {FUNC_DESC_NAME,  FUNC_DESC_INPUT,     FUNC_DESC_OUTPUT,
                                           FUNC_DESC_STATE, FUNC_DESC_PREDICTED, FUNC_DESC_PROBABILITIES};
    wire_in whole = wire_message(in), m = whole;
    coreml_function *main_f = ARENA_NEW(r->a, coreml_function), *list = NULL;
    size_t n = 0, cap = 0;
    main_f->name = model->default_function = "main";
    if (!read_function_desc(r, whole, &top, main_f)) return false;
    while (wire_next(&m)) {
        if (m.field == DESC_METADATA && !read_metadata(r, &m, model)) return false;
        if (m.field == DESC_DEFAULT_FUNCTION && !(model->default_function = read_text(r, &m))) return false;
        model->multifunction |= m.field == DESC_DEFAULT_FUNCTION || m.field == DESC_FUNCTION;
        if (m.field != DESC_FUNCTION) continue;
        list = arena_grow(r->a, list, n, &cap, n + 1, sizeof *list);
        list[n] = (coreml_function){.name = ""};
        if (!read_function_desc(r, wire_message(&m), &listed, &list[n++])) return false;
    }
    if (!read_done(r, &m)) return false;
    if (model->multifunction && main_f->n_in + main_f->n_out + main_f->n_state)
        return read_bad(r, &whole, ERR_INVALID,
                        "the description lists functions and has inputs or outputs outside of them");
    model->func = model->multifunction ? list : main_f;
    model->n_func = model->multifunction ? n : 1;
    return true;
}

static coreml_model *read_one(reader *r, wire_in m);

static bool read_pipeline(reader *r, wire_in *in, coreml_model *model) {
    wire_in m = wire_message(in);
    size_t cap_part = 0, cap_name = 0, n_name = 0;
    while (wire_next(&m)) {
        if (m.field == PIPELINE_MODEL) {
            coreml_model *part = read_one(r, wire_message(&m));
            if (!part) return false;
            model->part =
                arena_grow(r->a, model->part, model->n_part, &cap_part, model->n_part + 1, sizeof part);
            model->part[model->n_part++] = part;
        } else if (m.field == PIPELINE_NAME) {
            const char *name = read_text(r, &m);
            if (!name) return false;
            model->part_name = arena_grow(r->a, model->part_name, n_name, &cap_name, n_name + 1, sizeof name);
            model->part_name[n_name++] = name;
        }
    }
    if (!read_done(r, &m)) return false;
    if (!n_name) { /* names are optional */
        model->part_name = ARENA_ARRAY(r->a, const char *, model->n_part);
        for (size_t i = 0; i < model->n_part; i++) model->part_name[i] = "";
    } else if (n_name != model->n_part) {
        return read_bad(r, &m, ERR_FORMAT, "%zu names for %zu models of a pipeline", n_name, model->n_part);
    }
    return true;
}

static const char *other_model(uint32_t field) {
    return field == 500 || field == 403 || field == 303 ? "a neural network"
           : field == 200 || field == 201               ? "a classifier or regressor pipeline"
                                                        : "another type";
}

static coreml_model *read_one(reader *r, wire_in m) {
    coreml_model *model = ARENA_NEW(r->a, coreml_model);
    wire_in whole = m;
    uint64_t spec = 0;
    uint32_t other = 0;
    bool described = false;
    model->a = r->a;
    while (wire_next(&m)) {
        if (m.field == MODEL_SPEC && !read_number(r, &m, &spec)) return NULL;
        if (m.field == MODEL_PROGRAM && !(model->program = read_program(r, &m))) return NULL;
        if (m.field == MODEL_PIPELINE && !read_pipeline(r, &m, model)) return NULL;
        if (m.field >= MODEL_FIRST_TYPE && m.field != MODEL_PROGRAM && m.field != MODEL_PIPELINE)
            other = m.field;
        if (m.field != MODEL_DESCRIPTION) continue;
        if (!read_description(r, &m, model)) return NULL;
        described = true;
    }
    if (!read_done(r, &m)) return NULL;
    bool ok = true;
    if (other)
        ok = read_bad(r, &whole, ERR_UNSUPPORTED,
                      "the model is %s (field %" PRIu32 "), expected an ML Program: convert its source with "
                      "convert_to=\"mlprogram\"",
                      other_model(other), other);
    else if (spec < IR_SPEC_MIN || spec > IR_SPEC_MAX)
        ok = read_bad(r, &whole, ERR_UNSUPPORTED, "specification version %" PRIu64 ", expected %d to %d",
                      spec, IR_SPEC_MIN, IR_SPEC_MAX);
    else if (!model->program && !model->n_part)
        ok = read_bad(r, &whole, ERR_FORMAT, "no ML Program");
    else if (model->program && model->n_part)
        ok = read_bad(r, &whole, ERR_FORMAT, "both an ML Program and a pipeline");
    else if (!described)
        ok = read_bad(r, &whole, ERR_FORMAT, "no description");
    model->spec = (int)spec;
    return ok ? model : NULL;
}

coreml_model *read_model(arena *a, coreml_files *files, const char *what, const void *data, size_t n,
                         err *e) {
    reader r = {.a = a, .scratch = arena_new(), .files = files, .e = e};
    coreml_model *m = read_one(&r, wire_open(data, n));
    arena_free(r.scratch);
    if (!m) err_where(e, "%s", what);
    return m;
}
