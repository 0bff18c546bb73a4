/* Whether a reply repeats itself without end: a small model that takes the likeliest token may. */
#ifndef CHAT_LOOPS_H
#define CHAT_LOOPS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LOOPS_PERIOD = 128, /* tokens of what is repeated, at most */
    LOOPS_TIMES = 8,    /* so often, */
    LOOPS_TOKENS = 160  /* and over at least so many tokens */
};

/* Zero-initialise. */
typedef struct {
    int32_t last[LOOPS_PERIOD];     /* a ring of the last ids */
    uint32_t run[LOOPS_PERIOD + 1]; /* by period: ids in a row that equal the one a period before */
    uint64_t n;
} loops;

/* One more id. True: the last ones are one sequence, again and again. */
bool loops_add(loops *l, int32_t id);
#endif
