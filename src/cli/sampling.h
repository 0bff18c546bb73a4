/* The options that sample, as run, chat, do and serve take them: SAMPLING_OPTIONS of options.def. */
#ifndef CLI_SAMPLING_H
#define CLI_SAMPLING_H
#include "cli/options.h"
#include "generate/sampler.h"

/* Changes what was given. */
void cli_sampling(const cli_args *a, sampler_options *s);
#endif
