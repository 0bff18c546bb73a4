/* The machine: its limits, its name. */
#define _GNU_SOURCE
#include "base/clock.h"
#include "base/team.h"
#include "cli/bench.h"
#include "kernels/kernels.h"
#include "runtime/engine.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PASSES = 4096 };
#define READ_SECONDS 0.5 /* of measuring a figure */
#define RATE_SECONDS 0.1

/* ---- limits ---- */

static void run(void *ctx, unsigned worker) {
    const bench_rate *r = ctx;
    (void)worker;
    r->kind.run(r->rounds);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of three runs the fastest: a run that was interrupted takes longer than its rounds do. */
static double seconds_of(const kern_rate *r, int64_t rounds) {
    double least = 0;
    for (int i = 0; i < 3; i++) {
        double start = clock_seconds();
        r->run(rounds);
        double took = clock_seconds() - start;
        if (!i || took < least) least = took;
    }
    return least;
}

/* A pass takes about a millisecond: far longer than what starting the threads costs, shorter than a slice. */
static int64_t rounds_of(const kern_rate *r) {
    int64_t rounds = 64;
    while (seconds_of(r, rounds) < 5e-4 && rounds < INT64_C(1) << 30) rounds *= 2;
    return rounds;
}

static void measure(bench_rate *r, team *t) {
    double *rate = mem_alloc(PASSES * sizeof *rate);
    size_t n = 0;
    r->rounds = rounds_of(&r->kind);
    double ops = r->kind.ops * (double)r->rounds * team_size(t), begin = clock_seconds(), last = begin;
    while (n < PASSES && (n < 3 || last - begin < RATE_SECONDS)) {
        team_run(t, run, r);
        double now = clock_seconds();
        rate[n++] = ops / (now - last);
        last = now;
    }
    qsort(rate, n, sizeof *rate, by_value);
    r->best = rate[n - 1], r->median = rate[n / 2];
    mem_free(rate);
}

static void measure_rates(bench_limits *l) {
    kern_rate kind[KERN_RATES_MOST];
    team *t = team_new(l->threads, rt_pinned());
    l->n_rate = kern_rates(getenv("MILLET_ISA"), kind);
    for (size_t i = 0; i < l->n_rate; i++) {
        l->rate[i].kind = kind[i];
        measure(&l->rate[i], t);
    }
    team_free(t);
}

bool bench_measure_limits(bench_limits *l, unsigned threads, bool rates, err *e) {
    l->threads = threads;
    if (!bandwidth_read(threads, READ_SECONDS, &l->read, e)) return false;
    if (rates) measure_rates(l);
    return true;
}

const bench_rate *bench_best_rate(const bench_limits *l) {
    const bench_rate *best = NULL;
    for (size_t i = 0; i < l->n_rate; i++)
        if (l->rate[i].kind.floats && (!best || l->rate[i].best > best->best)) best = &l->rate[i];
    return best;
}

/* ---- names ---- */

/* What the system calls the processor; "" when it doesn't. */
static const char *cpu_name(arena *a) {
    char line[256];
    const char *name = "";
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && !*name && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (!colon || strncmp(line, "model name", 10) != 0) continue;
        line[strcspn(line, "\n")] = 0;
        name = arena_str(a, colon + 1 + strspn(colon + 1, " \t"));
    }
    if (f) fclose(f);
    return name;
}

void bench_describe_machine(bench_report *s) {
    time_t now = time(NULL);
    struct tm utc;
    double busy = 0;
    err ignored = {0};
    kern_table t;
    plan_linear l = strcmp(s->precision, "strict") != 0 ? rt_linear() : (plan_linear){KERN_EXACT, KERN_EXACT};
    s->linear = arena_printf(s->a, "%s,%s", kern_path_name[l.decode], kern_path_name[l.prefill]);
    s->cpu = cpu_name(s->a);
    s->isa = kern_open(&t, getenv("MILLET_ISA"), &ignored) || kern_open(&t, NULL, &ignored) ? t.isa : "";
    s->busy = getloadavg(&busy, 1) == 1 ? busy : 0;
    if (gmtime_r(&now, &utc)) strftime(s->time, sizeof s->time, "%Y-%m-%dT%H:%M:%SZ", &utc);
}
