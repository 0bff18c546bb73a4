/* Protobuf messages written by hand: P(M(502, I(1, 1), S(2, "text"))) is a message with a nested one in field
 * 502. A deliberately plain second writer, so that the reader is not tested with the product's own. */
#ifndef PROTO_H
#define PROTO_H
#include "base/arena.h"
#include <string.h>

typedef struct {
    const uint8_t *p;
    size_t n;
} bytes;

static arena *proto_arena; /* of the running test */

static inline bytes proto_varint(uint64_t v) {
    uint8_t b[10];
    size_t n = 0;
    for (; v >= 0x80; v >>= 7) b[n++] = (uint8_t)(v | 0x80);
    b[n++] = (uint8_t)v;
    return (bytes){arena_copy(proto_arena, b, n), n};
}

/* part[] ends with PROTO_END. */
static inline bytes proto_join(const bytes *part) {
    size_t len = 0, n = 0, at = 0;
    while (part[n].n != SIZE_MAX) len += part[n++].n;
    uint8_t *p = arena_alloc(proto_arena, len + 1);
    for (size_t i = 0; i < n; at += part[i++].n)
        if (part[i].n) memcpy(p + at, part[i].p, part[i].n);
    return (bytes){p, len};
}

/* The arguments stand here once: twice, in macros nested this deep, would be thousands of times. */
#define PROTO_END                                                                                            \
    { NULL, SIZE_MAX }
#define P(...) proto_join((const bytes[]){__VA_ARGS__, PROTO_END})

static inline bytes proto_tag(uint32_t field, int type) {
    return proto_varint((uint64_t)field << 3 | (unsigned)type);
}

/* varint field, text field, bytes field, message field */
static inline bytes I(uint32_t field, int64_t v) {
    return P(proto_tag(field, 0), proto_varint((uint64_t)v));
}
static inline bytes B(uint32_t field, bytes b) {
    return P(proto_tag(field, 2), proto_varint(b.n), b);
}
static inline bytes S(uint32_t field, const char *s) {
    return B(field, (bytes){(const uint8_t *)s, strlen(s)});
}
#define M(field, ...) B(field, P(__VA_ARGS__))
static const bytes NIL = {NULL, 0};

/* MIL: a tensor type (field VALUE_TYPE / NAMED_TYPE = 2), dimensions, a named value, ops. */
static inline bytes dim(int64_t n) {
    return n < 0 ? M(3, M(2, NIL)) : M(3, M(1, n ? I(1, n) : NIL));
}
#define TENSOR(dtype, rank, ...) M(2, M(1, I(1, dtype), I(2, rank), __VA_ARGS__))
#define NAMED(field, name, type) M(field, S(1, name), type)
#define ENTRY(field, key, ...)   M(field, S(1, key), M(2, __VA_ARGS__))
/* operand bound by name; attribute "name" */
#define BOUND(key, name) ENTRY(2, key, M(1, S(1, name)))
#define OPNAME(name)     ENTRY(5, "name", TENSOR(2, 0, NIL), M(3, M(1, M(4, S(1, name)))))
/* a const op: value is an ImmediateValue's TensorValue field */
#define CONST(name, type, ...)                                                                               \
    M(3, S(1, "const"), NAMED(3, name, type), OPNAME(name), ENTRY(5, "val", type, M(3, M(1, __VA_ARGS__))))
/* a whole model, specification version 9: function "main" with the block's fields, description with the given
 * fields */
#define MODEL(inputs, description, ...)                                                                      \
    P(I(1, 9), M(2, description),                                                                            \
      M(502, I(1, 1), ENTRY(2, "main", inputs, S(2, "CoreML8"), ENTRY(3, "CoreML8", __VA_ARGS__))))
#endif
