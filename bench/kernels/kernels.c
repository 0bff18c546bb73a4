/* Speed of the linear kernels beside the limits of the machine, measured in the same minute.
 *
 *     kernels_bench [-t THREADS] [-n ROWS_OF_X] [-c COLS] [-a] [-s SECONDS] [-i ISA] [-k KIND] [-p PATH]
 *
 * Every kind of weight that the kernel tests have rows of, x number path x instruction set, with COLS columns
 * (1024) and, in palettes, groups of 32 rows; -a: every row of the tests, with its own columns and blocks.
 *
 * n = 1: GB/s of weight bytes (codes, scales, tables), streamed from 512 MiB in huge pages ("memory") and
 * from a weight that stays in the second-level cache ("cache"), and the share of the best plain read of the
 * same memory. n > 1: GFLOP/s (2 * n * rows * cols) on the cached weight and on one of 16 MiB, and the share
 * of the path's products in registers. See timing.h for how figures are taken; threads run together.
 */
#define _GNU_SOURCE
#include "cases.h"
#include "timing.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MEMORY ((int64_t)512 << 20)
#define SIDE   ((int64_t)64 << 20) /* scales, offsets; tables */

typedef struct {
    timing t;
    int n;
    int64_t cols;
    bool all;
    const char *isa, *kind, *path;
} options;

static uint8_t *data, *scales, *tables;

/* Bytes that are sane as fp16 and fp32, too. */
static void fill(uint8_t *p, int64_t bytes) {
    uint64_t s = 1;
    for (int64_t i = 0; i < bytes; i += 8) {
        s = s * 6364136223846793005u + 1442695040888963407u;
        uint64_t v = (s ^ s >> 29) & 0xBFFFBFFFBFFFBFFFu;
        memcpy(p + i, &v, 8);
    }
}

/* ---- weights ---- */

static double size_of(kern_type type) {
    static const double sizes[] = {
        [KERN_F32] = 4, [KERN_F16] = 2, [KERN_I8] = 1, [KERN_U8] = 1, [KERN_I4] = 0.5, [KERN_U4] = 0.5};
    return sizes[type];
}

/* Bytes of a row: its elements, its share of what its blocks have. */
typedef struct {
    double elements, scales, tables;
} row_size;

static row_size row_of(const weight_case *c) {
    double blocks = c->block_cols ? (double)c->cols / (double)c->block_cols : 1;
    if (c->block_rows) blocks /= (double)c->block_rows;
    bool whole = !c->block_rows && !c->block_cols; /* one block: nothing a row */
    row_size s = {(double)c->cols * (c->bits ? c->bits / 8.0 : size_of(c->type)), 0, 0};
    if (c->scale && !whole) s.scales += blocks * size_of(c->scale_type);
    if (c->offset && !whole) s.scales += blocks * size_of(c->offset_type);
    if (c->bits && !whole) s.tables = blocks * (1 << c->bits) * size_of(c->type);
    return s;
}

static double row_bytes(const weight_case *c) {
    row_size s = row_of(c);
    return s.elements + s.scales + s.tables;
}

static kern_weight weight_of(const weight_case *c, int64_t rows) {
    kern_weight w = {.rows = rows, .cols = c->cols, .type = c->type, .data = data, .bits = c->bits};
    w.block_rows = c->block_rows ? c->block_rows : rows;
    w.block_cols = c->block_cols ? c->block_cols : c->cols;
    w.scale_type = c->scale_type, w.offset_type = c->offset_type;
    if (c->bits) w.table = tables, w.table_type = c->type;
    if (c->scale) w.scale = scales;
    if (c->offset) w.offset = scales + SIDE / 2;
    return w;
}

/* Rows that pieces are made of: whole blocks, and a multiple of 32. */
static int64_t unit_of(const weight_case *c) {
    int64_t unit = 32;
    while (c->block_rows && unit % c->block_rows) unit += 32;
    return unit;
}

/* ---- one kernel ---- */

typedef struct {
    kern_linear job;
    kern_choice choice;
    int64_t rows; /* a bin */
} bench;

static void linear_piece(void *ctx, int64_t i) {
    bench *b = ctx;
    b->choice.run(&b->job, i * b->rows, (i + 1) * b->rows);
}

/* How many pieces of so many rows fill `bytes`, as far as there is room. */
static int64_t pieces_of(const options *o, const weight_case *c, int64_t rows, double bytes) {
    row_size s = row_of(c);
    double most = bytes / row_bytes(c), side = (double)SIDE / 2;
    if (s.scales > 0 && side / s.scales < most) most = side / s.scales;
    if (s.tables > 0 && side / s.tables < most) most = side / s.tables;
    int64_t pieces = (int64_t)(most / (double)rows);
    return pieces < o->t.threads ? o->t.threads : pieces;
}

/* On a weight of `bytes` bytes in bins of about `bin` bytes. Nothing is run when the path has no kernel. */
static speed run(const options *o, const kern_table *k, const weight_case *kind, kern_path path, double bytes,
                 double bin, kern_choice *c) {
    int64_t unit = unit_of(kind), rows = (int64_t)(bin / row_bytes(kind)) / unit * unit;
    rows = rows < unit ? unit : rows;
    int64_t pieces = pieces_of(o, kind, rows, bytes);
    kern_weight w = weight_of(kind, rows * pieces);
    *c = kern_choose(k, &w, path, o->n);
    if (c->path != path) return (speed){0, 0};
    size_t xs = (size_t)(w.cols * o->n), px = kern_x_bytes(c->form, w.cols, o->n);
    float *x = malloc(xs * 4), *y = aligned_alloc(64, ((size_t)(w.rows * o->n) * 4 + 127) / 64 * 64);
    void *prepared = aligned_alloc(64, px / 64 * 64 + 64);
    for (size_t i = 0; i < xs; i++) x[i] = (float)(i * 2654435761u % 1000) * 1e-3f - 0.5f;
    if (c->prepare) c->prepare(prepared, x, w.cols, w.cols, 0, o->n);
    bench b[MOST_THREADS];
    void *ctx[MOST_THREADS];
    for (int t = 0; t < o->t.threads; t++) {
        b[t] = (bench){{.w = &w,
                        .x = c->prepare ? prepared : x,
                        .n = o->n,
                        .ldx = w.cols,
                        .y = y,
                        .ldy = w.rows,
                        .scratch = aligned_alloc(64, c->scratch / 64 * 64 + 64)},
                       *c,
                       rows};
        ctx[t] = &b[t];
    }
    double units = o->n > 1 ? 2.0 * (double)(rows * w.cols * o->n) : (double)rows * row_bytes(kind);
    speed s = timing_run(&o->t, linear_piece, ctx, pieces, units * 1e-9);
    for (int t = 0; t < o->t.threads; t++) free(b[t].job.scratch);
    free(x), free(y), free(prepared);
    return s;
}

/* ---- all of them ---- */

#define READ ((int64_t)2 << 20)
static double read_roof(const options *o) {
    return timing_read(&o->t, data, READ, MEMORY / READ).best * 1e-9;
}

/* Limits of an instruction set by path, measured when first asked for. */
typedef struct {
    double best;
    const char *name;
} roof;

static const roof *path_roof(const options *o, const kern_table *k, kern_path path, roof *known) {
    static const char *const names[KERN_PATHS] = {"fp32", "int16", "bf16", "int8"};
    roof *r = &known[path];
    if (!r->name) r->best = timing_roof(&o->t, k->isa, names[path], &r->name).best * 1e-9;
    return r;
}

static void one(const options *o, const kern_table *k, const weight_case *kind, kern_path path, roof *known) {
    kern_choice c;
    if (o->path && strcmp(o->path, kern_path_name[path]) != 0) return;
    speed cache = run(o, k, kind, path, 384 << 10, 192 << 10, &c);
    if (c.path != path) return;
    speed memory = run(o, k, kind, path, o->n > 1 ? 16 << 20 : (double)MEMORY - (1 << 20), 1 << 20, &c);
    printf("| %s | %lld | %s | %s | %.1f | %.1f (%.1f) |", kind->name, (long long)kind->cols,
           kern_path_name[path], k->isa, cache.best, memory.best, memory.median);
    if (o->n == 1) {
        printf(" %.0f %% |\n", 100 * memory.best / read_roof(o));
    } else {
        const roof *r = path_roof(o, k, path, known);
        printf(" %.0f %% of %.0f, %s |\n", 100 * memory.best / r->best, r->best, r->name);
    }
    fflush(stdout);
}

/* The first row of its name. */
static bool is_first(int row) {
    for (int i = 0; i < row; i++)
        if (!strcmp(weight_cases[i].name, weight_cases[row].name)) return false;
    return true;
}

/* The row as it is, or its kind with the columns asked for; false: a row above is of this kind. */
static bool kind_of(const options *o, int row, weight_case *kind) {
    *kind = weight_cases[row];
    if (o->kind && strcmp(o->kind, kind->name) != 0) return false;
    if (o->all) return true;
    if (!is_first(row)) return false;
    kind->cols = o->cols;
    if (kind->bits && !kind->block_cols && kind->type == KERN_F16) kind->block_rows = 32;
    return !kind->block_cols || kind->cols % kind->block_cols == 0;
}

static void all_kinds(const options *o, const kern_table *k) {
    roof known[KERN_PATHS] = {{0, NULL}};
    weight_case kind;
    for (int i = 0; i < n_weight_cases; i++)
        for (int path = 0; path < KERN_PATHS && kind_of(o, i, &kind); path++)
            one(o, k, &kind, (kern_path)path, known);
}

static bool has_kind(const char *name) {
    for (int i = 0; i < n_weight_cases; i++)
        if (!strcmp(weight_cases[i].name, name)) return true;
    fprintf(stderr, "there is no kind '%s'; there are:", name);
    for (int i = 0; i < n_weight_cases; i++)
        if (is_first(i)) fprintf(stderr, " '%s'", weight_cases[i].name);
    fputc('\n', stderr);
    return false;
}

static bool parse(options *o, int argc, char **argv) {
    for (int c; (c = getopt(argc, argv, "t:n:c:s:i:k:p:a")) != -1;) {
        if (c == 't') o->t.threads = atoi(optarg);
        if (c == 'n') o->n = atoi(optarg);
        if (c == 'c') o->cols = atoll(optarg);
        if (c == 's') o->t.seconds = atof(optarg);
        if (c == 'a') o->all = true;
        if (c == 'i') o->isa = optarg;
        if (c == 'k') o->kind = optarg;
        if (c == 'p') o->path = optarg;
        if (c == '?') return false;
    }
    if (o->t.threads < 1 || o->t.threads > MOST_THREADS || o->n < 1 || o->cols < 64)
        return fputs("1 to 16 threads, 1 row of x or more, 64 columns or more\n", stderr), false;
    return !o->kind || has_kind(o->kind);
}

int main(int argc, char **argv) {
    options o = {.t = {.threads = 1, .seconds = 0.3}, .n = 1, .cols = 1024};
    if (!parse(&o, argc, argv)) return 2;
    fill(data = timing_memory(MEMORY), MEMORY);
    fill(scales = timing_memory(SIDE), SIDE);
    tables = timing_memory(SIDE);
    for (int64_t i = 0; i < SIDE / 2; i++) { /* fp16 of 0.06 to 0.25, both signs: like a palette */
        uint16_t h = (uint16_t)(0x2C00 + i * 40503 % 0x0800 + (i & 1) * 0x8000);
        memcpy(tables + 2 * i, &h, 2);
    }
    if (o.n == 1) printf("plain read: %.1f GB/s, threads: %d\n", read_roof(&o), o.t.threads);
    printf("| weight | columns | path | isa | cache | memory best (median) | %s "
           "|\n|---|---|---|---|---|---|---|\n",
           o.n == 1 ? "share of read" : "share of products");
    for (const char *const *name = kern_isas(); *name; name++) {
        kern_table k;
        err e = {0};
        if (!kern_open(&k, *name, &e)) return fprintf(stderr, "%s\n", e.msg), 1;
        if (!strcmp(k.isa, *name) && (!o.isa || !strcmp(o.isa, *name))) all_kinds(&o, &k);
    }
    return 0;
}
