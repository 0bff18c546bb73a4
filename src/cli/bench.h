/* What millet bench measured, and the forms it is shown in. */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H
#include "base/arena.h"
#include "base/bandwidth.h"
#include "base/str.h"
#include "generate/bench.h"

typedef struct {
    bench_case c;
    bench_result r;
    bench_profile profile; /* all zero: not asked for */
} bench_row;

typedef struct {
    arena *a;
    bench_row *row;
    size_t n;
    const char *artifact;
    lm *m;
    double load;   /* seconds */
    uint64_t peak; /* bytes */
    bandwidth read;
} bench_report;

/* Tokens a second, bytes a token, bytes a second; NAN: not measured or not known. */
double bench_prompt_rate(const bench_row *r);
double bench_decode_rate(const bench_row *r);
double bench_token_bytes(const bench_row *r);
double bench_token_speed(const bench_row *r);
/* How many ids the longest prompt had, with what was fed before it. */
int64_t bench_ids_fed(const bench_report *s);

void bench_print_text(const bench_report *s, bool markdown);
void bench_print_profiles(const bench_report *s, bool markdown);
void bench_add_json(str *b, const bench_report *s);         /* one object */
void bench_json_member(str *b, const char *name, double v); /* ,"name":v */
void bench_json_bandwidth(str *b, const bandwidth *w);
#endif
