/* Sampler: a row of logits -> the next token id. The steps, in transformers' order:
 *
 *   repetition penalty over prompt and output (logit < 0: times p, else: divided by p)
 *   presence and frequency penalties over the output only, as OpenAI defines them (logit -= presence +
 * frequency * count) temperature 0: the largest logit, lowest id among equals; otherwise temperature (divide)
 *   top-k   drops what is below the k-th largest; equals of it stay
 *   top-p   drops the tail behind the smallest set of the best with probability >= p; the best stays
 *   min-p   drops what is less probable than min_p times the best
 *   softmax and one draw
 *
 * The draw takes one number of xoshiro256** (Blackman and Vigna 2018), seeded through splitmix64, and walks
 * down from the best token. Arithmetic is plain IEEE with our own exp, in a fixed order: a seed gives the
 * same ids on every machine. */
#ifndef GENERATE_SAMPLER_H
#define GENERATE_SAMPLER_H
#include "base/err.h"
#include "base/json.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    float temperature;                         /* >= 0; 0 (and below 1e-5) is greedy */
    int64_t top_k;                             /* 0: off; more than there are tokens is fine */
    float top_p;                               /* [0, 1]; 1: off */
    float min_p;                               /* [0, 1]; 0: off */
    float repetition_penalty;                  /* > 0; 1: off */
    float presence_penalty, frequency_penalty; /* 0: off */
    uint64_t seed;
} sampler_options;

/* Greedy, everything off. */
#define SAMPLER_GREEDY ((sampler_options){.top_p = 1, .repetition_penalty = 1})

/* The options that a generation_config.json asks for, seed 0. What it doesn't say is as in transformers:
 * greedy without do_sample; with it temperature 1, top-k 50, top-p 1. A value of a wrong type or range is an
 * error that names it, also one that is not used. */
bool sampler_from_config(sampler_options *o, const json *config, err *e);

/* One row of logits. ids NULL: dense, values[i] belongs to id i. Otherwise candidates in any order, ids
 * distinct. */
typedef struct {
    const float *values;
    const int32_t *ids;
    size_t n;
    size_t
        known; /* 0, or 1 + index of the first of the largest values where all are finite: spares a search */
} sampler_row;

typedef struct sampler sampler;

/* limit: ids from here on are never sampled (tokenizer_limit(), or the vocabulary's size). NULL on error (an
 * option out of range). */
sampler *sampler_new(const sampler_options *o, int32_t limit, err *e);
void sampler_free(sampler *s);
/* Forgets all tokens and seeds the generator anew. */
void sampler_reset(sampler *s);
/* Makes tokens known to the penalties. Ids outside of [0, limit) are ignored. */
void sampler_prompt(sampler *s, const int32_t *ids, size_t n);
void sampler_accept(sampler *s, int32_t id); /* one that was generated */

/* From here on only ids below n with bit id % 32 of bits[id / 32] set may be picked, as if there were no
 * others: before penalties and all else. bits is borrowed; NULL: all ids. */
void sampler_allow(sampler *s, const uint32_t *bits, int32_t n);

/* Picks the next id and advances the generator; doesn't accept it. -1 on error: a NaN or +infinity, or no
 * candidate at all
 * (-infinity marks a token that can't be sampled). */
int32_t sampler_pick(sampler *s, sampler_row row, err *e);
/* The row after all steps but softmax and draw: out[i] for id i, n of them; -infinity where dropped. */
bool sampler_process(sampler *s, sampler_row row, float *out, size_t n, err *e);

/* e^x for x <= 0, the same bits everywhere; relative error below 1e-15. Below -708 it is 0. */
double sampler_exp(double x);

/* xoshiro256**. */
typedef struct {
    uint64_t s[4];
} sampler_random;
void sampler_seed(sampler_random *r, uint64_t seed);
/* The seed of the k-th of several texts of one seed; of the first (k = 0) the seed itself. Neighbouring seeds
 * have none in common. */
uint64_t sampler_seed_of(uint64_t seed, uint64_t k);
uint64_t sampler_next(sampler_random *r);

/* Ids that end a generation. Zero-initialise, free with stop_set_free(). */
typedef struct {
    int32_t *ids;
    size_t n, cap;
} stop_set;

/* Adds what isn't there yet; negative ids are ignored. */
void stop_set_add(stop_set *s, const int32_t *ids, size_t n);
/* The value of an "eos_token_id": a number, an array of numbers, null or absent. */
bool stop_set_add_json(stop_set *s, const json *eos, err *e);
bool stop_set_has(const stop_set *s, int32_t id);
void stop_set_free(stop_set *s);
#endif
