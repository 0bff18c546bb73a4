#include "generate/sampler.h"
#include "base/arena.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GREEDY_BELOW 1e-5f
#define MAX_LIMIT    (1 << 26)

typedef struct {
    float v;
    int32_t id;
} candidate;

/* Candidates as a heap with the best on top. The k-th best comes out at its end: c[n - 1 - k], for k < taken.
 */
typedef struct {
    candidate *c;
    size_t n, taken;
} ranking;

struct sampler {
    sampler_options o;
    sampler_random random;
    int32_t limit;
    bool *seen;          /* [limit]: in the prompt or the output */
    uint32_t *generated; /* [limit]: times in the output */
    candidate *c;
    size_t cap;
    const uint32_t *allowed; /* bits of n_allowed ids; NULL: all */
    int32_t n_allowed;
};

/* ---- Random numbers, exp ---- */

static uint64_t rotate(uint64_t x, int k) {
    return x << k | x >> (64 - k);
}

/* The k-th number, from 1, of splitmix64 (Steele, Lea and Flood 2014). */
static uint64_t split_mix(uint64_t seed, uint64_t k) {
    uint64_t z = seed + k * 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

void sampler_seed(sampler_random *r, uint64_t seed) {
    for (uint64_t i = 0; i < 4; i++) r->s[i] = split_mix(seed, i + 1);
}

uint64_t sampler_seed_of(uint64_t seed, uint64_t k) {
    return k ? split_mix(seed, k) : seed;
}

uint64_t sampler_next(sampler_random *r) {
    uint64_t *s = r->s, result = rotate(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate(s[3], 45);
    return result;
}

double sampler_exp(double x) {
    static const double inverse[] = {/* 1/k!, k = 13 .. 0 */
                                     1.0 / 6227020800,
                                     1.0 / 479001600,
                                     1.0 / 39916800,
                                     1.0 / 3628800,
                                     1.0 / 362880,
                                     1.0 / 40320,
                                     1.0 / 5040,
                                     1.0 / 720,
                                     1.0 / 120,
                                     1.0 / 24,
                                     1.0 / 6,
                                     0.5,
                                     1.0,
                                     1.0};
    if (!(x >= -708)) return 0;
    const double round = 0x1.8p52; /* adding and subtracting it rounds to an integer */
    double k = x * 0x1.71547652b82fep0 + round - round;
    /* ln 2 in two parts: k times the first is exact */
    double r = x - k * 0x1.62e42fee00000p-1 - k * 0x1.a39ef35793c76p-33, p = inverse[0];
    for (size_t i = 1; i < sizeof inverse / sizeof *inverse; i++) p = p * r + inverse[i];
    uint64_t bits = (uint64_t)(1023 + (int)k) << 52;
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

/* ---- Options ---- */

static bool in_range(const char *name, double v, double low, double high, err *e) {
    return (v >= low && v <= high) || err_set(e, ERR_USAGE, "%s must be in [%g, %g]", name, low, high);
}

static bool check(const sampler_options *o, err *e) {
    return in_range("temperature", (double)o->temperature, 0, 1e6, e) &&
           in_range("top_p", (double)o->top_p, 0, 1, e) && in_range("min_p", (double)o->min_p, 0, 1, e) &&
           in_range("top_k", (double)o->top_k, 0, 0x1p53, e) &&
           in_range("repetition_penalty", (double)o->repetition_penalty, 1e-6, 1e6, e) &&
           in_range("presence_penalty", (double)o->presence_penalty, -1e6, 1e6, e) &&
           in_range("frequency_penalty", (double)o->frequency_penalty, -1e6, 1e6, e);
}

static bool read_number(const json *config, const char *key, double fallback, double *out, err *e) {
    const json *v = json_get(config, key);
    *out = json_double(config, key, fallback);
    return !v || v->kind == JSON_NULL || v->kind == JSON_INT || v->kind == JSON_REAL ||
           err_set(e, ERR_FORMAT, "%s holds %s, expected a number", key, json_kind_name(v->kind));
}

static bool read_whole(const json *config, const char *key, double fallback, int64_t *out, err *e) {
    double v;
    if (!read_number(config, key, fallback, &v, e)) return false;
    if (!(v >= 0 && v <= 0x1p53) || v != (double)(int64_t)v)
        return err_set(e, ERR_FORMAT, "%s is %g, expected a whole number from 0", key, v);
    *out = (int64_t)v;
    return true;
}

bool sampler_from_config(sampler_options *o, const json *config, err *e) {
    double temperature, p, min_p, repetition;
    const json *sample = json_get(config, "do_sample");
    *o = SAMPLER_GREEDY;
    if (sample && sample->kind != JSON_BOOL && sample->kind != JSON_NULL)
        return err_set(e, ERR_FORMAT, "do_sample holds %s, expected true or false",
                       json_kind_name(sample->kind));
    if (!read_number(config, "temperature", 1, &temperature, e) ||
        !read_whole(config, "top_k", 50, &o->top_k, e) || !read_number(config, "top_p", 1, &p, e) ||
        !read_number(config, "min_p", 0, &min_p, e) ||
        !read_number(config, "repetition_penalty", 1, &repetition, e))
        return false;
    o->temperature = (float)temperature;
    o->top_p = (float)p;
    o->min_p = (float)min_p;
    o->repetition_penalty = (float)repetition;
    if (!check(o, e)) return false; /* also of what is not used */
    if (!json_bool(config, "do_sample", false)) {
        *o = SAMPLER_GREEDY;
        o->repetition_penalty = (float)repetition;
    }
    return true;
}

sampler *sampler_new(const sampler_options *o, int32_t limit, err *e) {
    if (!check(o, e)) return NULL;
    if (limit < 1 || limit > MAX_LIMIT) {
        err_set(e, ERR_LIMIT, "a vocabulary of %d tokens can't be sampled from", (int)limit);
        return NULL;
    }
    sampler *s = mem_alloc(sizeof *s);
    *s = (sampler){.o = *o, .limit = limit};
    s->seen = mem_try((size_t)limit, sizeof *s->seen);
    s->generated = mem_try((size_t)limit, sizeof *s->generated);
    if (!s->seen || !s->generated) {
        err_set(e, ERR_MEMORY, "no memory for a vocabulary of %d tokens", (int)limit);
        sampler_free(s);
        return NULL;
    }
    sampler_seed(&s->random, o->seed);
    return s;
}

void sampler_free(sampler *s) {
    if (!s) return;
    mem_free(s->seen);
    mem_free(s->generated);
    mem_free(s->c);
    mem_free(s);
}

void sampler_reset(sampler *s) {
    memset(s->seen, 0, (size_t)s->limit * sizeof *s->seen);
    memset(s->generated, 0, (size_t)s->limit * sizeof *s->generated);
    sampler_seed(&s->random, s->o.seed);
}

void sampler_prompt(sampler *s, const int32_t *ids, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (ids[i] >= 0 && ids[i] < s->limit) s->seen[ids[i]] = true;
}

void sampler_accept(sampler *s, int32_t id) {
    if (id < 0 || id >= s->limit) return;
    s->seen[id] = true;
    s->generated[id]++;
}

void sampler_allow(sampler *s, const uint32_t *bits, int32_t n) {
    s->allowed = bits;
    s->n_allowed = n;
}

/* ---- The steps ---- */

static bool is_greedy(const sampler *s) {
    return s->o.temperature < GREEDY_BELOW;
}

static float penalise(const sampler *s, float v, int32_t id) {
    if (s->seen[id]) v = v < 0 ? v * s->o.repetition_penalty : v / s->o.repetition_penalty;
    if (s->generated[id]) {
        v -= s->o.frequency_penalty * (float)s->generated[id];
        v -= s->o.presence_penalty;
    }
    return v;
}

static bool is_allowed(const sampler *s, int32_t id) {
    return !s->allowed || (id >= 0 && id < s->n_allowed && s->allowed[id >> 5] >> (id & 31) & 1);
}

static bool nothing_left(const sampler *s, const sampler_row *row, err *e) {
    if (s->allowed && row->ids)
        return err_set(
            e, ERR_NUMERIC,
            "none of the %zu candidates that the package returns may come next: a constraint needs "
            "a package that returns all scores",
            row->n);
    return err_set(e, ERR_NUMERIC, "no token is left to sample from");
}

/* Adds a token with its penalties and temperature, unless it is out of the question. */
static bool consider(const sampler *s, ranking *r, int32_t id, float logit, err *e) {
    if (id < 0 || id >= s->limit) return true;
    float v = penalise(s, logit, id) / (is_greedy(s) ? 1 : s->o.temperature);
    if (isnan(v) || (isinf(v) && v > 0))
        return err_set(e, ERR_NUMERIC, "the logit of token %d is %s", (int)id, isnan(v) ? "NaN" : "infinite");
    if (!isinf(v)) r->c[r->n++] = (candidate){v, id};
    return true;
}

/* The same for all that are allowed in a dense row: mostly few. */
static bool consider_allowed(const sampler *s, ranking *r, const sampler_row *row, err *e) {
    size_t n = row->n < (size_t)s->n_allowed ? row->n : (size_t)s->n_allowed;
    for (size_t base = 0; base < n; base += 32)
        for (uint32_t bits = s->allowed[base / 32]; bits; bits &= bits - 1) {
            size_t id = base + (size_t)__builtin_ctz(bits);
            if (id < n && !consider(s, r, (int32_t)id, row->values[id], e)) return false;
        }
    return true;
}

/* The candidates after penalties and temperature, without those that are out of the question. */
static bool gather(sampler *s, sampler_row row, ranking *r, err *e) {
    if (row.n > s->cap) {
        mem_free(s->c);
        s->cap = 0;
        s->c = mem_try(row.n, sizeof *s->c);
        if (!s->c) return err_set(e, ERR_MEMORY, "no memory to sample from %zu logits", row.n);
        s->cap = row.n;
    }
    *r = (ranking){.c = s->c};
    if (s->allowed && !row.ids) return consider_allowed(s, r, &row, e) && (r->n || nothing_left(s, &row, e));
    for (size_t i = 0; i < row.n; i++) {
        int32_t id = row.ids ? row.ids[i] : i < (size_t)s->limit ? (int32_t)i : s->limit;
        if (is_allowed(s, id) && !consider(s, r, id, row.values[i], e)) return false;
    }
    return r->n || nothing_left(s, &row, e);
}

static bool better(candidate a, candidate b) {
    return a.v > b.v || (a.v == b.v && a.id < b.id);
}

static void sift_down(candidate *c, size_t n, size_t i) {
    candidate x = c[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && better(c[child + 1], c[child])) child++;
        if (!better(c[child], x)) break;
        c[i] = c[child];
    }
    c[i] = x;
}

static void rank(ranking *r) {
    for (size_t i = r->n / 2; i-- > 0;) sift_down(r->c, r->n, i);
}

/* The k-th best, from 0. Sorts only as far as asked. */
static candidate best(ranking *r, size_t k) {
    for (; r->taken <= k; r->taken++) {
        size_t last = r->n - 1 - r->taken;
        candidate top = r->c[0];
        r->c[0] = r->c[last];
        r->c[last] = top;
        sift_down(r->c, last, 0);
    }
    return r->c[r->n - 1 - k];
}

/* Weight of a candidate, 1 for the best one. */
static double weight(candidate c, candidate top) {
    return sampler_exp((double)c.v - (double)top.v);
}

static double total_weight(ranking *r, size_t count) {
    double sum = 0;
    candidate top = best(r, 0);
    for (size_t k = 0; k < count; k++) sum += weight(count < r->n ? best(r, k) : r->c[k], top);
    return sum;
}

/* How many of the best are left after top-k, top-p and min-p: each of them keeps a prefix of the ranking. */
static size_t survivors(const sampler *s, ranking *r) {
    size_t count = r->n;
    if (s->o.top_k && (uint64_t)s->o.top_k < count) {
        count = (size_t)s->o.top_k;
        while (count < r->n && best(r, count).v == best(r, count - 1).v) count++;
    }
    candidate top = best(r, 0);
    if (s->o.top_p < 1) {
        double above = 1, enough = (double)s->o.top_p * total_weight(r, count);
        size_t k = 1;
        for (; k < count && above < enough; k++) above += weight(best(r, k), top);
        count = k;
    }
    if (s->o.min_p > 0) {
        size_t k = 1;
        while (k < count && weight(best(r, k), top) >= (double)s->o.min_p) k++;
        count = k;
    }
    return count;
}

static int32_t draw(sampler *s, ranking *r) {
    size_t count = survivors(s, r), k = 0;
    candidate top = best(r, 0);
    double u = (double)(sampler_next(&s->random) >> 11) * 0x1p-53, sum = 0, goal = u * total_weight(r, count);
    for (; k + 1 < count; k++)
        if ((sum += weight(best(r, k), top)) > goal) break;
    return best(r, k).id;
}

static bool has_penalties(const sampler *s) {
    return s->o.repetition_penalty != 1 || s->o.frequency_penalty != 0 || s->o.presence_penalty != 0;
}

int32_t sampler_pick(sampler *s, sampler_row row, err *e) {
    ranking r;
    if (is_greedy(s) && !row.ids && !has_penalties(s) && row.known && row.known <= (size_t)s->limit &&
        is_allowed(s, (int32_t)(row.known - 1)))
        return (int32_t)(row.known - 1);
    if (!gather(s, row, &r, e)) return -1;
    if (!is_greedy(s)) {
        rank(&r);
        return draw(s, &r);
    }
    candidate top = r.c[0];
    for (size_t i = 1; i < r.n; i++)
        if (better(r.c[i], top)) top = r.c[i];
    return top.id;
}

bool sampler_process(sampler *s, sampler_row row, float *out, size_t n, err *e) {
    ranking r;
    if (!gather(s, row, &r, e)) return false;
    rank(&r);
    size_t count = is_greedy(s) ? r.n : survivors(s, &r);
    for (size_t i = 0; i < n; i++) out[i] = -INFINITY;
    for (size_t k = 0; k < count; k++) {
        candidate c = best(&r, k);
        if ((size_t)c.id < n) out[c.id] = c.v;
    }
    return true;
}

/* ---- Stop set ---- */

bool stop_set_has(const stop_set *s, int32_t id) {
    for (size_t i = 0; i < s->n; i++)
        if (s->ids[i] == id) return true;
    return false;
}

void stop_set_add(stop_set *s, const int32_t *ids, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || stop_set_has(s, ids[i])) continue;
        if (s->n == s->cap) s->ids = mem_realloc(s->ids, (s->cap = s->cap ? s->cap * 2 : 8) * sizeof *s->ids);
        s->ids[s->n++] = ids[i];
    }
}

bool stop_set_add_json(stop_set *s, const json *eos, err *e) {
    if (!eos || eos->kind == JSON_NULL) return true;
    if (eos->kind == JSON_ARRAY) {
        JSON_EACH(x, eos) {
            if (x->kind != JSON_INT)
                return err_set(e, ERR_FORMAT, "expected token ids in the list, found %s",
                               json_kind_name(x->kind));
            if (!stop_set_add_json(s, x, e)) return false;
        }
        return true;
    }
    if (eos->kind != JSON_INT || eos->i < 0 || eos->i > INT32_MAX)
        return err_set(e, ERR_FORMAT, "expected a token id or a list of them");
    int32_t id = (int32_t)eos->i;
    stop_set_add(s, &id, 1);
    return true;
}

void stop_set_free(stop_set *s) {
    mem_free(s->ids);
    *s = (stop_set){0};
}
