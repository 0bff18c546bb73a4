/* Random programs by plan and by evaluator: graphs [--seed N] [--count N | --seconds S] [--list FILE]
 * [--go-on] [--print] A difference is printed as the smallest program that shows it, with its seed. --list:
 * seeds of past failures, first. */
#include "ir/print.h"
#include "packages.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct {
    uint64_t seed, count;
    double seconds;
    const char *list;
    bool go_on, print;
} arguments;

static double now(void) {
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void print_tensor(const char *name, const ref_tensor *t) {
    printf("  %s:", name);
    for (int64_t i = 0; i < ref_count(t) && i < 16; i++) {
        if (dtype_is_float((ir_dtype)t->type.dtype))
            printf(" %.9g", (double)ref_floats(t)[i]);
        else
            printf(" %d", ref_ints(t)[i]);
    }
    printf("%s\n", ref_count(t) > 16 ? " ..." : "");
}

static void print_sample(const sample *s) {
    str text = {0};
    ir_print_program(&text, s->p);
    fputs(str_get(&text), stdout);
    str_free(&text);
    printf("linear %s, %s\n", kern_path_name[s->linear.decode], kern_path_name[s->linear.prefill]);
    for (size_t c = 0; c < s->n_call; c++) {
        const ir_function *f = s->p->func[s->call[c].func];
        printf("call %zu: %s\n", c, f->name);
        for (size_t i = 0; i < f->n_in; i++)
            if (f->in[i]->type.kind == IR_TENSOR && s->call[c].in[i].cell)
                print_tensor(f->in[i]->name, &s->call[c].in[i]);
    }
    for (size_t i = 0; i < s->n_state; i++) print_tensor(s->state[i].name, &s->state[i].start);
}

/* What the plans of fast mode are made of. */
static void print_fused(const sample *s) {
    str text = {0};
    results r = {0};
    err e = {0};
    if (by_plan(s, &(plan_form){false, 1, NULL, false, &text}, &r, &e))
        results_free(&r);
    else
        printf("no plan: %s\n", e.msg);
    fputs(str_get(&text), stdout);
    str_free(&text);
}

/* True when all is well. */
static bool one(uint64_t seed, const arguments *a, tally *t, uint64_t *unmade) {
    char text[500] = "";
    err e = {0};
    sample *s = sample_make(seed, &e);
    if (!s) {
        ++*unmade;
        if (a->print) printf("seed %" PRIu64 ": not made: %s\n", seed, e.msg);
        return true;
    }
    t->graphs++;
    bool good = sample_agrees(s, seed, t, text, sizeof text);
    if (a->print) print_sample(s), print_fused(s);
    if (!good) {
        printf("seed %" PRIu64 ": %s\n", seed, text);
        sample *small = sample_shrink(s, seed);
        sample_agrees(small, seed, t, text, sizeof text);
        printf("smallest: %s\n", text);
        print_sample(small);
        fflush(stdout);
    }
    sample_free(s);
    return good;
}

static bool known(const arguments *a, tally *t, uint64_t *unmade) {
    FILE *f = a->list ? fopen(a->list, "r") : NULL;
    char line[200];
    bool good = f || !a->list;
    if (!good) fprintf(stderr, "graphs: %s can't be read\n", a->list);
    while (f && fgets(line, sizeof line, f))
        if (*line >= '0' && *line <= '9') good &= one(strtoull(line, NULL, 10), a, t, unmade);
    if (f) fclose(f);
    return good;
}

static bool parse(int argc, char **argv, arguments *a) {
    for (int i = 1; i < argc; i++) {
        const char *next = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--go-on")) {
            a->go_on = true;
            continue;
        }
        if (!strcmp(argv[i], "--print")) {
            a->print = true;
            continue;
        }
        if (!strcmp(argv[i], "--seed"))
            a->seed = strtoull(next, NULL, 10);
        else if (!strcmp(argv[i], "--count"))
            a->count = strtoull(next, NULL, 10);
        else if (!strcmp(argv[i], "--seconds"))
            a->seconds = strtod(next, NULL);
        else if (!strcmp(argv[i], "--list"))
            a->list = next;
        else
            return false;
        i++;
    }
    return true;
}

int main(int argc, char **argv) {
    arguments a = {.seed = 1, .count = UINT64_MAX};
    tally t = {0};
    uint64_t unmade = 0, failed = 0;
    if (argc > 2 && !strcmp(argv[1], "--packages")) {
        for (int i = 2; i < argc; i++) failed += check_packages(argv[i], &t);
        run_close();
        printf("%" PRIu64 " packages, %" PRIu64 " comparisons (%" PRIu64 " with shaken sums), %" PRIu64
               " runs without a plan, %" PRIu64 " refused, %" PRIu64 " differ\n",
               t.graphs, t.comparisons, t.shaken, t.unplanned, t.refused, failed);
        return failed > 0;
    }
    if (!parse(argc, argv, &a)) {
        fprintf(stderr,
                "usage: graphs [--seed N] [--count N] [--seconds S] [--list FILE] [--go-on] [--print]\n");
        return 2;
    }
    if (a.count == UINT64_MAX && a.seconds == 0) a.count = 1;
    double start = now();
    failed += !known(&a, &t, &unmade);
    for (uint64_t i = 0; i < a.count && (a.go_on || !failed) && (a.seconds == 0 || now() - start < a.seconds);
         i++)
        failed += !one(a.seed + i, &a, &t, &unmade);
    run_close();
    printf("%" PRIu64 " graphs from seed %" PRIu64 " on, %" PRIu64 " comparisons (%" PRIu64
           " with shaken sums), %" PRIu64 " runs without a plan, %" PRIu64 " refused, %" PRIu64
           " not made, %" PRIu64 " differ; %.1f s\n",
           t.graphs, a.seed, t.comparisons, t.shaken, t.unplanned, t.refused, unmade, failed, now() - start);
    return failed > 0;
}
