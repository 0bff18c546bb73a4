/* The tables of a main.mlirb while it is read; private to src/coreai. container.c: sections, strings, op
 * names, resources; table.c: types and attributes; tree.c: regions and graphs. */
#ifndef COREAI_BYTECODE_H
#define COREAI_BYTECODE_H
#include "coreai/cursor.h"
#include "coreai/tree.h"

/* How the properties of an op are laid out: one letter an attribute, 'o' for optional ones, which are 0 or 2
 * index + 1. NULL: it has none, or they are not known. */
const char *ai_property_layout(const char *op);

/* Bits of an op's mask. */
enum {
    AI_HAS_ATTRIBUTES = 1,
    AI_HAS_RESULTS = 2,
    AI_HAS_OPERANDS = 4,
    AI_HAS_SUCCESSORS = 8,
    AI_HAS_REGIONS = 16,
    AI_HAS_ORDERS = 32,
    AI_HAS_PROPERTIES = 64
};

typedef struct {
    const char *name;
    const uint8_t *data;
    size_t bytes;
} ai_blob;

typedef struct {
    uint64_t *number;
    uint32_t n;
} ai_property;

typedef struct {
    arena *a;
    err *e;
    const uint8_t *data;
    ai_cursor section[AI_SECTION_COUNT];
    bool has[AI_SECTION_COUNT];
    const char *producer;
    const char **string;
    const char **op; /* names of ops */
    ai_blob *blob;
    ai_type *type;
    ai_attr *attr;
    ai_property *property;
    uint32_t n_string, n_op, n_blob, n_type, n_attr, n_property;
    uint32_t n_value;
    uint64_t values, ops; /* that regions and blocks have announced */
} ai_bytecode;

/* "byte N: ...": always false. */
bool ai_bad(ai_bytecode *b, const ai_cursor *c, err_code code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* The cursor is good; else the error says that what (a noun) is malformed. */
bool ai_good(ai_bytecode *b, const ai_cursor *c, const char *what);

bool ai_read_container(ai_bytecode *b, size_t n);
bool ai_read_tables(ai_bytecode *b);
#endif
