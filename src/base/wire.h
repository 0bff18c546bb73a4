/* Protobuf wire format. Reading: a cursor over borrowed bytes. Writing: back to front into one buffer, so
 * that every length is known when its prefix is written and nothing is measured twice.
 *
 *   wire_in in = wire_open(data, n);
 *   while (wire_next(&in)) switch (in.field) {
 *       case 1: x = wire_int(&in); break;              // varint
 *       case 2: sub = wire_message(&in); break;        // a cursor over the nested message
 *   }                                                  // fields not taken are skipped
 *   if (in.bad) ...                                    // malformed at byte in.bad_at (from data)
 */
#ifndef BASE_WIRE_H
#define BASE_WIRE_H
#include "base/arena.h"
#include <stdbool.h>

#define WIRE_MAX_DEPTH 100

enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

typedef struct {
    const uint8_t *p, *end; /* what is left; after wire_next() p stands behind the field */
    const uint8_t *base;    /* start of the outermost message: offsets in errors count from here */
    uint32_t field;
    uint8_t type;
    uint64_t number;      /* VARINT, FIXED32, FIXED64 */
    const uint8_t *bytes; /* BYTES */
    size_t len;
    int depth;
    bool bad; /* malformed: wire_next() returned false early */
    size_t bad_at;
} wire_in;

wire_in wire_open(const void *data, size_t n);
bool wire_next(wire_in *in);
/* The field as a nested message; bad when it is not a BYTES field or is nested deeper than WIRE_MAX_DEPTH. */
wire_in wire_message(wire_in *in);
/* Values of a field that is repeated and perhaps packed: calls wire_scalar() until it returns false.
 * kind: WIRE_VARINT, WIRE_FIXED32 or WIRE_FIXED64. State is kept in *at (start with NULL). */
bool wire_scalar(wire_in *in, int kind, const uint8_t **at, uint64_t *v);
bool wire_is(wire_in *in, int type); /* the field has this wire type; sets bad if not */

/* The writer grows a buffer downwards: emit the LAST field first. */
typedef struct {
    uint8_t *buf;
    size_t cap, at; /* content is buf[at .. cap) */
} wire_out;

void wire_free(wire_out *o);
size_t wire_size(const wire_out *o);
const uint8_t *wire_data(const wire_out *o);
void wire_put_bytes(wire_out *o, const void *data, size_t n); /* raw, no tag */
void wire_put_varint(wire_out *o, uint64_t v);
void wire_put_tag(wire_out *o, uint32_t field, int type);
void wire_int(wire_out *o, uint32_t field, int64_t v); /* tag + varint, written even when 0 */
void wire_string(wire_out *o, uint32_t field, const char *s, size_t n);
/* A nested message: mark = wire_begin(o); ...fields, last first...; wire_end(o, field, mark). */
size_t wire_begin(const wire_out *o);
void wire_end(wire_out *o, uint32_t field, size_t mark);
#endif
