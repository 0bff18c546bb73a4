/* What the files of the prefix cache share: states, and what is kept of them. */
#ifndef GENERATE_PREFIX_PARTS_H
#define GENERATE_PREFIX_PARTS_H
#include "generate/prefix.h"

/* A state of the artifact, wherever it lies. */
typedef struct {
    size_t package, index; /* index of the session's state, or of contract.carried */
    bool carried;
    size_t bytes;
    /* caches by position: outer times [positions][row bytes]; row 0: it is none */
    size_t outer, positions, row;
} prefix_state;

/* Rows [0, n) of all caches; n ids' worth of points may share them. */
typedef struct {
    size_t refs, n, bytes;
    uint8_t *cut; /* [n] decoder_cuts() */
    char **data;  /* by state that is a cache: outer times [n][row] */
} prefix_rows;

/* A point. */
typedef struct {
    int32_t *ids;
    size_t n, bytes; /* without rows */
    char **data;     /* by state that is no cache */
    prefix_rows *rows;
    decoder *home; /* rows NULL: where they lie, as long as its serial is that */
    uint64_t serial, used;
} prefix_point;

struct prefix_cache {
    const lm *m;
    size_t budget;
    bool points_only;
    prefix_state *state; /* caches first */
    size_t n_state, n_cache;
    prefix_point **point;
    size_t n_point, cap_point;
    uint64_t clock;
    prefix_figures figures;
};

/* ---- prefix_state.c ---- */

bool prefix_find_states(prefix_cache *c, err *e);
/* Where state i of d lies. NULL: no memory. */
char *prefix_memory(const prefix_cache *c, decoder *d, size_t i, bool write, err *e);
/* Clears rows [from, decoder_touched()) of all caches. */
bool prefix_clear(const prefix_cache *c, decoder *d, size_t from, err *e);
/* Bytes that rows of n ids take. */
size_t prefix_rows_bytes(const prefix_cache *c, size_t n);
/* Copies of rows [0, n), held once; NULL: no memory. */
prefix_rows *prefix_rows_copy(const prefix_cache *c, decoder *d, size_t n);
prefix_rows *prefix_rows_new(const prefix_cache *c, size_t n);
void prefix_rows_drop(const prefix_cache *c, prefix_rows *r);
/* Rows [0, n) of r into d; what d had behind them is cleared. */
bool prefix_rows_put(const prefix_cache *c, decoder *d, const prefix_rows *r, size_t n, err *e);
/* Copies of the states that are no caches, by index from n_cache on; *bytes: what they take. NULL: no memory.
 */
char **prefix_others_copy(const prefix_cache *c, decoder *d, size_t *bytes);
bool prefix_others_put(const prefix_cache *c, decoder *d, char **data, err *e);
void prefix_others_free(const prefix_cache *c, char **data);

/* ---- prefix.c ---- */

/* Takes over a point that lies in d, within what was fed to it. */
void prefix_adopt(prefix_cache *c, prefix_point *p);
void prefix_point_free(prefix_cache *c, prefix_point *p);
#endif
