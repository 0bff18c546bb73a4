/* The host table: rows of the embedding tensor. */
#include "base/file.h"
#include "convert/job.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool fill_rows(void *ctx, int64_t first, int64_t n, float *out, err *e) {
    job *j = ctx;
    const st_tensor *t = j->table.tensor;
    uint64_t width = (uint64_t)t->type.dim[1], at = (uint64_t)first * width, count = (uint64_t)n * width;
    st_floats(t, at, count, out);
    st_drop(t, at, count);
    return job_report_written(j, (uint64_t)(first + n) * embedding_row_bytes(j->table.kind, (int64_t)width),
                              e);
}

static const char *shared_place(const job *j) {
    return arena_printf(j->a, "%s/%s", j->into, j->table.name);
}

/* A table that lies where this one is to go must be the same, or may be replaced. */
static bool compare_with_present(job *j, err *e) {
    const char *place = shared_place(j);
    char digest[SHA256_HEX];
    uint64_t bytes;
    if (!file_exists(place)) return true;
    if (file_is_dir(place))
        return err_set(e, ERR_IO, "%s: is a directory; the table is to lie there", place);
    if (!sha256_file(place, digest, &bytes, e)) return false;
    j->table.kept = bytes == j->table.file.bytes && !strcmp(digest, j->table.file.sha256);
    return j->table.kept || j->o->overwrite ||
           err_set(e, ERR_IO,
                   "%s: another table is there; --overwrite replaces it, and what was converted with it must "
                   "then "
                   "be converted again",
                   place);
}

bool job_write_table(job *j, err *e) {
    job_table *t = &j->table;
    if (!t->tensor) return true;
    const char *path = job_staged(j, t->name);
    if (!embedding_write(path, t->kind, t->tensor->type.dim[0], t->tensor->type.dim[1], fill_rows, j, e) ||
        !sha256_file(path, t->file.sha256, &t->file.bytes, e))
        return false;
    j->written_bytes = j->weight[0].end;
    return !j->into || compare_with_present(j, e);
}

bool job_place_table(job *j, err *e) {
    if (!j->into || !j->table.tensor) return true;
    const char *from = job_staged(j, j->table.name), *place = shared_place(j);
    if (j->table.kept ? unlink(from) : rename(from, place))
        return err_errno(e, "%s: can't put the table in place", place);
    return true;
}
