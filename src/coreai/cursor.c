#include "coreai/cursor.h"
#include "base/num.h"

bool ai_spoil(ai_cursor *c) {
    if (!c->bad) c->bad_at = (size_t)(c->p - c->base);
    c->bad = true;
    c->p = c->end;
    return false;
}

uint8_t ai_byte(ai_cursor *c) {
    if (c->p == c->end) return (uint8_t)ai_spoil(c);
    return *c->p++;
}

uint64_t ai_varint(ai_cursor *c) {
    if (c->p == c->end) return ai_spoil(c);
    uint8_t first = *c->p;
    size_t n = first ? (size_t)__builtin_ctz(first) : 8;
    if (ai_left(c) <= n) return ai_spoil(c);
    uint64_t v = 0;
    if (n == 8) {
        v = num_get64(c->p + 1);
    } else {
        for (size_t i = n + 1; i--;) v = v << 8 | c->p[i];
        v >>= n + 1;
    }
    c->p += n + 1;
    return v;
}

int64_t ai_signed(ai_cursor *c) {
    uint64_t v = ai_varint(c);
    return (int64_t)(v >> 1 ^ -(v & 1));
}

uint64_t ai_flagged(ai_cursor *c, bool *flag) {
    uint64_t v = ai_varint(c);
    *flag = v & 1;
    return v >> 1;
}

uint32_t ai_index(ai_cursor *c, uint64_t limit) {
    const uint8_t *p = c->p;
    uint64_t v = ai_varint(c);
    if (!c->bad && v < limit && v < UINT32_MAX) return (uint32_t)v;
    if (!c->bad) c->p = p;
    return ai_spoil(c);
}

uint32_t ai_count(ai_cursor *c) {
    const uint8_t *p = c->p;
    uint64_t v = ai_varint(c);
    if (!c->bad && v <= ai_left(c) && v < UINT32_MAX) return (uint32_t)v;
    if (!c->bad) c->p = p;
    return ai_spoil(c);
}

ai_cursor ai_take(ai_cursor *c, uint64_t n) {
    if (n > ai_left(c)) ai_spoil(c);
    ai_cursor part = *c;
    if (c->bad) return part;
    part.end = c->p += n;
    return part;
}

bool ai_align(ai_cursor *c, uint64_t alignment) {
    if (!alignment || alignment & (alignment - 1)) return ai_spoil(c);
    while ((uint64_t)(c->p - c->base) & (alignment - 1)) {
        if (c->p == c->end || *c->p != 0xCB) return ai_spoil(c);
        c->p++;
    }
    return !c->bad;
}

ai_cursor ai_section(ai_cursor *c, uint8_t *id) {
    uint8_t head = ai_byte(c);
    uint64_t n = ai_varint(c);
    if (head & 0x80) ai_align(c, ai_varint(c));
    *id = head & 0x7F;
    if (*id >= AI_SECTION_COUNT) ai_spoil(c);
    return ai_take(c, n);
}
