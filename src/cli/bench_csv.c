#include "cli/bench.h"
#include "cli/output.h"
#include <inttypes.h>
#include <math.h>

typedef struct {
    const char *name;
    double (*of)(const bench_report *s, const bench_row *r); /* NAN: an empty cell */
} column;

static double prompt_rate(const bench_report *s, const bench_row *r) {
    (void)s;
    return bench_prompt_rate(r);
}
static double prompt_speed(const bench_report *s, const bench_row *r) {
    (void)s;
    return bench_prompt_speed(r) * 1e-9;
}
static double decode_rate(const bench_report *s, const bench_row *r) {
    (void)s;
    return bench_decode_rate(r);
}
static double token_bytes(const bench_report *s, const bench_row *r) {
    (void)s;
    return bench_token_bytes(r);
}
static double token_speed(const bench_report *s, const bench_row *r) {
    (void)s;
    return bench_token_speed(r) * 1e-9;
}
static double read_best(const bench_report *s, const bench_row *r) {
    return s->limits[r->limits].read.best * 1e-9;
}
static double rate_best(const bench_report *s, const bench_row *r) {
    const bench_rate *best = bench_best_rate(&s->limits[r->limits]);
    return best ? best->best * 1e-9 : NAN;
}

/* Names as in the JSON form. */
static const column columns[] = {
    {"prompt_tokens_per_s", prompt_rate},
    {"prompt_gflop_per_s", prompt_speed},
    {"share_of_arithmetic", bench_share_of_rate},
    {"decode_tokens_per_s", decode_rate},
    {"bytes_per_token", token_bytes},
    {"gb_per_s", token_speed},
    {"share_of_read", bench_share_of_read},
    {"read_best_gb_per_s", read_best},
    {"arithmetic_best_gflop_per_s", rate_best},
};
enum { N_COLUMNS = sizeof columns / sizeof *columns };

/* A field that may hold anything. */
static void add_field(str *b, const char *text) {
    str_addc(b, '"');
    for (; *text; text++) {
        if (*text == '"') str_addc(b, '"');
        str_addc(b, *text);
    }
    str_addc(b, '"');
}

void bench_print_csv(const bench_report *s) {
    str b = {0};
    str_adds(&b, "artifact,name,threads,depth,prompt,new_tokens,sessions");
    for (size_t k = 0; k < N_COLUMNS; k++) str_printf(&b, ",%s", columns[k].name);
    str_adds(&b, ",peak_bytes,package_bytes\n");
    for (size_t i = 0; i < s->n; i++) {
        const bench_row *r = &s->row[i];
        add_field(&b, s->artifact);
        str_printf(&b, ",%s,%u,%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64, r->c.name,
                   s->limits[r->limits].threads, r->c.depth, r->c.prompt, r->c.fresh,
                   r->c.sessions > 1 ? r->c.sessions : 1);
        for (size_t k = 0; k < N_COLUMNS; k++) {
            double v = columns[k].of(s, r);
            str_addc(&b, ',');
            if (isfinite(v)) str_json_double(&b, v);
        }
        str_printf(&b, ",%" PRIu64 ",%" PRIu64 "\n", s->peak, s->size);
    }
    cli_out(b.s, b.len);
    str_free(&b);
}
