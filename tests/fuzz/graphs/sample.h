/* Random programs, run by plan and by reference evaluator: what the generator (make*.c, plant*.c) hands to
 * the comparison (compare.c, run.c) and the shrinker (shrink.c). */
#ifndef FUZZ_SAMPLE_H
#define FUZZ_SAMPLE_H
#include "base/str.h"
#include "ir/program.h"
#include "plan/plan.h"
#include "reference/tensor.h"

#define MOST_FUNCS  16
#define MOST_CALLS  16
#define MOST_STATES 64
#define MOST_IN     64
#define MOST_TWINS  16

typedef struct {
    size_t func;
    ref_tensor *in; /* by index of the function's inputs; entries of states are empty */
} sample_call;

typedef struct {
    const char *name;
    ref_tensor start;
} sample_state;

/* A program and the calls that are made of it, one after the other, over states of one session. */
typedef struct {
    arena *a;
    ir_program *p;
    bool one_isa; /* the best instruction set will do */
    bool exact;   /* numbers are small integers: whatever the order of sums, results are equal to the bit */
    plan_linear linear; /* how numbers are multiplied outside of strict mode */
    struct {
        size_t func, a, b; /* results that are equal to the bit */
    } twin[MOST_TWINS];
    size_t n_twin;
    sample_call call[MOST_CALLS];
    size_t n_call;
    sample_state state[MOST_STATES];
    size_t n_state;
} sample;

typedef struct {
    uint64_t at;
} dice;

/* Neighbouring seeds have nothing in common (splitmix64). */
static inline dice dice_of(uint64_t seed) {
    uint64_t z = (seed + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (dice){z ^ z >> 31};
}

/* Below n; n > 0. */
static inline uint32_t roll(dice *d, uint32_t n) {
    d->at = d->at * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((d->at >> 32) * n >> 32);
}

static inline bool chance(dice *d, uint32_t percent) {
    return roll(d, 100) < percent;
}

/* In [-1, 1], 24 bits of it. */
static inline float roll_float(dice *d) {
    return (float)((double)(int32_t)roll(d, (1u << 24) + 1) - 0x1p23) * 0x1p-23f;
}

/* The sample of a seed; NULL when the generator made an op that does not evaluate (e says which). */
sample *sample_make(uint64_t seed, err *e);
void sample_free(sample *s);

/* Index of a function's state in s->state; SIZE_MAX: it is an ordinary input. */
size_t sample_state_of(const sample *s, const ir_value *v);

/* ---- running ---- */

/* Results of all calls in order, then the states. */
typedef struct {
    ref_tensor *t;
    size_t n;
} results;

void results_free(results *r);

/* What other orders of sums could have given: every inexact result, and every operand of a sum, moves by some
 * units in the last place of fp32 before it is rounded. seed 0: the definition of the numbers. coarse:
 * products of activations are those of AMX tiles, pairs of bf16 that are off by 2^-17. */
typedef struct {
    uint64_t seed;
    bool coarse;
} shaking;

/* False: the evaluator refuses the program (e). */
bool by_evaluator(const sample *s, bool strict, shaking how, results *r, err *e);

typedef struct {
    bool strict;
    unsigned threads;
    const char *isa; /* NULL: the best that there is */
    bool borrow;     /* outputs are looked at where they lie */
    str *dump;       /* receives the fused functions; NULL */
} plan_form;

/* The plan, as the runtime makes it. False with ERR_UNSUPPORTED: it can't be planned. */
bool by_plan(const sample *s, const plan_form *form, results *r, err *e);
void run_close(void); /* ends the teams */

/* ---- comparing ---- */

typedef struct {
    uint64_t graphs, unplanned, refused,
        shaken; /* shaken: of the comparisons, those that needed other orders of sums */
    uint64_t comparisons;
} tally;

/* True when plan and evaluator agree in every mode; else what differs, in text (a line). */
bool sample_agrees(const sample *s, uint64_t seed, tally *t, char *text, size_t room);
/* The smallest part of s that still differs. Takes s over. */
sample *sample_shrink(sample *s, uint64_t seed);
#endif
