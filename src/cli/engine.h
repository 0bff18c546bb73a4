/* The options --threads and --linear (ENGINE_OPTIONS of options.def). */
#ifndef CLI_ENGINE_H
#define CLI_ENGINE_H
#include "cli/options.h"

/* Hands them to everything that this process opens from here on, by the environment variables that the
 * runtime reads: MILLET_THREADS, MILLET_LINEAR. CLI_OK; after a usage error, which was printed, its code. */
int cli_engine(const cli_args *a);
#endif
