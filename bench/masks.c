/* What masks cost: grammars over a tokenizer's vocabulary, along texts drawn from the masks.
 *
 *     build/bench_masks TOKENIZER_DIR [TEXTS]
 *
 * For each schema: making the grammar; the first text, which finds no mask made; then, over further texts,
 * each matcher_mask() and matcher_accept() by itself: median, p99 and most, in microseconds. */
#include "base/clock.h"
#include "base/json.h"
#include "generate/sampler.h"
#include "structured/matcher.h"
#include "text/tokenizer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *schema;
} cases[] = {
    {"object", NULL},
    {"person",
     "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{\"type\":\"integer\","
     "\"minimum\":0,"
     "\"maximum\":150},\"email\":{\"type\":\"string\",\"format\":\"email\"},\"tags\":{\"type\":\"array\","
     "\"items\":{\"type\":"
     "\"string\"}}},\"required\":[\"name\",\"age\",\"email\",\"tags\"],\"additionalProperties\":false}"},
    {"lengths", "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"minLength\":5,\"maxLength\":200},"
                "\"minItems\":3,\"maxItems\":10}"},
    {"pattern", "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"pattern\":\"^[A-Za-z "
                ",.]{10,120}$\"},\"minItems\":3}"},
    {"tree", "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"value\":{\"anyOf\":[{"
             "\"type\":\"number\"},{\"type\":"
             "\"null\"}]},\"children\":{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}},\"required\":["
             "\"name\",\"children\"],"
             "\"additionalProperties\":false}"},
    {"map", "{\"type\":\"object\",\"properties\":{\"id\":{\"type\":\"string\",\"format\":\"uuid\"},\"when\":{"
            "\"type\":\"string\","
            "\"format\":\"date-time\"}},\"required\":[\"id\"],\"additionalProperties\":{\"type\":[\"string\","
            "\"number\"]}}"},
};

enum { WARM = 5 }; /* passes over the same texts; of each call the least time counts */

typedef struct {
    double *s;
    size_t n, cap;
    size_t at; /* a pass that repeats the one before keeps the lesser of each time */
} times;

static void add(times *t, double s) {
    if (t->at < t->n) {
        if (s < t->s[t->at]) t->s[t->at] = s;
        t->at++;
        return;
    }
    if (t->n == t->cap) t->s = realloc(t->s, (t->cap = t->cap * 2 + 1024) * sizeof *t->s);
    t->s[t->n++] = s;
    t->at = t->n;
}

static int by_size(const void *x, const void *y) {
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

static void print(const char *what, times *t) {
    qsort(t->s, t->n, sizeof *t->s, by_size);
    double sum = 0;
    for (size_t i = 0; i < t->n; i++) sum += t->s[i];
    printf("  %-12s %6zu  median %8.2f  mean %8.2f  p99 %9.2f  most %9.2f us\n", what, t->n,
           1e6 * t->s[t->n / 2], 1e6 * sum / (double)t->n, 1e6 * t->s[t->n * 99 / 100], 1e6 * t->s[t->n - 1]);
    t->n = t->at = 0;
}

static const tokenizer *text_of;

static bool closes(int32_t id) {
    size_t n;
    const uint8_t *s = tokenizer_bytes(text_of, id, &n);
    return !s || tokenizer_is_special(text_of, id) || memchr("}]\"", s[n - 1], 3);
}

/* Any allowed token, now and then one that brings the text to its end. */
static int32_t draw(const uint32_t *bits, int32_t limit, sampler_random *r, size_t step) {
    static int32_t all[2][1 << 20];
    size_t n[2] = {0, 0};
    for (int32_t id = 0; id < limit; id++)
        if (bits[id / 32] >> (id % 32) & 1) {
            all[0][n[0]++] = id;
            if (closes(id)) all[1][n[1]++] = id;
        }
    int kind = n[1] && sampler_next(r) % 100 < 15 + step / 2;
    return all[kind][sampler_next(r) % n[kind]];
}

static bool follow(grammar *g, const vocabulary *v, sampler_random *r, uint32_t *bits, times *mask,
                   times *accept) {
    err e = {0};
    matcher *m = matcher_new(g, v, &e);
    bool ok = true;
    for (size_t i = 0; ok && i < 200 && !matcher_ended(m); i++) {
        double start = clock_seconds();
        ok = matcher_mask(m, bits, &e);
        double asked = clock_seconds();
        if (!ok) break;
        int32_t id = draw(bits, vocabulary_limit(v), r, i);
        double drawn = clock_seconds();
        ok = matcher_accept(m, id);
        add(mask, asked - start);
        add(accept, clock_seconds() - drawn);
    }
    matcher_free(m);
    if (!ok) fprintf(stderr, "%s\n", e.msg);
    return ok;
}

int main(int argc, char **argv) {
    err e = {0};
    tokenizer *t = argc > 1 ? tokenizer_load(argv[1], &e) : NULL;
    if (!t) return fprintf(stderr, "bench_masks TOKENIZER_DIR [TEXTS]: %s\n", e.msg), 1;
    text_of = t;
    int32_t stop = tokenizer_find(t, "<|im_end|>", 10);
    double start = clock_seconds();
    vocabulary *v = vocabulary_new(t, &stop, 1, tokenizer_limit(t), &e);
    printf("%d tokens: a trie of %.1f MB in %.0f ms\n", (int)vocabulary_limit(v),
           (double)vocabulary_bytes(v) / 1e6, 1e3 * (clock_seconds() - start));
    uint32_t *bits = malloc(vocabulary_words(v) * sizeof *bits);
    times mask = {0}, accept = {0};
    int texts = argc > 2 ? atoi(argv[2]) : 20;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        start = clock_seconds();
        const char *s = cases[i].schema;
        grammar *g =
            s ? grammar_from_text(cases[i].name, s, strlen(s), NULL, &e) : grammar_json_object(NULL, &e);
        if (!g) return fprintf(stderr, "%s\n", e.msg), 1;
        printf("%s: grammar of %.1f KB in %.1f ms\n", cases[i].name, (double)grammar_bytes(g) / 1e3,
               1e3 * (clock_seconds() - start));
        sampler_random r;
        for (int pass = 0; pass <= WARM; pass++) {
            sampler_seed(&r, 7);
            mask.at = accept.at = 0;
            for (int k = 0; k < texts; k++)
                if (!follow(g, v, &r, bits, &mask, &accept)) return 1;
            if (!pass) print("mask, cold", &mask);
        }
        print("mask, warm", &mask);
        sampler_seed(&r, 8);
        accept.at = 0;
        for (int k = 0; k < texts; k++)
            if (!follow(g, v, &r, bits, &mask, &accept)) return 1;
        print("new texts", &mask);
        print("accept", &accept);
        grammar_free(g);
    }
    free(bits);
    free(mask.s);
    free(accept.s);
    vocabulary_free(v);
    tokenizer_free(t);
    return 0;
}
