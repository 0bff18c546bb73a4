/* Inside of the reply parser: the readers of one call. They take a byte at a time, so that cuts of the text
 * can't matter. */
#ifndef TEXT_REPLY_CALL_H
#define TEXT_REPLY_CALL_H
#include "text/reply.h"

/* What a reader says about the byte it was given. */
typedef enum {
    CALL_MORE,
    CALL_DONE, /* this was the last byte of the call; its closing tag is to follow */
    CALL_BAD   /* this byte can't be part of a call */
} call_state;

/* What a reader found; the owner takes it from there. */
typedef struct {
    str name;      /* the tool's */
    bool named;    /* name is complete */
    str arguments; /* text of JSON that is new */
    size_t unread; /* CALL_BAD: so many bytes, the last ones, weren't taken for anything yet */
} call_found;

#define SCAN_DEPTH 128

/* Checks JSON byte by byte. */
typedef struct {
    unsigned char state;
    unsigned char resume; /* behind a string */
    unsigned char left;   /* hexadecimal digits to come */
    const char *literal;  /* what is left of true, false, null */
    size_t depth;
    char open[SCAN_DEPTH]; /* '{', '[' */
} json_scan;

enum {
    SCAN_VALUE,     /* a value must begin */
    SCAN_FIRST,     /* a value, or the end of the array */
    SCAN_FIRST_KEY, /* a key, or the end of the object */
    SCAN_KEY,       /* a key must begin */
    SCAN_COLON,     /* behind a key */
    SCAN_NEXT,      /* behind a value */
    SCAN_STRING,    /* inside of one */
    SCAN_ESCAPE,    /* behind its \ */
    SCAN_HEX,       /* behind its \u */
    SCAN_LITERAL,   /* inside of true, false, null */
    SCAN_MINUS,     /* numbers: where they are */
    SCAN_ZERO,      /* these three and the last may end */
    SCAN_INTEGER,   /* */
    SCAN_FRACTION,  /* */
    SCAN_POINT,     /* a digit must come */
    SCAN_E,         /* a sign or a digit */
    SCAN_SIGN,      /* a digit */
    SCAN_EXPONENT   /* may end */
};

/* False: c can't come here. A raw control character in a string passes; its owner spells it out. At SCAN_NEXT
 * with depth 0, the value is complete. */
bool scan_byte(json_scan *s, unsigned char c);
bool scan_in_number(const json_scan *s);
/* Appends c; inside of a string a control character is spelled out. */
void scan_copy(str *out, const json_scan *before, unsigned char c);
bool is_json_space(unsigned char c);

/* {"name": ..., "arguments": {...}} */
typedef struct {
    json_scan scan;
    str key, value;
    unsigned char member; /* which one is read */
    bool in_value, has_name, has_arguments, streaming;
} call_json;
call_state call_json_byte(call_json *j, unsigned char c, call_found *f);
void call_json_free(call_json *j);

/* <function=NAME> <parameter=NAME> value </parameter> ... </function> */
typedef struct {
    unsigned char state;
    str held;       /* the beginning of a tag, perhaps */
    str key;        /* of the parameter */
    str value;      /* what was read of it; not of one that streams */
    unsigned types; /* that the parameter may have */
    bool begun;     /* the first newline of the value was passed */
    arena *a;       /* names of the parameters */
    const char **keys;
    size_t count, cap;
} call_xml;
call_state call_xml_byte(call_xml *x, unsigned char c, const json *tools, call_found *f);
void call_xml_free(call_xml *x);

/* Types of JSON Schema, as bits. */
enum { TYPE_STRING = 1, TYPE_NUMBER = 2, TYPE_BOOLEAN = 4, TYPE_NULL = 8, TYPE_ARRAY = 16, TYPE_OBJECT = 32 };
/* What the tool's definition says about a parameter; TYPE_STRING when it says nothing. */
unsigned tool_parameter_types(const json *tools, const str *tool, const str *parameter);
/* Appends the JSON of a value written as text: of one of the types where it can be read as such, else a
 * string. */
void typed_value(str *out, const char *s, size_t n, unsigned types);
#endif
