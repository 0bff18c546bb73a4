/* Reading a text by a grammar, byte by byte: all positions at which it may stand, side by side.
 *
 * A position (item) is a state of a terminal and a stack of frames: where rules go on once what they wait for
 * has ended. Equal frames are one, so stacks share what they have in common. A set of positions is a range of
 * the pool; sets are made one behind the other, and dropped by setting n_item back. */
#ifndef STRUCTURED_READER_H
#define STRUCTURED_READER_H
#include "structured/network.h"

typedef struct {
    uint32_t parent, node, count; /* go on at node of a rule that has counted so far */
    uint32_t next;                /* of the same hash, + 1; later frames come first */
} frame;

typedef struct {
    uint32_t frame; /* 0: the text ends behind the terminal */
    uint32_t state; /* 0: the text has ended (frame 0) */
    uint32_t count; /* characters, up to what matters */
} item;

typedef struct {
    uint32_t node, parent, count, turn;
} visit;

typedef struct {
    const grammar *g;
    heap *home;
    frame *frame; /* [0] is not used */
    item *item;
    uint32_t *bucket; /* frames by hash, + 1 */
    visit *visit;     /* what the set under way has followed already */
    size_t n_frame, n_item, n_bucket, n_visit, cap_frame, cap_item, cap_visit;
    size_t begin; /* of the set under way */
    uint32_t turn;
    bool failed; /* no memory */
} reader;

enum {
    READER_ITEMS = 4096, /* positions of one set; further ones are dropped, so that less is accepted */
    READER_FRAMES = 1 << 22
};

/* False: no memory. */
bool reader_begin(reader *r, const grammar *g, heap *home);
void reader_end(reader *r);
/* Copies from, which has the same grammar, into a new one. */
bool reader_copy(reader *r, const reader *from, heap *home);
void reader_drop_frames(reader *r, size_t n_frame); /* those behind n_frame */
void reader_new_set(reader *r);                     /* at the end of the pool */
bool reader_add(reader *r, item x);                 /* to the set under way, once */
/* Makes a set at the end of the pool: the positions before any byte; those behind a frame; those that follow
 * [from, to) by a byte, markup: only by what terminals of markup accept. How many there are. */
size_t reader_start(reader *r);
size_t reader_behind(reader *r, uint32_t frame);
size_t reader_step(reader *r, size_t from, size_t to, uint8_t byte, bool markup);
/* Whether the text may end at one of these positions, and whether it must. */
bool reader_may_end(const reader *r, const item *x, size_t n);
#endif
