/* Stop strings in text that comes in pieces: nothing of a stop string, nor what follows it, gets through. */
#ifndef SERVER_STOP_H
#define SERVER_STOP_H
#include "base/str.h"

/* A stop string: not empty, UTF-8. */
typedef struct {
    const char *s;
    size_t n;
} stop_string;

typedef struct {
    const stop_string *stop; /* borrowed */
    size_t n;
    str held;   /* the beginning of one, perhaps */
    bool found; /* nothing gets through any more */
} stopper;

void stopper_begin(stopper *p, const stop_string *stop, size_t n);
/* Appends to out what is certain of the text so far. True once a stop string is complete. */
bool stopper_push(stopper *p, const char *text, size_t n, str *out);
/* The text ends here: appends what was held back. */
void stopper_flush(stopper *p, str *out);
void stopper_free(stopper *p);
#endif
