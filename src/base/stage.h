/* Atomic replacement of a file or directory: everything is written to a staging place beside the target,
 * synced, then exchanged with it (renameat2), so that a kill, a crash or a full disk leaves the complete old
 * output or the complete new one, and a later run removes what is left of an interrupted one. */
#ifndef BASE_STAGE_H
#define BASE_STAGE_H
#include "base/arena.h"
#include "base/err.h"

typedef struct stage stage;

/* Locks the target against a second writer (ERR_IO, "is being written by another process"), clears leftovers
 * of dead ones, and makes the staging directory. ERR_IO when target exists and overwrite is not set: nothing
 * is touched. */
stage *stage_begin(const char *target, bool overwrite, err *e);
const char *stage_path(const stage *s); /* the staging directory: write here */
/* Syncs the tree and puts it in place of the target. Frees s, also on failure. */
bool stage_commit(stage *s, err *e);
void stage_abort(stage *s); /* removes the staging directory; NULL is allowed */
/* Removes the staging directories of all stages that are open in this process. Async-signal-safe enough for
 * an exit path: called by the CLI's signal thread or atexit, never by the library. */
void stage_abort_all(void);
#endif
