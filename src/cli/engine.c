#define _GNU_SOURCE
#include "cli/engine.h"
#include "base/str.h"
#include "base/team.h"
#include "kernels/kernels.h"
#include "runtime/engine.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Words of a variable that says how things run: one that means nothing would be passed over in silence. */
static bool is_one_of(const char *value, const char *const *word, str *list) {
    bool known = false;
    for (; *word; word++) {
        known |= !strcmp(*word, value);
        str_printf(list, "%s%s", list->len ? ", " : "", *word);
    }
    return known;
}

static int check_words(const cli_args *a, const char *variable, const char *const *word) {
    const char *value = getenv(variable);
    str list = {0};
    int code = CLI_OK;
    if (value && *value && !is_one_of(value, word, &list))
        code = cli_usage(a, "the environment variable %s must be one of %s, not '%s'", variable,
                         str_get(&list), value);
    str_free(&list);
    return code;
}

/* The same of words with commas between them. */
static int check_list(const cli_args *a, const char *variable, const char *const *word) {
    const char *value = getenv(variable);
    str list = {0};
    int code = CLI_OK;
    char each[32];
    for (const char *s = value; s && *s && code == CLI_OK; s += strspn(s, ",")) {
        size_t n = strcspn(s, ",");
        snprintf(each, sizeof each, "%.*s", (int)n, s);
        str_clear(&list);
        if (n && !is_one_of(each, word, &list))
            code = cli_usage(
                a, "the environment variable %s takes words of %s with commas between them, not '%s'",
                variable, str_get(&list), each);
        s += n;
    }
    str_free(&list);
    return code;
}

static int check_threads(const cli_args *a) {
    const char *value = getenv("MILLET_THREADS");
    int64_t n;
    if (!value || !*value || (cli_takes(a, "threads") && cli_given(a, "threads")) ||
        (str_to_int64(value, &n) && n >= 1 && n <= TEAM_MAX))
        return CLI_OK;
    return cli_usage(a,
                     "the environment variable MILLET_THREADS must be a whole number from 1 to %d, not '%s'",
                     TEAM_MAX, value);
}

static int check_variables(const cli_args *a) {
    static const char *const engines[] = {"plan", "reference", NULL}, *const switches[] = {"0", "1", NULL},
                             *const stages[] = {"fold", "fuse", "plan", NULL};
    int code = check_threads(a);
    if (code == CLI_OK) code = check_words(a, "MILLET_ISA", kern_isas());
    if (code == CLI_OK) code = check_words(a, "MILLET_ENGINE", engines);
    if (code == CLI_OK) code = check_words(a, "MILLET_PIN", switches);
    if (code == CLI_OK) code = check_list(a, "MILLET_DUMP", stages);
    return code;
}

int cli_engine(const cli_args *a) {
    int code = check_variables(a);
    if (code != CLI_OK) return code;
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
