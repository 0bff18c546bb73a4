/* Constants into a file, in one pass: at most STORE_BLOCK bytes of them are in memory, mapped sources are
 * dropped once they are written. */
#ifndef IR_STORE_H
#define IR_STORE_H
#include "base/err.h"
#include "base/sha256.h"
#include "ir/program.h"

#define STORE_BLOCK (16u << 20)

/* Called with the number of bytes that were written since the last call; false cancels the writing
 * (ERR_CANCELLED). */
typedef bool store_progress_fn(void *ctx, uint64_t bytes);

typedef struct {
    int fd;
    const char *path;                /* borrowed */
    uint64_t at;                     /* bytes put so far */
    uint64_t written, flushed, told; /* in the file, being synced, reported */
    uint8_t *piece;                  /* what was put behind `written` */
    uint8_t *block;                  /* for fill jobs; NULL until the first one */
    sha256 *hash;                    /* of the file, if the caller sets it before anything is put; NULL */
    store_progress_fn *progress;
    void *ctx;
    err *e;
} ir_store;

/* Makes the file, mode 0644; progress may be NULL. False: nothing is open. */
bool ir_store_open(ir_store *s, const char *path, store_progress_fn *progress, void *ctx, err *e);
bool ir_store_put(ir_store *s, const void *data, size_t n);
/* The packed bytes of a constant. */
bool ir_store_const(ir_store *s, const ir_const *c);
/* keep: what was put is there afterwards. Closes in any case; the file of one that failed is the caller's. */
bool ir_store_close(ir_store *s, bool keep);
#endif
