/* The gate: runs the measurements of check.h on an artifact, judges them by documented thresholds
 * (docs/check.md), and renders the result as text, JSON or one HTML page.
 *
 *   check_report r;
 *   bool ok = check_run(&r, &options, &e);
 *   if (ok) check_report_text(&r, &out);
 *   bool passed = ok && check_passed(&r);
 *   check_report_free(&r);
 */
#ifndef CHECK_REPORT_H
#define CHECK_REPORT_H
#include "check/check.h"

typedef enum {
    CHECK_STRUCTURE = 1,
    CHECK_WEIGHTS = 2,
    CHECK_IDS = 4,
    CHECK_SCORES = 8,
    CHECK_SINGLE_STEPS = 16,
    CHECK_PREFILL = 32,
    CHECK_RANGES = 64,
    CHECK_REPETITION = 128,
    CHECK_ALL = 255
} check_measure;
/* "structure,weights,..." to a set of them. */
bool check_measures_by_name(unsigned *set, const char *list, err *e);

/* How many tokens the measurements feed with the budget B: scores 2 B, ranges B, single steps B, prefill 3 B,
 * repetition one prompt for each 64 of B. */
#define CHECK_BUDGET      64
#define CHECK_MOST_BESIDE 8

/* A continuation may get stuck where the reference's doesn't: a run of one token, or trigrams that came
 * before.
 */
#define CHECK_RUN      (CHECK_CONTINUE / 2)
#define CHECK_TRIGRAMS 0.5
/* Largest relative error of what a package hands on: other layers' values have about 1 and more. */
#define CHECK_HANDED_ERROR 0.5

typedef struct {
    const char *artifact, *checkpoint;
    const char *tokenizer;     /* NULL: beside the packages */
    const char *const *beside; /* further artifacts of the checkpoint, for scores, repetition and sizes */
    size_t n_beside;
    check_texts texts;    /* taken over; n = 0: the built-in ones */
    unsigned measures;    /* set of check_measure */
    int64_t budget;       /* 0: everything is fed; < 0: CHECK_BUDGET, but given texts are scored whole */
    double min_agreement; /* percent; < 0: by the bits of the weights */
    rt_mode mode;         /* of all but the ranges */
    const char *plan;     /* where to write the precision plan; NULL: nowhere */
    bool (*tick)(void *ctx, const char *phase, size_t done, size_t total); /* progress; false stops. NULL */
    void *ctx;
} check_options;

/* One artifact. */
typedef struct {
    const char *path;
    lm *m;
    check_structure structure;
    check_parity parity;
    check_repetition repetition;
} check_side;

typedef struct {
    unsigned measures;
    check_side *side; /* [0]: the one that is judged; then those beside it */
    size_t n_side;
    lm *names; /* the reference: measurements name what it has */
    const char *checkpoint;
    check_texts texts, scored; /* all, and what was fed for the scores */
    check_texts prompts, continued;
    check_weights weights;
    check_ids ids;
    check_layers layers;
    check_steps steps;
    check_prefill prefill;
    check_ranges ranges;
    check_repetition reference; /* the reference's continuations */
    size_t plan_entries;
    double min_agreement; /* percent, of the certain positions */
    const char *why;      /* where that comes from */
    str failures;         /* one a line; empty: passed */
    str skipped;          /* what the budget had no room for, one a line */
    double seconds;
} check_report;

/* Free r in any case. */
bool check_run(check_report *r, const check_options *o, err *e);
bool check_passed(const check_report *r);
void check_report_free(check_report *r);

/* Writes passed, top-1 and certain agreement of the judged artifact, a package of --variants or a directory
 * of them, as the variant's gate into its conversion_manifest.json. The scores must have been measured. */
bool check_record(const check_report *r, err *e);

void check_report_text(const check_report *r, str *out);
void check_report_json(const check_report *r, str *out);
void check_report_html(const check_report *r, str *out);
#endif
