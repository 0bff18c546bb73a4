#define _GNU_SOURCE
#include "cli/engine.h"
#include "runtime/engine.h"
#include <stdlib.h>

int cli_engine(const cli_args *a) {
    if (!cli_takes(a, "linear")) return CLI_OK;
    const char *option = cli_text(a, "linear"), *variable = getenv("MILLET_LINEAR");
    const char *linear = option ? option : variable;
    plan_linear l;
    if (linear && !rt_linear_parse(linear, &l))
        return cli_usage(a, "%s must be exact, int16, bf16, int8 or two of these as in int16,bf16, not '%s'",
                         option ? "--linear" : "MILLET_LINEAR", linear);
    if (option) setenv("MILLET_LINEAR", option, 1);
    if (cli_given(a, "threads")) setenv("MILLET_THREADS", cli_text(a, "threads"), 1);
    if (cli_flag(a, "pin")) setenv("MILLET_PIN", "1", 1);
    return CLI_OK;
}
