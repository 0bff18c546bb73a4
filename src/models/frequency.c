/* How fast pairs of dimensions turn with the position, in the spellings of rope_scaling that transformers has
 * (modeling_rope_utils.py). */
#include "models/blocks.h"
#include <math.h>

#define PI 3.14159265358979323846

/* Long wavelengths are stretched, short ones are not, those between in part. */
static double llama3(const rope_config *r, double f) {
    double turns = r->original_max * f / (2 * PI); /* of this pair over the original context */
    if (turns < r->low_freq_factor) return f / r->factor;
    if (turns > r->high_freq_factor) return f;
    double s = (turns - r->low_freq_factor) / (r->high_freq_factor - r->low_freq_factor);
    return f * ((1 - s) / r->factor + s);
}

/* The pair (a fraction) that makes so many turns over the original context. */
static double pair_of_turns(const rope_config *r, double turns) {
    return (double)r->dims * log(r->original_max / (turns * 2 * PI)) / (2 * log(r->theta));
}

/* The same idea, by pairs: those before the first bound stay, those behind the second are stretched. */
static double yarn(const rope_config *r, double f, int64_t j) {
    double low = pair_of_turns(r, r->beta_fast), high = pair_of_turns(r, r->beta_slow);
    if (r->truncate) low = floor(low), high = ceil(high);
    low = fmax(low, 0);
    high = fmin(high, (double)r->dims - 1);
    if (low == high) high += 0.001;
    double s = fmin(fmax(((double)j - low) / (high - low), 0), 1);
    return f / r->factor * s + f * (1 - s);
}

double rope_frequency(const rope_config *r, int64_t j) {
    double f = pow(r->theta, -2.0 * (double)j / (double)r->dims);
    switch (r->kind) {
    case ROPE_LINEAR: return f / r->factor;
    case ROPE_LLAMA3: return llama3(r, f);
    case ROPE_YARN: return yarn(r, f, j);
    case ROPE_DIVISORS: return f / (double)r->divisor[j];
    default: return f;
    }
}
