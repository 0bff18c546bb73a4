#include "cli/sampling.h"

static void take_real(const cli_args *a, const char *option, float *to) {
    if (cli_given(a, option)) *to = (float)cli_real(a, option);
}

void cli_sampling(const cli_args *a, sampler_options *s) {
    take_real(a, "temperature", &s->temperature);
    take_real(a, "top-p", &s->top_p);
    take_real(a, "min-p", &s->min_p);
    take_real(a, "repetition-penalty", &s->repetition_penalty);
    take_real(a, "presence-penalty", &s->presence_penalty);
    take_real(a, "frequency-penalty", &s->frequency_penalty);
    if (cli_given(a, "top-k")) s->top_k = cli_int(a, "top-k");
    if (cli_given(a, "seed")) s->seed = (uint64_t)cli_int(a, "seed");
}
