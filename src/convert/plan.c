/* Which packages there are. Every layer and every piece of the head is built and compressed on its own once,
 * to learn what its weights take; nothing of it is kept, and no weight is touched. */
#include "base/file.h"
#include "convert/job.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define RECORD 64 /* where one unit's weights end and the next one's begin: padding to this many bytes */

/* What is laid out in a row: layers, then the head unless it has packages of its own. */
typedef struct {
    uint64_t *bytes;
    size_t n;
} row_of_units;

static bool measure(job *j, models_part part, uint64_t *bytes, err *e) {
    models_graph g;
    if (!job_build_part(j, &part, &g, NULL, e) || !coreml_weight_bytes(g.program, bytes, e)) return false;
    *bytes += RECORD;
    return true;
}

static bool measure_layers(job *j, uint64_t *bytes, err *e) {
    int64_t layers = checkpoint_config(j->c)->layers;
    for (int64_t i = 0; i < layers; i++) {
        if (!measure(j, (models_part){.layer = i, .end_layer = i + 1}, &bytes[i], e)) return false;
        if (bytes[i] > j->max_file_size)
            return err_set(e, ERR_LIMIT,
                           "layer %" PRId64 " takes %" PRIu64 " bytes, more than the %" PRIu64
                           " that a file may have: raise --max-file-size or choose smaller weights",
                           i, bytes[i], j->max_file_size);
    }
    return true;
}

static models_part head_part(const job *j, int64_t piece, int64_t end, bool row) {
    int64_t layers = checkpoint_config(j->c)->layers;
    return (models_part){.layer = layers, .end_layer = layers, .piece = piece, .end_piece = end, .row = row};
}

/* How many groups the units need when none may pass cap: as full as possible from the left. */
static size_t groups_within(const row_of_units *u, uint64_t cap) {
    size_t groups = 1;
    uint64_t sum = 0;
    for (size_t i = 0; i < u->n; i++) {
        bool next = sum + u->bytes[i] > cap;
        groups += next;
        sum = next ? u->bytes[i] : sum + u->bytes[i];
    }
    return groups;
}

/* The least size of the largest of n adjoining groups. */
static uint64_t least_cap(const row_of_units *u, size_t n) {
    uint64_t low = 0, high = 0;
    for (size_t i = 0; i < u->n; i++) {
        if (u->bytes[i] > low) low = u->bytes[i];
        high += u->bytes[i];
    }
    while (low < high) {
        uint64_t mid = low + (high - low) / 2;
        if (groups_within(u, mid) <= n)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

/* Ends of n groups, none empty and none past cap, with the least sum of squares: as even as cap allows. The
 * best ways to cut the first i units into k groups, for all i and k. */
static void even_groups(arena *a, const row_of_units *u, size_t n, uint64_t cap, size_t *end) {
    size_t width = u->n + 1;
    double *least = ARENA_ARRAY(a, double, (n + 1) * width);
    size_t *from = ARENA_ARRAY(a, size_t, (n + 1) * width);
    for (size_t i = 1; i < (n + 1) * width; i++) least[i] = -1; /* impossible */
    for (size_t k = 1; k <= n; k++)
        for (size_t i = k; i <= u->n; i++) {
            uint64_t sum = 0;
            for (size_t first = i; first-- > 0 && (sum += u->bytes[first]) <= cap;) {
                double before = least[(k - 1) * width + first], *here = &least[k * width + i];
                double all = before + (double)sum * (double)sum;
                if (before < 0 || (*here >= 0 && *here <= all)) continue;
                *here = all;
                from[k * width + i] = first;
            }
        }
    for (size_t k = n, i = u->n; k > 0; i = from[k-- * width + i]) end[k - 1] = i;
}

static const char *numbered(const job *j, const char *what, size_t i, size_t n) {
    int width = 1;
    for (size_t x = n; x >= 10; x /= 10) width++;
    return arena_printf(j->a, "%s_%0*zu_of_%zu.mlpackage", what, width, i + 1, n);
}

/* How many chunks: those asked for, else as few as fit. */
static bool count_chunks(job *j, const row_of_units *u, err *e) {
    size_t fewest = groups_within(u, j->max_file_size);
    j->n_chunk = j->chunks ? (size_t)j->chunks : fewest;
    if (j->n_chunk > u->n)
        return err_set(e, ERR_USAGE, "--chunks %zu: at most %zu for this model: its layers%s", j->n_chunk,
                       u->n, u->n > (size_t)checkpoint_config(j->c)->layers ? " and its head" : "");
    if (j->n_chunk < fewest)
        return err_set(e, ERR_LIMIT,
                       "--chunks %zu: the largest file would have %" PRIu64
                       " bytes; %zu chunks fit the limit of %" PRIu64,
                       j->n_chunk, least_cap(u, j->n_chunk), fewest, j->max_file_size);
    return true;
}

static void add_chunks(job *j, const row_of_units *u, const size_t *end, bool head_apart) {
    int64_t layers = checkpoint_config(j->c)->layers, first = 0;
    for (size_t i = 0; i < j->n_chunk; i++) {
        job_package *p = &j->package[j->n_package++];
        bool last = end[i] == u->n;
        p->part = (models_part){.layer = first, .end_layer = (int64_t)end[i], .row = head_apart};
        if (p->part.end_layer > layers) p->part.end_layer = layers;
        if (last && !head_apart) p->part.end_piece = models_head_pieces(j->work);
        p->name = j->n_chunk == 1 && !head_apart ? PACKAGE_NAME : numbered(j, "chunk", i, j->n_chunk);
        first = p->part.end_layer;
    }
}

/* Packages for the head's pieces, as few as fit. */
static bool add_heads(job *j, const row_of_units *u, err *e) {
    for (size_t i = 0; i < u->n; i++)
        if (u->bytes[i] > j->max_file_size)
            return err_set(e, ERR_LIMIT,
                           "the head's rows from %zu on take %" PRIu64 " bytes, more than the %" PRIu64
                           " that a file may have: raise --max-file-size or choose smaller weights",
                           i * MODELS_HEAD_ROWS, u->bytes[i], j->max_file_size);
    size_t n = groups_within(u, j->max_file_size), *end = ARENA_ARRAY(j->a, size_t, n);
    even_groups(j->a, u, n, least_cap(u, n), end);
    for (size_t i = 0; i < n; i++) {
        job_package *p = &j->package[j->n_package++];
        p->part = head_part(j, i ? (int64_t)end[i - 1] : 0, (int64_t)end[i], true);
        p->name = numbered(j, "head", i, n);
    }
    return true;
}

static bool plan_chunks(job *j, err *e) {
    int64_t layers = checkpoint_config(j->c)->layers, pieces = models_head_pieces(j->work);
    row_of_units row = {ARENA_ARRAY(j->a, uint64_t, (size_t)layers + 1), (size_t)layers};
    row_of_units head = {ARENA_ARRAY(j->a, uint64_t, (size_t)pieces), (size_t)pieces};
    uint64_t whole;
    if (!measure_layers(j, row.bytes, e) || !measure(j, head_part(j, 0, pieces, false), &whole, e))
        return false;
    bool apart = whole > j->max_file_size;
    for (int64_t i = 0; apart && i < pieces; i++)
        if (!measure(j, head_part(j, i, i + 1, true), &head.bytes[i], e)) return false;
    if (!apart) row.bytes[row.n++] = whole;
    if (!count_chunks(j, &row, e)) return false;
    size_t *end = ARENA_ARRAY(j->a, size_t, j->n_chunk);
    even_groups(j->a, &row, j->n_chunk, least_cap(&row, j->n_chunk), end);
    j->package = ARENA_ARRAY(j->a, job_package, j->n_chunk + (size_t)pieces);
    add_chunks(j, &row, end, apart);
    return !apart || add_heads(j, &head, e);
}

/* A table of halves can't hold what overflows them: fp32 then, unless fp16 was asked for. */
static void settle_table(job *j) {
    job_table *t = &j->table;
    ir_dtype taken_as;
    t->tensor = models_embedding(j->work, &taken_as);
    bool overflows = j->graph_options.precision != PRECISION_FLOAT32 && taken_as == DT_FP32;
    if (!t->tensor || !overflows || t->kind != EMBEDDING_FP16 || j->o->table) return;
    t->kind = EMBEDDING_FP32;
    t->name = job_table_name(j);
}

bool job_plan(job *j, err *e) {
    j->work = models_begin(j->a, j->c, &j->graph_options, e);
    if (!j->work) return false;
    settle_table(j);
    if (j->graph_options.preset == PRESET_CHUNKS) return plan_chunks(j, e);
    j->package = ARENA_ARRAY(j->a, job_package, 1);
    j->package[0] = (job_package){.name = j->coreai         ? job_asset_name(j)
                                          : j->only_package ? j->only_package
                                                            : PACKAGE_NAME,
                                  .part = models_whole(j->work)};
    j->n_package = 1;
    return true;
}
