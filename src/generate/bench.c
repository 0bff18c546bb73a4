#include "generate/bench.h"
#include "base/clock.h"
#include "base/num.h"
#include "runtime/profile.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int32_t bench_id(int64_t vocab, int64_t i) {
    int64_t most = vocab > 0 && vocab < 4096 ? vocab : 4096;
    return (int32_t)((7919 * i + 1) % most);
}

void bench_ids_sha256(int64_t vocab, int64_t n, char hex[SHA256_HEX]) {
    sha256 h;
    sha256_init(&h);
    for (int64_t i = 0; i < n; i++) {
        uint8_t b[4];
        num_put32(b, (uint32_t)bench_id(vocab, i));
        sha256_update(&h, b, sizeof b);
    }
    sha256_final(&h, hex);
}

bool bench_fits(const lm *m, const bench_case *c, err *e) {
    int64_t need = c->depth + c->prompt + c->fresh - 1; /* the last new token is not fed */
    if (need <= m->form.context) return true;
    return err_set(e, ERR_LIMIT,
                   "%s: %" PRId64 " tokens before, %" PRId64 " of a prompt and %" PRId64
                   " new ones do not fit the context of %" PRId64 " positions",
                   c->name, c->depth, c->prompt, c->fresh, m->form.context);
}

enum { PROFILES = 3 }; /* generations with every step timed; the fastest is shown */

/* ---- one trial ---- */

typedef struct {
    const lm *m;
    rt_mode mode;
    const bench_case *c;
    decoder_hooks hooks;
    int32_t *ids;  /* of depth and prompt */
    decoder *base; /* stands at the depth; NULL: depth 0 */
    sampler *greedy;
    arena *a;               /* where rows of profiles live */
    bench_profile *profile; /* NULL: nothing is measured but the whole */
} bench;

bool bench_takes_prompt(const bench_case *c) {
    return c->prompt > 1 || c->fresh == 1;
}

static bool pick(const bench *b, const decoder_row *row, int32_t *id, err *e) {
    *id = sampler_pick(b->greedy, (sampler_row){row->score, row->id, row->n, row->largest + 1}, e);
    return *id >= 0;
}

/* The share of the positions that is there after so many tokens. */
static double visible(const bench *b, double tokens) {
    double part = tokens / (double)b->m->form.context;
    return part < 1 ? part : 1;
}

/* What a token moves when half of the new ones are there: keys and values up to it, all else whole. many:
 * those who read weights together; NULL: d alone. */
static void count_bytes(const bench *b, const decoder *d, const batch *many, bench_result *r) {
    const bench_case *c = b->c;
    double part = visible(b, (double)(c->depth + c->prompt) + 0.5 * (double)c->fresh);
    double others = many ? (double)(c->sessions - 1) / (double)c->sessions : 0;
    r->bytes = 0;
    r->moved = true;
    for (size_t i = 0; i < b->m->n_model; i++) {
        rt_traffic t = {0, 0, 0};
        r->moved &= many ? batch_traffic(many, i, &t) : rt_session_traffic(decoder_session(d, i), &t);
        r->bytes += (double)t.bytes - (double)t.shared * others + (double)t.cache * part;
    }
}

/* Ends the profile of the prompt, or of what follows; the next one begins. */
static void take_profile(const bench *b, const decoder *d, bool prompt, double seconds) {
    const bench_case *c = b->c;
    bench_profile *p = b->profile;
    if (!p) return;
    profile *to = prompt ? &p->prompt : &p->decode;
    double seen =
        (double)c->depth + (prompt ? 0.5 * (double)c->prompt : (double)c->prompt + 0.5 * (double)c->fresh);
    profile now = profile_end(d, b->a, seconds, prompt ? c->prompt : c->fresh - 1, visible(b, seen));
    if (!to->tokens || now.seconds < to->seconds) *to = now;
    if (prompt) profile_begin(d);
}

static plan_work work_so_far(const bench *b, const decoder *d) {
    plan_work sum = {0, 0};
    for (size_t i = 0; i < b->m->n_model; i++) {
        plan_work w = rt_session_work(decoder_session(d, i));
        sum.flops += w.flops, sum.by_keys += w.by_keys;
    }
    return sum;
}

static bool timed(const bench *b, decoder *d, double seconds[2], bench_result *r, err *e) {
    const bench_case *c = b->c;
    decoder_row row;
    int32_t id;
    if (b->profile) profile_begin(d);
    double start = clock_seconds();
    if (!decoder_feed(d, b->ids + c->depth, (size_t)c->prompt, &b->hooks, &row, e) || !pick(b, &row, &id, e))
        return false;
    seconds[0] = clock_seconds() - start;
    plan_work w = work_so_far(b, d);
    r->prompt_flops = w.flops + w.by_keys * visible(b, (double)c->depth + 0.5 * (double)c->prompt);
    take_profile(b, d, true, seconds[0]);
    double begin = clock_seconds();
    for (int64_t i = 1; i < c->fresh; i++)
        if (!decoder_feed(d, &id, 1, &b->hooks, &row, e) || !pick(b, &row, &id, e)) return false;
    seconds[1] = clock_seconds() - begin;
    take_profile(b, d, false, seconds[1]);
    if (c->fresh > 1) count_bytes(b, d, NULL, r);
    return true;
}

static bool trial(const bench *b, double seconds[2], bench_result *r, err *e) {
    decoder *d = decoder_new(b->m, b->mode, e);
    bool ok = d && (!b->base || decoder_seed(d, b->base, e)) && timed(b, d, seconds, r, e);
    decoder_free(d);
    return ok;
}

/* ---- several sessions ---- */

typedef struct {
    batch *b;
    decoder **d;
    batch_step_one *one; /* what goes on: one a decoder */
} crowd;

static bool take_ids(const bench *b, crowd *k, err *e) {
    for (int64_t i = 0; i < b->c->sessions; i++) {
        batch_step_one *one = &k->one[i];
        if (!one->ok) return err_set(e, one->e.code, "%s", one->e.msg);
        if (!pick(b, &one->row, &one->id, e)) return false;
    }
    return true;
}

/* The prompts one after another, then all together. */
static bool timed_crowd(const bench *b, crowd *k, double seconds[2], bench_result *r, err *e) {
    const bench_case *c = b->c;
    double start = clock_seconds();
    for (int64_t i = 0; i < c->sessions; i++) {
        batch_step_one *one = &k->one[i];
        *one = (batch_step_one){.d = k->d[i], .hooks = &b->hooks, .ok = true};
        if (!decoder_feed(one->d, b->ids + c->depth, (size_t)c->prompt, &b->hooks, &one->row, e) ||
            !pick(b, &one->row, &one->id, e))
            return false;
    }
    double begin = clock_seconds();
    for (int64_t i = 1; i < c->fresh; i++) {
        batch_step(k->b, k->one, (size_t)c->sessions);
        if (!take_ids(b, k, e)) return false;
    }
    seconds[0] = begin - start;
    seconds[1] = clock_seconds() - begin;
    count_bytes(b, NULL, k->b, r);
    return true;
}

static bool trial_crowd(const bench *b, double seconds[2], bench_result *r, err *e) {
    size_t n = (size_t)b->c->sessions;
    crowd k = {batch_new(b->m, b->mode, 0, e), mem_try(n, sizeof *k.d), mem_try(n, sizeof *k.one)};
    bool ok = k.b && ((k.d && k.one) || err_set(e, ERR_MEMORY, "no memory for %zu sessions", n));
    for (size_t i = 0; i < n && ok; i++) {
        ok = (k.d[i] = decoder_new(b->m, b->mode, e)) != NULL;
        if (ok) batch_adopt(k.b, k.d[i]);
        ok = ok && (!b->base || decoder_seed(k.d[i], b->base, e));
    }
    ok = ok && timed_crowd(b, &k, seconds, r, e);
    for (size_t i = 0; k.d && i < n; i++) decoder_free(k.d[i]);
    batch_free(k.b);
    mem_free(k.d);
    mem_free(k.one);
    return ok;
}

/* ---- a case ---- */

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *x, int n) {
    double *sorted = mem_alloc((size_t)n * sizeof *sorted);
    memcpy(sorted, x, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    double m = 0.5 * (sorted[(n - 1) / 2] + sorted[n / 2]);
    mem_free(sorted);
    return m;
}

static bool prepare(bench *b, err *e) {
    const bench_case *c = b->c;
    int64_t n = c->depth + c->prompt;
    b->ids = mem_try((size_t)n, sizeof *b->ids);
    if (!b->ids) return err_set(e, ERR_MEMORY, "no memory for %" PRId64 " ids", n);
    for (int64_t i = 0; i < n; i++) b->ids[i] = bench_id(b->m->vocab, i);
    b->greedy = sampler_new(&SAMPLER_GREEDY, lm_sample_limit(b->m), e);
    if (!b->greedy || !c->depth) return b->greedy != NULL;
    b->base = decoder_new(b->m, b->mode, e);
    return b->base && decoder_feed(b->base, b->ids, (size_t)c->depth, &b->hooks, NULL, e);
}

static void release(bench *b) {
    decoder_free(b->base);
    sampler_free(b->greedy);
    mem_free(b->ids);
}

static bool all_trials(const bench *b, bench_result *r, err *e) {
    const bench_case *c = b->c;
    r->prompt_seconds = mem_alloc((size_t)c->trials * sizeof(double));
    r->decode_seconds = mem_alloc((size_t)c->trials * sizeof(double));
    for (int i = -c->warm; i < c->trials; i++) {
        double seconds[2];
        if (!(c->sessions > 1 ? trial_crowd : trial)(b, seconds, r, e)) return false;
        if (i >= 0) r->prompt_seconds[i] = seconds[0], r->decode_seconds[i] = seconds[1];
    }
    r->prompt_median = median(r->prompt_seconds, c->trials);
    r->decode_median = median(r->decode_seconds, c->trials);
    return true;
}

bool bench_run(const lm *m, rt_mode mode, const bench_case *c, bool (*keep_going)(void *ctx), bench_result *r,
               err *e) {
    *r = (bench_result){0};
    if (!bench_fits(m, c, e)) return false;
    bench b = {.m = m, .mode = mode, .c = c, .hooks = {.keep_going = keep_going}};
    bool ok = prepare(&b, e) && all_trials(&b, r, e);
    release(&b);
    return ok;
}

bool bench_run_profile(const lm *m, rt_mode mode, const bench_case *c, bool (*keep_going)(void *ctx),
                       arena *a, bench_profile *p, err *e) {
    bench_result unused = {0};
    double seconds[2];
    *p = (bench_profile){.has_prompt = bench_takes_prompt(c), .has_decode = c->fresh > 1};
    bench b = {.m = m, .mode = mode, .c = c, .hooks = {.keep_going = keep_going}, .a = a, .profile = p};
    bool ok = bench_fits(m, c, e) && prepare(&b, e);
    for (int i = 0; i < c->trials && i < PROFILES && ok; i++) ok = trial(&b, seconds, &unused, e);
    release(&b);
    return ok;
}

void bench_result_free(bench_result *r) {
    mem_free(r->prompt_seconds);
    mem_free(r->decode_seconds);
    *r = (bench_result){0};
}

static bool open_and_feed(lm **m, decoder **d, const char *artifact, const char *contract_file, rt_mode mode,
                          double start, bench_start *s, err *e) {
    decoder_row row;
    int32_t id;
    sampler *greedy;
    if (!(*m = lm_open_as(artifact, NULL, contract_file, e))) return false;
    s->opened = clock_seconds() - start;
    id = bench_id((*m)->vocab, 0);
    if (!(*d = decoder_new(*m, mode, e)) || !decoder_feed(*d, &id, 1, NULL, &row, e)) return false;
    if (!(greedy = sampler_new(&SAMPLER_GREEDY, lm_sample_limit(*m), e))) return false;
    bool ok = sampler_pick(greedy, (sampler_row){row.score, row.id, row.n, row.largest + 1}, e) >= 0;
    s->first_token = clock_seconds() - start;
    sampler_free(greedy);
    return ok;
}

bool bench_run_start(const char *artifact, const char *contract_file, rt_mode mode, bench_start *s, err *e) {
    lm *m = NULL;
    decoder *d = NULL;
    bool ok = open_and_feed(&m, &d, artifact, contract_file, mode, clock_seconds(), s, e);
    s->peak = bench_peak_memory();
    decoder_free(d);
    lm_close(m);
    return ok;
}

bool bench_reset_peak(void) {
    FILE *f = fopen("/proc/self/clear_refs", "w");
    bool ok = f && fputs("5", f) >= 0;
    return f && !fclose(f) && ok;
}

uint64_t bench_peak_memory(void) {
    FILE *f = fopen("/proc/self/status", "r");
    if (!f) return 0;
    char line[256];
    uint64_t kib = 0;
    while (!kib && fgets(line, sizeof line, f))
        if (!strncmp(line, "VmHWM:", 6)) kib = strtoull(line + 6, NULL, 10);
    fclose(f);
    return kib * 1024;
}
