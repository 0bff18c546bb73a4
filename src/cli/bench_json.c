#include "cli/bench.h"
#include <inttypes.h>
#include <string.h>

void bench_json_member(str *b, const char *name, double v) {
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

void bench_json_bandwidth(str *b, const bandwidth *w) {
    str_printf(b, "{\"threads\":%u", w->threads);
    bench_json_member(b, "best_gb_per_s", w->best * 1e-9);
    bench_json_member(b, "median_gb_per_s", w->median * 1e-9);
    str_addc(b, '}');
}

/* ---- profiles ---- */

static void add_profile_row(str *b, const profile *p, const profile_row *r) {
    str_adds(b, "{\"name\":");
    str_json_string(b, r->name, strlen(r->name));
    str_printf(b, ",\"calls\":%" PRIu64 ",\"no_fast_kernel\":%s", r->calls, r->slow ? "true" : "false");
    bench_json_member(b, "bytes", r->bytes);
    bench_json_member(b, "flops", r->flops);
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

static void add_profile(str *b, const char *name, const profile *p) {
    str_printf(b, ",\"%s\":{\"tokens\":%" PRId64 ",\"workers\":%u,\"runs\":%" PRIu64, name, p->tokens,
               p->workers, p->runs);
    bench_json_member(b, "seconds", p->seconds);
    if (p->workers) {
        add_profile_rows(b, "all", p, &p->all, 1);
        add_profile_rows(b, "calls", p, &p->call, 1);
    }
    add_profile_rows(b, "kernels", p, p->kernel, p->n_kernel);
    add_profile_rows(b, "layers", p, p->layer, p->n_layer);
    str_addc(b, '}');
}

/* ---- the whole ---- */

static void add_row(str *b, const bench_report *s, const bench_row *r) {
    const bench_case *c = &r->c;
    str_printf(b, "{\"name\":\"%s\",\"depth\":%" PRId64 ",\"prompt\":%" PRId64 ",\"new_tokens\":%" PRId64,
               c->name, c->depth, c->prompt, c->fresh);
    bench_json_member(b, "prompt_tokens_per_s", bench_prompt_rate(r));
    bench_json_member(b, "prompt_ms_per_token", 1e3 / bench_prompt_rate(r));
    bench_json_member(b, "decode_tokens_per_s", bench_decode_rate(r));
    bench_json_member(b, "decode_ms_per_token", 1e3 / bench_decode_rate(r));
    bench_json_member(b, "bytes_per_token", bench_token_bytes(r));
    bench_json_member(b, "gb_per_s", bench_token_speed(r) * 1e-9);
    bench_json_member(b, "share_of_read", bench_token_speed(r) / s->read.best);
    add_list(b, "prompt_s", r->r.prompt_seconds, c->trials);
    add_list(b, "decode_s", r->r.decode_seconds, c->trials);
    if (r->profile.has_prompt) add_profile(b, "prompt_profile", &r->profile.prompt);
    if (r->profile.has_decode) add_profile(b, "decode_profile", &r->profile.decode);
    str_addc(b, '}');
}

void bench_add_json(str *b, const bench_report *s) {
    char hex[SHA256_HEX];
    bench_ids_sha256(s->m->vocab, bench_ids_fed(s), hex);
    str_adds(b, "{\"artifact\":");
    str_json_string(b, s->artifact, strlen(s->artifact));
    str_printf(b, ",\"threads\":%u,\"ids\":%" PRId64 ",\"ids_sha256\":\"%s\"", rt_threads(), bench_ids_fed(s),
               hex);
    bench_json_member(b, "load_s", s->load);
    str_printf(b, ",\"peak_bytes\":%" PRIu64 ",\"read\":", s->peak);
    bench_json_bandwidth(b, &s->read);
    str_adds(b, ",\"results\":[");
    for (size_t i = 0; i < s->n; i++) {
        if (i) str_addc(b, ',');
        add_row(b, s, &s->row[i]);
    }
    str_adds(b, "]}\n");
}
