#include "cli/options.h"
#include "base/arena.h"
#include "cli/output.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
#define COMMAND_AS(id, ...) CMD_##id,
#define ARG(...)
#define OPT(...)
#include "cli/options.def"
#undef COMMAND_AS
#undef ARG
#undef OPT
};

#define ARG(...)
#define OPT(...)
#define COMMAND_AS(id, name, usage, brief, text, examples) {name, usage, brief, text, examples, cmd_##id},
const cli_command cli_commands[] = {
#include "cli/options.def"
    {0}};
#undef COMMAND_AS
#define COMMAND_AS(...)
#undef ARG
#define ARG(command, name, kind, help) {CMD_##command, name, kind, help},
const cli_positional cli_positionals[] = {
#include "cli/options.def"
    {0}};
#undef ARG
#define ARG(...)
#undef OPT
#define OPT(command, kind, letter, name, value, fallback, low, high, help)                                   \
    {CMD_##command, kind, letter, name, value, fallback, low, high, help},
const cli_option cli_options[] = {
#include "cli/options.def"
    {0}};
#undef OPT
#undef ARG
#undef COMMAND_AS

#define N_OPTIONS     (sizeof cli_options / sizeof cli_options[0])
#define N_POSITIONALS (sizeof cli_positionals / sizeof cli_positionals[0])

struct cli_args {
    int command;
    const char *option[N_OPTIONS];         /* value as given, "" for flags; NULL: absent */
    const char *positional[N_POSITIONALS]; /* parallel to the tables */
    const char **many;                     /* option and value in turn, of those that may come again */
    size_t n_many;
    bool help;
};

int cli_command_find(const char *name) {
    for (int i = 0; cli_commands[i].name; i++)
        if (!strcmp(cli_commands[i].name, name)) return i;
    return -1;
}

bool cli_wants_help(const cli_args *a) {
    return a->help;
}

const char *cli_command_name(const cli_args *a) {
    return cli_commands[a->command].name;
}

/* Finds --name (n bytes) or, with name NULL, the letter. */
static const cli_option *find_option(int command, const char *name, size_t n, char letter) {
    for (const cli_option *o = cli_options; o->name; o++) {
        if (o->command != command) continue;
        if (name ? strlen(o->name) == n && !memcmp(o->name, name, n) : o->letter == letter) return o;
    }
    return NULL;
}

static bool is_choice(const char *words, const char *value) {
    size_t n = strlen(value);
    for (const char *w = words; w; w = strchr(w, '|'), w = w ? w + 1 : NULL)
        if (n && strcspn(w, "|") == n && !memcmp(w, value, n)) return true;
    return false;
}

static bool check_number(const cli_args *a, const cli_option *o, const char *value) {
    double d = 0;
    int64_t i = 0;
    bool ok = o->kind == INT ? str_to_int64(value, &i) : str_to_double(value, &d);
    if (o->kind == INT) d = (double)i;
    if (ok && d >= o->low && d <= o->high) return true;
    cli_usage(a, "--%s must be a %s from %.17g to %.17g, not '%s'", o->name,
              o->kind == INT ? "whole number" : "number", o->low, o->high, value);
    return false;
}

static bool check_value(const cli_args *a, const cli_option *o, const char *value) {
    switch (o->kind) {
    case INT:
    case REAL: return check_number(a, o, value);
    case CHOICE:
        if (is_choice(o->value, value)) return true;
        cli_usage(a, "--%s must be one of %s, not '%s'", o->name, o->value, value);
        return false;
    case TEXT: {
        size_t n = strlen(value), valid = utf8_valid(value, n);
        if (valid == n) return true;
        cli_usage(a, "--%s is not UTF-8 at byte %zu", o->name, valid);
        return false;
    }
    case PATH:
    case PATHS:
        if (*value) return true;
        cli_usage(a, "--%s must not be empty", o->name);
        return false;
    default: return true;
    }
}

/* One option at argv[*i]; takes the next argument too when that is its value. */
static bool parse_option(cli_args *a, int argc, char **argv, int *i) {
    const char *word = argv[*i], *value = NULL;
    const cli_option *o;
    if (word[1] == '-') {
        size_t n = strcspn(word + 2, "=");
        o = find_option(a->command, word + 2, n, 0);
        if (word[2 + n]) value = word + 2 + n + 1;
    } else {
        o = find_option(a->command, NULL, 0, word[1]);
        if (word[2]) value = word + 2;
    }
    if (!o) {
        cli_usage(a, "unknown option %.*s", (int)strcspn(word, "="), word);
        return false;
    }
    if (o->kind == FLAG) {
        if (value) {
            cli_usage(a, "--%s takes no value", o->name);
            return false;
        }
        value = "";
    } else if (!value) {
        if (*i + 1 == argc) {
            cli_usage(a, "--%s needs a value (%s)", o->name, o->value);
            return false;
        }
        value = argv[++*i];
    }
    if (!check_value(a, o, value)) return false;
    a->option[o - cli_options] = value;
    if (o->kind != PATHS) return true;
    a->many = mem_realloc(a->many, (a->n_many + 2) * sizeof *a->many);
    a->many[a->n_many++] = o->name;
    a->many[a->n_many++] = value;
    return true;
}

/* Assigns a word to the first positional that is still free. */
static bool take_positional(cli_args *a, const char *word) {
    for (const cli_positional *p = cli_positionals; p->name; p++) {
        size_t at = (size_t)(p - cli_positionals);
        if (p->command != a->command || a->positional[at]) continue;
        if (!*word) {
            cli_usage(a, "%s must not be empty", p->name);
            return false;
        }
        a->positional[at] = word;
        return true;
    }
    cli_usage(a, "unexpected argument '%s'", word);
    return false;
}

static bool parse(cli_args *a, int argc, char **argv) {
    bool options = true;
    for (int i = 0; i < argc; i++) {
        if (options && !strcmp(argv[i], "--"))
            options = false;
        else if (options && (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))) {
            a->help = true;
            return true;
        } else if (options && argv[i][0] == '-' && argv[i][1]) {
            if (!parse_option(a, argc, argv, &i)) return false;
        } else if (!take_positional(a, argv[i]))
            return false;
    }
    for (const cli_positional *p = cli_positionals; p->name; p++)
        if (p->command == a->command && !a->positional[p - cli_positionals] && *p->name != '[') {
            cli_usage(a, "%s is missing", p->name);
            return false;
        }
    return true;
}

cli_args *cli_parse(int command, int argc, char **argv) {
    cli_args *a = mem_alloc(sizeof *a);
    *a = (cli_args){.command = command};
    if (parse(a, argc, argv)) return a;
    cli_args_free(a);
    return NULL;
}

void cli_args_free(cli_args *a) {
    if (a) mem_free(a->many);
    mem_free(a);
}

const char *cli_arg(const cli_args *a, const char *name) {
    for (const cli_positional *p = cli_positionals; p->name; p++)
        if (p->command == a->command && !strcmp(p->name, name)) return a->positional[p - cli_positionals];
    assert(!"no such argument in options.def");
    return NULL;
}

static const cli_option *declared(const cli_args *a, const char *name) {
    const cli_option *o = find_option(a->command, name, strlen(name), 0);
    assert(o && "no such option in options.def");
    return o;
}

bool cli_takes(const cli_args *a, const char *option) {
    return find_option(a->command, option, strlen(option), 0);
}

bool cli_given(const cli_args *a, const char *option) {
    return a->option[declared(a, option) - cli_options];
}

const char *cli_text(const cli_args *a, const char *option) {
    const cli_option *o = declared(a, option);
    const char *value = a->option[o - cli_options];
    return value ? value : o->fallback;
}

size_t cli_paths(const cli_args *a, const char *option, const char **list, size_t most) {
    size_t n = 0;
    assert(declared(a, option)->kind == PATHS);
    for (size_t i = 0; i < a->n_many; i += 2) {
        if (strcmp(a->many[i], option)) continue;
        if (n < most) list[n] = a->many[i + 1];
        n++;
    }
    return n;
}

bool cli_flag(const cli_args *a, const char *option) {
    assert(declared(a, option)->kind == FLAG);
    return cli_given(a, option);
}

int64_t cli_int(const cli_args *a, const char *option) {
    int64_t v = 0;
    const char *text = cli_text(a, option);
    assert(declared(a, option)->kind == INT);
    if (text) str_to_int64(text, &v);
    return v;
}

double cli_real(const cli_args *a, const char *option) {
    double v = 0;
    const char *text = cli_text(a, option);
    assert(declared(a, option)->kind == REAL);
    if (text) str_to_double(text, &v);
    return v;
}

int cli_usage(const cli_args *a, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    char text[1000];
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    cli_error_in(cli_command_name(a), "%s; see millet %s --help", text, cli_command_name(a));
    return CLI_USAGE;
}
