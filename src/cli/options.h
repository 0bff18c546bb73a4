/* Command line of one command, parsed and checked against the option table (options.def). A command asks for
 * what it declared there by name; asking for anything else is a bug and asserts.
 *
 *   int cmd_score(const cli_args *a) {
 *       const char *ids = cli_text(a, "ids-file");
 *       if (!ids) return cli_usage(a, "give --ids-file or --text-file");
 *       ...
 *       if (!ok) return cli_fail(&e);      // output.h
 *       return CLI_OK;
 *   }
 */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H
#include "base/str.h"
#include <stdint.h>

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 }; /* exit codes */

typedef struct cli_args cli_args;
typedef int cli_main_fn(const cli_args *a); /* returns the exit code */

typedef enum { FLAG, PATH, PATHS, TEXT, CHOICE, INT, REAL } cli_kind;

/* Rows of options.def. */
typedef struct {
    int command;
    cli_kind kind;
    char letter;
    const char *name, *value, *fallback;
    double low, high;
    const char *help;
} cli_option;

typedef struct {
    int command;
    const char *name;
    cli_kind kind;
    const char *help;
} cli_positional;

typedef struct {
    const char *name, *usage, *brief, *text, *examples;
    cli_main_fn *main;
} cli_command;

/* The tables. Each ends with an entry whose name is NULL. */
extern const cli_command cli_commands[];
extern const cli_option cli_options[];
extern const cli_positional cli_positionals[];
int cli_command_find(const char *name); /* index into cli_commands, -1 when there is none */

/* Parses what follows the command's name. NULL after a usage error, which was printed (exit with CLI_USAGE).
 * Freed with cli_args_free(). */
cli_args *cli_parse(int command, int argc, char **argv);
void cli_args_free(cli_args *a);
bool cli_wants_help(const cli_args *a); /* --help was given: nothing else is checked */
const char *cli_command_name(const cli_args *a);

const char *
cli_arg(const cli_args *a,
        const char *name); /* a positional argument, as in "PACKAGE" or "[PACKAGE]" (NULL: absent) */
bool cli_given(const cli_args *a, const char *option); /* was on the command line */
bool cli_takes(const cli_args *a, const char *option); /* is in the command's table */
bool cli_flag(const cli_args *a, const char *option);
const char *cli_text(const cli_args *a,
                     const char *option); /* PATH, TEXT, CHOICE: given, else fallback, else NULL */
/* All values of a PATHS option, up to most of them; returns how many were given. */
size_t cli_paths(const cli_args *a, const char *option, const char **list, size_t most);
int64_t cli_int(const cli_args *a, const char *option); /* given, else fallback; 0 when there is neither */
double cli_real(const cli_args *a, const char *option);
/* Prints "millet NAME: message; see millet NAME --help" on stderr and returns CLI_USAGE. */
int cli_usage(const cli_args *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define COMMAND_AS(id, ...) int cmd_##id(const cli_args *a);
#define ARG(...)
#define OPT(...)
#include "cli/options.def"
#undef COMMAND_AS
#undef ARG
#undef OPT
#endif
