/* A cursor over bytecode: MLIR's variable-length numbers, sections and padding. It never reads behind its
 * end: what isn't there is 0, and the cursor bad from then on. */
#ifndef COREAI_CURSOR_H
#define COREAI_CURSOR_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    const uint8_t *base; /* of the file: padding is relative to it */
    const uint8_t *p, *end;
    bool bad;
    size_t bad_at;
} ai_cursor;

static inline size_t ai_left(const ai_cursor *c) {
    return (size_t)(c->end - c->p);
}
static inline size_t ai_at(const ai_cursor *c) {
    return c->bad ? c->bad_at : (size_t)(c->p - c->base);
}
/* Nothing is read any more. Always false. */
bool ai_spoil(ai_cursor *c);
uint8_t ai_byte(ai_cursor *c);
/* The number of zero bits at the end of the first byte says how many bytes follow; 0: eight. */
uint64_t ai_varint(ai_cursor *c);
/* The same, folded: 0, -1, 1, -2 ... */
int64_t ai_signed(ai_cursor *c);
/* A number whose lowest bit is a flag. */
uint64_t ai_flagged(ai_cursor *c, bool *flag);
/* A number below limit: an index, or a count of things that take at least a byte each. Else 0, and bad. */
uint32_t ai_index(ai_cursor *c, uint64_t limit);
/* How many things follow that take at least a byte each. */
uint32_t ai_count(ai_cursor *c);
/* The next n bytes as a cursor of their own; bad when there aren't as many. */
ai_cursor ai_take(ai_cursor *c, uint64_t n);
/* Skips padding (bytes 0xCB) up to a multiple of alignment, a power of two. */
bool ai_align(ai_cursor *c, uint64_t alignment);

enum {
    AI_SECTION_STRING,
    AI_SECTION_DIALECT,
    AI_SECTION_ATTRIBUTE,
    AI_SECTION_ATTRIBUTE_OFFSET,
    AI_SECTION_IR,
    AI_SECTION_RESOURCE,
    AI_SECTION_RESOURCE_OFFSET,
    AI_SECTION_DIALECT_VERSION,
    AI_SECTION_PROPERTY,
    AI_SECTION_COUNT
};
/* The next section: which, and its content. */
ai_cursor ai_section(ai_cursor *c, uint8_t *id);
#endif
