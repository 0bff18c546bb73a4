/* Reading a serialized Model message. read.c: models and descriptions; read_program.c: functions, blocks,
 * ops; read_value.c: types and constants. */
#ifndef COREML_READ_H
#define COREML_READ_H
#include "base/wire.h"
#include "coreml/files.h"

/* Names of one function or block; the enclosing one's names are visible too. */
typedef struct read_scope {
    struct read_scope *up;
    map *names; /* -> value id; NULL as long as there are none */
} read_scope;

typedef struct {
    arena *a;       /* the model's */
    arena *scratch; /* of this reading */
    coreml_files *files;
    ir_program *p;
    ir_function *f;
    const char *op_type,
        *op_name; /* of the op that is being read, for errors; NULL outside or when it has none */
    read_scope *scope;
    ir_value **value; /* named values of the function, by id */
    size_t cap_value;
    err *e;
} reader;

/* Sets the error "byte N: function F, op O: message"; at is any place in the message in. Always false. */
bool read_bad(reader *r, const wire_in *in, err_code code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* After a loop of wire_next(): the message was well-formed and nothing failed. */
bool read_done(reader *r, const wire_in *in);
/* The field as text: valid UTF-8 without NUL, in the model's arena. NULL on error. */
const char *read_text(reader *r, wire_in *in);
/* The field as a number. */
bool read_number(reader *r, wire_in *in, uint64_t *v);
typedef struct {
    const char *key;
    wire_in value; /* the field that holds the value, when has_value */
    bool has_value;
} read_entry;
/* The field as the entry of a map with text keys. entry->value stands on the value field: use
 * wire_message(&value) or read_text(r, &value). */
bool read_map_entry(reader *r, wire_in *in, read_entry *entry);

/* The field as a ValueType. opaque: where the bytes of a list, tuple or dictionary type go; NULL to refuse
 * them. */
bool read_value_type(reader *r, wire_in *in, ir_type *t, ir_string *opaque);
/* The field as a Value. NULL on error. */
const ir_const *read_value(reader *r, wire_in *in);
/* The field as a MILSpec.Program. NULL on error. */
ir_program *read_program(reader *r, wire_in *in);

/* A serialized Model message, which stays in memory as long as the model. what names it in errors. NULL on
 * error. */
coreml_model *read_model(arena *a, coreml_files *files, const char *what, const void *data, size_t n, err *e);
#endif
