#include "base/wire.h"
#include "base/num.h"
#include <stdlib.h>

wire_in wire_open(const void *data, size_t n) {
    return (wire_in){.p = data, .end = (const uint8_t *)data + n, .base = data};
}

static bool fail(wire_in *in, const uint8_t *at) {
    if (!in->bad) in->bad_at = (size_t)(at - in->base);
    in->bad = true;
    in->p = in->end;
    return false;
}

static bool varint(wire_in *in, const uint8_t **p, const uint8_t *end, uint64_t *v) {
    uint64_t r = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        if (*p == end) return fail(in, *p);
        uint8_t b = *(*p)++;
        if (shift == 63 && b > 1) return fail(in, *p - 1);
        r |= (uint64_t)(b & 0x7F) << shift;
        if (b < 0x80) {
            *v = r;
            return true;
        }
    }
    return fail(in, *p);
}

bool wire_next(wire_in *in) {
    if (in->bad || in->p == in->end) return false;
    const uint8_t *start = in->p;
    uint64_t tag;
    if (!varint(in, &in->p, in->end, &tag)) return false;
    in->type = tag & 7;
    if (tag >> 3 == 0 || tag >> 3 > 0x1FFFFFFF) return fail(in, start);
    in->field = (uint32_t)(tag >> 3);
    size_t left = (size_t)(in->end - in->p);
    switch (in->type) {
    case WIRE_VARINT: return varint(in, &in->p, in->end, &in->number);
    case WIRE_FIXED64:
        if (left < 8) return fail(in, start);
        in->number = num_get64(in->p);
        in->p += 8;
        return true;
    case WIRE_FIXED32:
        if (left < 4) return fail(in, start);
        in->number = num_get32(in->p);
        in->p += 4;
        return true;
    case WIRE_BYTES: {
        uint64_t n;
        if (!varint(in, &in->p, in->end, &n)) return false;
        if (n > (uint64_t)(in->end - in->p)) return fail(in, start);
        in->bytes = in->p;
        in->len = (size_t)n;
        in->p += n;
        return true;
    }
    default: return fail(in, start);
    }
}

bool wire_is(wire_in *in, int type) {
    return in->type == type || fail(in, in->p);
}

wire_in wire_message(wire_in *in) {
    wire_in sub = {.p = in->end, .end = in->end, .base = in->base, .depth = in->depth + 1};
    if (!wire_is(in, WIRE_BYTES)) {
        sub.bad = true, sub.bad_at = in->bad_at;
        return sub;
    }
    sub.p = in->bytes;
    sub.end = in->bytes + in->len;
    if (sub.depth > WIRE_MAX_DEPTH) {
        fail(in, in->bytes);
        fail(&sub, in->bytes);
    }
    return sub;
}

bool wire_scalar(wire_in *in, int kind, const uint8_t **at, uint64_t *v) {
    if (in->type != WIRE_BYTES) { /* not packed: one value */
        if (*at || !wire_is(in, kind)) return false;
        *at = in->p;
        *v = in->number;
        return true;
    }
    const uint8_t *end = in->bytes + in->len;
    if (!*at) *at = in->bytes;
    if (*at == end) return false;
    if (kind == WIRE_VARINT) return varint(in, at, end, v);
    size_t size = kind == WIRE_FIXED32 ? 4 : 8;
    if ((size_t)(end - *at) < size) return fail(in, *at);
    *v = size == 4 ? num_get32(*at) : num_get64(*at);
    *at += size;
    return true;
}

void wire_free(wire_out *o) {
    mem_free(o->buf);
    *o = (wire_out){0};
}

size_t wire_size(const wire_out *o) {
    return o->cap - o->at;
}

const uint8_t *wire_data(const wire_out *o) {
    return o->buf + o->at;
}

static uint8_t *room(wire_out *o, size_t n) {
    if (o->at < n) {
        size_t size = o->cap - o->at, cap = o->cap ? o->cap * 2 : 4096;
        if (n > SIZE_MAX / 4 - size) mem_die(n);
        if (cap < size + n) cap = size + n;
        uint8_t *b = mem_alloc(cap);
        if (size) memcpy(b + cap - size, o->buf + o->at, size);
        mem_free(o->buf);
        *o = (wire_out){b, cap, cap - size};
    }
    o->at -= n;
    return o->buf + o->at;
}

void wire_put_bytes(wire_out *o, const void *data, size_t n) {
    uint8_t *p = room(o, n);
    if (n) memcpy(p, data, n);
}

void wire_put_varint(wire_out *o, uint64_t v) {
    uint8_t b[10];
    size_t n = 0;
    do {
        b[n++] = (uint8_t)(v & 0x7F) | 0x80;
        v >>= 7;
    } while (v);
    b[n - 1] &= 0x7F;
    wire_put_bytes(o, b, n);
}

void wire_put_tag(wire_out *o, uint32_t field, int type) {
    wire_put_varint(o, (uint64_t)field << 3 | (unsigned)type);
}

void wire_int(wire_out *o, uint32_t field, int64_t v) {
    wire_put_varint(o, (uint64_t)v);
    wire_put_tag(o, field, WIRE_VARINT);
}

void wire_string(wire_out *o, uint32_t field, const char *s, size_t n) {
    size_t mark = wire_begin(o);
    wire_put_bytes(o, s, n);
    wire_end(o, field, mark);
}

size_t wire_begin(const wire_out *o) {
    return wire_size(o);
}

void wire_end(wire_out *o, uint32_t field, size_t mark) {
    wire_put_varint(o, wire_size(o) - mark);
    wire_put_tag(o, field, WIRE_BYTES);
}
