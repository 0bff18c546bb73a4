/* Types and constants. */
#include "base/num.h"
#include "coreml/read.h"
#include "coreml/schema.h"
#include <inttypes.h>
#include <string.h>

static bool read_dim(reader *r, wire_in *in, int64_t *dim) {
    wire_in m = wire_message(in);
    bool set = false;
    while (wire_next(&m)) {
        if (m.field != DIM_CONSTANT && m.field != DIM_UNKNOWN) continue;
        bool constant = m.field == DIM_CONSTANT;
        wire_in size = wire_message(&m);
        *dim = constant ? 0 : IR_DIM_UNKNOWN;
        set = true;
        while (wire_next(&size)) {
            uint64_t v;
            if (size.field != 1) continue;
            if (!read_number(r, &size, &v)) return false;
            if (constant && v > INT64_MAX)
                return read_bad(r, &size, ERR_FORMAT, "size %" PRIu64 " is too large", v);
            if (constant)
                *dim = (int64_t)v;
            else if (v)
                return read_bad(r, &size, ERR_UNSUPPORTED, "a tensor type with a variadic dimension");
        }
        if (!read_done(r, &size)) return false;
    }
    return read_done(r, &m) && (set || read_bad(r, &m, ERR_FORMAT, "a dimension without a size"));
}

static bool read_tensor_type(reader *r, wire_in *in, ir_type *t) {
    wire_in m = wire_message(in);
    uint64_t code = 0, rank = 0;
    int n = 0;
    *t = (ir_type){.kind = IR_TENSOR};
    while (wire_next(&m)) {
        if (m.field == TENSOR_DTYPE && !read_number(r, &m, &code)) return false;
        if (m.field == TENSOR_RANK && !read_number(r, &m, &rank)) return false;
        if (m.field != TENSOR_DIM) continue;
        if (n == IR_MAX_RANK)
            return read_bad(r, &m, ERR_UNSUPPORTED, "a tensor of more than %d dimensions", IR_MAX_RANK);
        if (!read_dim(r, &m, &t->dim[n++])) return false;
    }
    if (!read_done(r, &m)) return false;
    t->dtype = (uint8_t)schema_by_mil(code);
    if (t->dtype == DT_NONE) return read_bad(r, &m, ERR_UNSUPPORTED, "unknown element type %" PRIu64, code);
    if ((int64_t)rank < 0) return read_bad(r, &m, ERR_UNSUPPORTED, "a tensor type of any rank");
    if (rank != (uint64_t)n)
        return read_bad(r, &m, ERR_FORMAT, "tensor type of rank %" PRIu64 " with %d dimensions", rank, n);
    t->rank = (int8_t)n;
    return true;
}

/* A value type that is carried along must at least be well-formed. */
static bool check_types(reader *r, wire_in *in) {
    wire_in m = wire_message(in);
    while (wire_next(&m)) {
        ir_type t;
        if (m.field == VTYPE_TENSOR) {
            if (!read_tensor_type(r, &m, &t)) return false;
            continue;
        }
        wire_in sub = wire_message(&m);
        while (wire_next(&sub))
            if (!(m.field == VTYPE_LIST && sub.field == 2) && !check_types(r, &sub))
                return false; /* 2: a length */
        if (!read_done(r, &sub)) return false;
    }
    return read_done(r, &m);
}

bool read_value_type(reader *r, wire_in *in, ir_type *t, ir_string *opaque) {
    wire_in whole = *in, m = wire_message(in);
    bool set = false;
    while (wire_next(&m)) {
        if (m.field == VTYPE_TENSOR) {
            if (!read_tensor_type(r, &m, t)) return false;
        } else if (m.field == VTYPE_STATE) {
            wire_in wrapped = wire_message(&m);
            bool inner = false;
            while (wire_next(&wrapped)) {
                if (wrapped.field != 1) continue;
                if (!read_value_type(r, &wrapped, t, NULL)) return false;
                if (t->kind != IR_TENSOR) return read_bad(r, &m, ERR_FORMAT, "a state that wraps no tensor");
                inner = true;
            }
            if (!read_done(r, &wrapped)) return false;
            if (!inner) return read_bad(r, &m, ERR_FORMAT, "a state without a type");
            t->kind = IR_STATE;
        } else if (m.field >= VTYPE_LIST && m.field <= VTYPE_DICTIONARY) {
            if (!opaque)
                return read_bad(r, &m, ERR_UNSUPPORTED,
                                "a list, tuple or dictionary here; expected a tensor");
            if (!check_types(r, &whole)) return false;
            *t = (ir_type){.kind = IR_OPAQUE};
            *opaque = (ir_string){(const char *)whole.bytes, whole.len};
        } else
            continue;
        set = true;
    }
    return read_done(r, &m) && (set || read_bad(r, &m, ERR_FORMAT, "a value without a type"));
}

/* Field of TensorValue -> wire type of its elements, bytes of each in memory (0: by dtype). */
static int element_wire(int field) {
    if (field == TENSOR_FLOATS) return WIRE_FIXED32;
    return field == TENSOR_DOUBLES ? WIRE_FIXED64 : WIRE_VARINT;
}

static void put_element(uint8_t *dst, unsigned size, uint64_t v) {
    for (unsigned i = 0; i < size; i++) dst[i] = (uint8_t)(v >> 8 * i);
}

static bool element_fits(ir_dtype d, uint64_t v) {
    switch (d) {
    case DT_BOOL: return v <= 1;
    case DT_INT16: return (int64_t)v >= INT16_MIN && (int64_t)v <= INT16_MAX;
    case DT_UINT16: return v <= UINT16_MAX;
    case DT_INT32: return (int64_t)v >= INT32_MIN && (int64_t)v <= UINT32_MAX; /* some write -1 in 5 bytes */
    default: return true;
    }
}

/* Elements of a TensorValue's repeated field: numbers. */
static bool read_elements(reader *r, wire_in *values, ir_const *c, int field) {
    unsigned size = dtype_bits(c->type.dtype) / 8;
    int kind = element_wire(field);
    uint64_t count = (uint64_t)ir_type_count(&c->type), n = 0;
    /* An element takes a byte at least: a count that the message can't hold is refused before memory is
     * taken. */
    if (count > (uint64_t)(values->end - values->p))
        return read_bad(r, values, ERR_FORMAT, "constant of %s: the message ends before its values",
                        ir_type_text(r->a, &c->type));
    uint8_t *data = arena_array(r->a, (size_t)count, size);
    while (wire_next(values)) {
        const uint8_t *at = NULL;
        uint64_t v;
        if (values->field != 1) continue;
        while (wire_scalar(values, kind, &at, &v)) {
            if (n == count)
                return read_bad(r, values, ERR_FORMAT, "constant of %s has more values",
                                ir_type_text(r->a, &c->type));
            if (!element_fits(c->type.dtype, v))
                return read_bad(r, values, ERR_FORMAT, "value %" PRId64 " does not fit %s", (int64_t)v,
                                dtype_name(c->type.dtype));
            put_element(data + n++ * size, size, v);
        }
    }
    if (!read_done(r, values)) return false;
    if (n != count)
        return read_bad(r, values, ERR_FORMAT, "constant of %s has %" PRIu64 " values",
                        ir_type_text(r->a, &c->type), n);
    c->data = data;
    c->bytes = (size_t)count * size;
    return true;
}

static bool read_bytes(reader *r, wire_in *values, ir_const *c) {
    const uint8_t *bytes = NULL;
    size_t len = 0;
    while (wire_next(values)) {
        if (values->field != 1 || !wire_is(values, WIRE_BYTES)) continue;
        bytes = values->bytes;
        len = values->len;
    }
    if (!read_done(r, values)) return false;
    if (len != c->bytes)
        return read_bad(r, values, ERR_FORMAT, "constant of %s has %zu bytes, expected %zu",
                        ir_type_text(r->a, &c->type), len, c->bytes);
    /* Copied, so that elements are aligned. */
    c->data = arena_copy(r->a, bytes, len);
    return true;
}

static bool read_strings(reader *r, wire_in *values, ir_const *c) {
    uint64_t count = (uint64_t)ir_type_count(&c->type), n = 0;
    if (count > (uint64_t)(values->end - values->p))
        return read_bad(r, values, ERR_FORMAT, "constant of %s: the message ends before its values",
                        ir_type_text(r->a, &c->type));
    ir_string *s = ARENA_ARRAY(r->a, ir_string, (size_t)count);
    while (wire_next(values)) {
        if (values->field != 1 || !wire_is(values, WIRE_BYTES)) continue;
        if (n == count)
            return read_bad(r, values, ERR_FORMAT, "constant of %s has more values",
                            ir_type_text(r->a, &c->type));
        s[n++] = (ir_string){arena_strn(r->a, (const char *)values->bytes, values->len), values->len};
    }
    if (!read_done(r, values)) return false;
    if (n != count)
        return read_bad(r, values, ERR_FORMAT, "constant of %s has %" PRIu64 " values",
                        ir_type_text(r->a, &c->type), n);
    c->data = s;
    c->bytes = (size_t)count * sizeof *s;
    return true;
}

/* The field as a TensorValue. */
static bool read_tensor(reader *r, wire_in *in, ir_const *c) {
    static const char *const names[] = {"",        "floats",   "ints",    "bools",
                                        "strings", "longInts", "doubles", "bytes"};
    uint32_t field = TENSOR_NONE, want = schema_of(c->type.dtype)->field;
    if (ir_type_bytes(&c->type) < 0)
        return read_bad(r, in, ERR_FORMAT, "constant of %s: expected known sizes that memory can hold",
                        ir_type_text(r->a, &c->type));
    wire_in m = wire_message(in), values = m;
    while (wire_next(&m)) {
        if (m.field < TENSOR_FLOATS || m.field > TENSOR_BYTES) continue;
        field = m.field;
        values = wire_message(&m);
    }
    if (!read_done(r, &m)) return false;
    if (field != want && !(field == TENSOR_NONE && ir_type_count(&c->type) == 0))
        return read_bad(r, in, ERR_FORMAT, "constant of %s holds %s, expected %s",
                        ir_type_text(r->a, &c->type), field ? names[field] : "nothing", names[want]);
    if (field == TENSOR_NONE) return true;
    if (field == TENSOR_STRINGS) return read_strings(r, &values, c);
    return field == TENSOR_BYTES ? read_bytes(r, &values, c) : read_elements(r, &values, c, (int)field);
}

static bool check_opaque(reader *r, wire_in *in);

/* Tuples, lists and dictionaries of Values: kept as they are, so only checked. */
static bool check_values(reader *r, wire_in *in, bool pairs) {
    wire_in m = wire_message(in);
    while (wire_next(&m)) {
        if (m.field != 1) continue;
        if (!pairs) {
            if (!check_opaque(r, &m)) return false;
            continue;
        }
        wire_in pair = wire_message(&m);
        while (wire_next(&pair))
            if (!check_opaque(r, &pair)) return false;
        if (!read_done(r, &pair)) return false;
    }
    return read_done(r, &m);
}

static bool check_opaque(reader *r, wire_in *in) {
    wire_in m = wire_message(in);
    while (wire_next(&m)) {
        if (m.field == VALUE_BLOB)
            return read_bad(r, &m, ERR_UNSUPPORTED, "a weight file reference inside a list or dictionary");
        if (m.field == VALUE_TYPE && !check_types(r, &m)) return false;
        if (m.field != VALUE_IMMEDIATE) continue;
        wire_in v = wire_message(&m);
        while (wire_next(&v))
            if (v.field >= IMMEDIATE_TUPLE && v.field <= IMMEDIATE_DICTIONARY &&
                !check_values(r, &v, v.field == IMMEDIATE_DICTIONARY))
                return false;
        if (!read_done(r, &v)) return false;
    }
    return read_done(r, &m);
}

static const ir_const *read_opaque(reader *r, wire_in *in) {
    ir_const *c = ARENA_NEW(r->a, ir_const);
    c->type.kind = IR_OPAQUE;
    c->data = in->bytes;
    c->bytes = in->len;
    return check_opaque(r, in) ? c : NULL;
}

static const ir_const *read_immediate(reader *r, wire_in *in, const ir_type *t) {
    wire_in m = wire_message(in);
    ir_const *c = ARENA_NEW(r->a, ir_const);
    c->type = *t;
    c->bytes = ir_type_bytes(t) > 0 ? (size_t)ir_type_bytes(t) : 0;
    bool set = false;
    while (wire_next(&m)) {
        if (m.field != IMMEDIATE_TENSOR) continue;
        if (!read_tensor(r, &m, c)) return NULL;
        set = true;
    }
    if (!read_done(r, &m)) return NULL;
    if (!set) {
        read_bad(r, &m, ERR_FORMAT, "constant of %s holds no tensor", ir_type_text(r->a, t));
        return NULL;
    }
    return c;
}

static const ir_const *read_blob(reader *r, wire_in *in, const ir_type *t) {
    wire_in m = wire_message(in);
    const char *file = NULL;
    uint64_t offset = 0;
    while (wire_next(&m)) {
        if (m.field == BLOB_FILE && !(file = read_text(r, &m))) return NULL;
        if (m.field == BLOB_OFFSET && !read_number(r, &m, &offset)) return NULL;
    }
    if (!read_done(r, &m)) return NULL;
    if (!file) {
        read_bad(r, &m, ERR_FORMAT, "a weight file reference without a file name");
        return NULL;
    }
    err inner = {0};
    const ir_const *c = files_const(r->files, file, offset, t, &inner);
    if (!c) read_bad(r, &m, inner.code, "%s", inner.msg);
    return c;
}

const ir_const *read_value(reader *r, wire_in *in) {
    wire_in whole = *in, m = wire_message(in), held = m;
    ir_type t = {0};
    ir_string opaque;
    bool typed = false;
    uint32_t field = 0;
    while (wire_next(&m)) {
        if (m.field == VALUE_TYPE) {
            if (!read_value_type(r, &m, &t, &opaque)) return NULL;
            typed = true;
        } else if (m.field == VALUE_IMMEDIATE || m.field == VALUE_BLOB) {
            field = m.field;
            held = m;
        }
    }
    if (!read_done(r, &m)) return NULL;
    if (!typed || !field) {
        read_bad(r, &m, ERR_FORMAT, "a constant without a %s", typed ? "value" : "type");
        return NULL;
    }
    if (t.kind == IR_OPAQUE) return read_opaque(r, &whole);
    if (t.kind == IR_STATE) {
        read_bad(r, &m, ERR_FORMAT, "a constant of a state type");
        return NULL;
    }
    return field == VALUE_BLOB ? read_blob(r, &held, &t) : read_immediate(r, &held, &t);
}
