/* What millet bench measured, and the forms it is shown in. */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H
#include "base/arena.h"
#include "base/bandwidth.h"
#include "base/str.h"
#include "cli/table.h"
#include "generate/bench.h"
#include "generate/footprint.h"
#include "kernels/rates.h"

typedef struct {
    kern_rate kind;
    int64_t rounds;      /* of a pass */
    double best, median; /* multiplications and additions a second, of all threads, by the wall clock */
} bench_rate;

/* What the machine can do with so many threads. */
typedef struct {
    unsigned threads;
    bandwidth read;
    bench_rate rate[KERN_RATES_MOST];
    size_t n_rate; /* 0: not measured */
} bench_limits;

/* Measures them; rates: of arithmetic too. */
bool bench_measure_limits(bench_limits *l, unsigned threads, bool rates, err *e);
/* The fastest floating-point arithmetic; NULL: not measured. */
const bench_rate *bench_best_rate(const bench_limits *l);

typedef struct {
    bench_case c;
    bench_result r;
    bench_profile profile; /* all zero: not asked for */
    size_t limits;         /* index */
} bench_row;

/* Starts in new processes: seconds from there to the end of what bench_start says. */
typedef struct {
    bool measured, dropped; /* dropped: the files were read from the disk, `cold` holds */
    uint64_t left;          /* bytes of them that stayed in memory */
    bench_start cold, cached;
    double cold_whole, cached_whole; /* from the process's start to the first token */
} bench_starts;

typedef struct {
    arena *a;
    const char *artifact, *precision;
    const char *contract; /* description file; NULL */
    const char *linear;   /* number paths of linear layers: of single tokens, of prompts */
    lm *m;
    bench_limits *limits; /* one a number of threads */
    size_t n_limits;
    bench_row *row;
    size_t n;
    double load;         /* seconds to open the artifact in this process */
    uint64_t peak, size; /* bytes: most memory of the generations; packages and table */
    bool peak_reset;     /* the system's count of peak memory began anew after limits */
    bench_starts start;
    const char *cpu, *isa; /* the processor's name; the best instruction set used */
    char time[32];         /* UTC */
    double busy;           /* processes that wanted a processor before we began (load average) */
} bench_report;

/* Fills cpu, isa, time and busy. */
void bench_describe_machine(bench_report *s);

/* Artifact opened in new processes, one behind dropped caches, and then several whose median counts. */
bool bench_measure_starts(bench_report *s, const footprint *f, err *e);
/* What such a process prints. */
void bench_print_start(const bench_start *s, bool as_json);

/* Tokens a second, bytes a token, bytes a second, operations a second; NAN: not measured or not known. */
double bench_prompt_rate(const bench_row *r);
double bench_decode_rate(const bench_row *r);
double bench_token_bytes(const bench_row *r);
double bench_token_speed(const bench_row *r);
double bench_prompt_speed(const bench_row *r);
double bench_share_of_read(const bench_report *s, const bench_row *r);
double bench_share_of_rate(const bench_report *s, const bench_row *r);
/* How many ids the longest prompt had, with what was fed before it. */
int64_t bench_ids_fed(const bench_report *s);

/* As shown in every form. */
table bench_figures_table(const bench_report *s);
table bench_limits_table(const bench_report *s);
table bench_kernels_table(arena *a, const profile *p); /* p->workers > 0 */
const char *bench_profile_title(const bench_report *s, const bench_row *r, const profile *p);
/* Seconds that walks of plans took. */
double bench_walked(const profile *p);

void bench_print_text(const bench_report *s, bool markdown);
void bench_print_profiles(const bench_report *s, bool markdown);
void bench_print_csv(const bench_report *s);
void bench_add_json(str *b, const bench_report *s); /* one object: docs/schema/bench.schema.json */
void bench_add_html(str *s, const bench_report *r); /* one page */

/* Prints what changed between two files that --json wrote: the tests that both have, limits, starts, memory,
 * profiles. ERR_FORMAT for other files, ERR_INVALID when there is nothing to compare. */
bool bench_compare(arena *a, const char *before, const char *after, bool markdown, err *e);
#endif
