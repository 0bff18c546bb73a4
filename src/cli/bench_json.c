#include "cli/bench.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

static void add_member(str *b, const char *name, double v) {
    str_printf(b, ",\"%s\":", name);
    str_json_double(b, v);
}

static void add_list(str *b, const char *name, const double *x, int n) {
    str_printf(b, ",\"%s\":[", name);
    for (int i = 0; i < n; i++) {
        if (i) str_addc(b, ',');
        str_json_double(b, x[i]);
    }
    str_addc(b, ']');
}

static void add_text(str *b, const char *name, const char *text) {
    str_printf(b, ",\"%s\":", name);
    str_json_string(b, text, strlen(text));
}

static void add_limits(str *b, const bench_report *s) {
    str_adds(b, ",\"limits\":[");
    for (size_t i = 0; i < s->n_limits; i++) {
        const bench_limits *l = &s->limits[i];
        str_printf(b, "%s{\"threads\":%u", i ? "," : "", l->threads);
        add_member(b, "read_best_gb_per_s", l->read.best * 1e-9);
        add_member(b, "read_median_gb_per_s", l->read.median * 1e-9);
        str_adds(b, ",\"arithmetic\":[");
        for (size_t k = 0; k < l->n_rate; k++) {
            str_printf(b, "%s{\"name\":\"%s\"", k ? "," : "", l->rate[k].kind.name);
            add_member(b, "best_gop_per_s", l->rate[k].best * 1e-9);
            add_member(b, "median_gop_per_s", l->rate[k].median * 1e-9);
            str_addc(b, '}');
        }
        str_adds(b, "]}");
    }
    str_addc(b, ']');
}

/* ---- profiles ---- */

static void add_profile_row(str *b, const profile *p, const profile_row *r) {
    str_adds(b, "{\"name\":");
    str_json_string(b, r->name, strlen(r->name));
    str_printf(b, ",\"calls\":%" PRIu64 ",\"no_fast_kernel\":%s", r->calls, r->slow ? "true" : "false");
    add_member(b, "bytes", r->bytes);
    add_member(b, "flops", r->flops);
    add_member(b, "least_s", r->least);
    add_list(b, "work_s", r->work, (int)p->workers);
    add_list(b, "wait_s", r->wait, (int)p->workers);
    str_addc(b, '}');
}

static void add_profile_rows(str *b, const char *name, const profile *p, const profile_row *r, size_t n) {
    str_printf(b, ",\"%s\":[", name);
    for (size_t i = 0; i < n; i++) {
        if (i) str_addc(b, ',');
        add_profile_row(b, p, &r[i]);
    }
    str_addc(b, ']');
}

/* p NULL: there is none. */
static void add_profile(str *b, const char *name, const profile *p) {
    str_printf(b, ",\"%s\":", name);
    if (!p) {
        str_adds(b, "null");
        return;
    }
    str_printf(b, "{\"tokens\":%" PRId64 ",\"workers\":%u,\"runs\":%" PRIu64, p->tokens, p->workers, p->runs);
    add_member(b, "seconds", p->seconds);
    add_profile_rows(b, "all", p, &p->all, p->workers ? 1 : 0);
    add_profile_rows(b, "calls", p, &p->call, p->workers ? 1 : 0);
    add_profile_rows(b, "kernels", p, p->kernel, p->n_kernel);
    add_profile_rows(b, "layers", p, p->layer, p->n_layer);
    str_addc(b, '}');
}

/* ---- the whole ---- */

static void add_row(str *b, const bench_report *s, const bench_row *r) {
    const bench_case *c = &r->c;
    str_printf(b,
               "{\"name\":\"%s\",\"threads\":%u,\"depth\":%" PRId64 ",\"prompt\":%" PRId64
               ",\"new_tokens\":%" PRId64 ",\"sessions\":%" PRId64,
               c->name, s->limits[r->limits].threads, c->depth, c->prompt, c->fresh,
               c->sessions > 1 ? c->sessions : 1);
    add_member(b, "prompt_tokens_per_s", bench_prompt_rate(r));
    add_member(b, "prompt_ms_per_token", 1e3 / bench_prompt_rate(r));
    add_member(b, "prompt_gflop_per_s", bench_prompt_speed(r) * 1e-9);
    add_member(b, "share_of_arithmetic", bench_share_of_rate(s, r));
    add_member(b, "decode_tokens_per_s", bench_decode_rate(r));
    add_member(b, "decode_ms_per_token", 1e3 / bench_decode_rate(r));
    add_member(b, "bytes_per_token", bench_token_bytes(r));
    add_member(b, "gb_per_s", bench_token_speed(r) * 1e-9);
    add_member(b, "share_of_read", bench_share_of_read(s, r));
    add_list(b, "prompt_s", r->r.prompt_seconds, c->trials);
    add_list(b, "decode_s", r->r.decode_seconds, c->trials);
    add_profile(b, "prompt_profile", r->profile.has_prompt ? &r->profile.prompt : NULL);
    add_profile(b, "decode_profile", r->profile.has_decode ? &r->profile.decode : NULL);
    str_addc(b, '}');
}

static void add_starts(str *b, const bench_starts *t) {
    str_adds(b, ",\"start\":");
    if (!t->measured) {
        str_adds(b, "null");
        return;
    }
    str_printf(b, "{\"cold_bytes_left\":%" PRIu64, t->left);
    add_member(b, "cold_opened_s", t->dropped ? t->cold.opened : NAN);
    add_member(b, "cold_first_token_s", t->dropped ? t->cold_whole : NAN);
    add_member(b, "cached_opened_s", t->cached.opened);
    add_member(b, "cached_first_token_s", t->cached_whole);
    str_printf(b, ",\"cached_peak_bytes\":%" PRIu64 "}", t->cached.peak);
}

void bench_add_json(str *b, const bench_report *s) {
    str_adds(b, "{\"format\":\"millet bench\",\"format_version\":1");
    add_text(b, "millet", MILLET_VERSION);
    add_text(b, "time", s->time);
    add_text(b, "cpu", s->cpu);
    add_text(b, "isa", s->isa);
    add_member(b, "load_average", s->busy);
    add_limits(b, s);
    if (s->m) {
        char hex[SHA256_HEX];
        bench_ids_sha256(s->m->vocab, bench_ids_fed(s), hex);
        add_text(b, "artifact", s->artifact);
        add_text(b, "precision", s->precision);
        add_text(b, "linear", s->linear);
        str_printf(b, ",\"ids\":%" PRId64 ",\"ids_sha256\":\"%s\"", bench_ids_fed(s), hex);
        add_member(b, "opened_s", s->load);
        str_printf(b, ",\"peak_bytes\":%" PRIu64 ",\"package_bytes\":%" PRIu64, s->peak, s->size);
        add_starts(b, &s->start);
        str_adds(b, ",\"results\":[");
        for (size_t i = 0; i < s->n; i++) {
            if (i) str_addc(b, ',');
            add_row(b, s, &s->row[i]);
        }
        str_addc(b, ']');
    }
    str_adds(b, "}\n");
}
