#define _GNU_SOURCE /* strsep */
#include "base/json.h"
#include "cli/input.h"
#include "cli/options.h"
#include "cli/output.h"
#include "generate/artifact.h"
#include "runtime/calls.h"
#include <stdlib.h>
#include <string.h>

static bool has_name(const char *const *names, size_t n, const char *name) {
    for (size_t i = 0; i < n; i++)
        if (!strcmp(names[i], name)) return true;
    return false;
}

/* "a,b" -> names, each once. */
static const char *const *split_names(arena *a, const char *text, size_t *n) {
    *n = 0;
    if (!text) return NULL;
    const char **names = ARENA_ARRAY(a, const char *, strlen(text) + 1);
    char *rest = arena_str(a, text);
    for (char *name; (name = strsep(&rest, ","));)
        if (*name && !has_name(names, *n, name)) names[(*n)++] = name;
    return names;
}

/* The tensor file that a calls file names ("tensors"), in the directory of the calls file; of one that comes
 * through standard input, in the current one. */
static const char *tensors_of(arena *a, const char *path, const calls_options *o, err *e) {
    const json *root = json_parse(a, o->calls_name, o->calls, o->n_calls, e);
    if (!root) return NULL;
    const char *name = json_str(root, "tensors", NULL), *slash = strrchr(path, '/');
    if (!name) {
        err_set(e, ERR_USAGE, "%s names no \"tensors\" file: give one with --inputs", o->calls_name);
        return NULL;
    }
    return *name == '/' || !slash ? name : arena_printf(a, "%.*s/%s", (int)(slash - path), path, name);
}

static bool read_calls(calls_options *o, str *text, arena *a, const char *path, err *e) {
    if (!path) return true;
    if (!cli_read_text(text, path, e)) return false;
    o->calls = str_get(text);
    o->n_calls = text->len;
    o->calls_name = cli_input_name(path);
    return o->inputs || (o->inputs = tensors_of(a, path, o, e));
}

/* The package to run: the only one, or the one of a set that --package names, with or without .mlpackage. */
static const char *choose(const artifact_paths *where, const char *name, err *e) {
    str all = {0};
    const char *found = NULL;
    for (size_t i = 0; i < where->n_package; i++) {
        const char *is = artifact_name(where->package[i]);
        size_t n = name ? strlen(name) : 0;
        if (name ? !strncmp(is, name, n) && (!is[n] || !strcmp(is + n, ".mlpackage")) : where->n_package == 1)
            found = where->package[i];
        str_printf(&all, "%s%s", i ? ", " : "", is);
    }
    if (!found && name)
        err_set(e, ERR_USAGE, "%s: no package %s; there is %s", where->dir, name, str_get(&all));
    else if (!found)
        err_set(e, ERR_USAGE, "%s: a set of packages; choose one with --package: %s", where->dir,
                str_get(&all));
    str_free(&all);
    return found;
}

static int predict(const cli_args *args, arena *a) {
    artifact_paths where;
    err e = {0};
    str text = {0};
    const char *calls = cli_text(args, "calls");
    calls_options o = {.function = cli_text(args, "function"),
                       .inputs = cli_text(args, "inputs"),
                       .output = cli_text(args, "output"),
                       .mode = strcmp(cli_text(args, "precision"), "strict") ? RT_FAST : RT_STRICT};
    if (!o.output) return cli_usage(args, "--output is missing");
    if (!o.inputs && !calls) return cli_usage(args, "give --inputs or --calls");
    if (o.function && calls)
        return cli_usage(args, "--function and --calls exclude each other: each call names its function");
    o.values = split_names(a, cli_text(args, "values"), &o.n_values);
    bool ok = artifact_locate(&where, a, cli_arg(args, "PACKAGE"), NULL, &e) &&
              (o.package = choose(&where, cli_text(args, "package"), &e)) &&
              read_calls(&o, &text, a, calls, &e) && calls_predict(&o, &e);
    str_free(&text);
    return ok ? CLI_OK : cli_fail(&e);
}

int cmd_predict(const cli_args *args) {
    setenv("MILLET_LINEAR", "int16", 0); /* unless chosen: what is asked for are values, not speed */
    arena *a = arena_new();
    int code = predict(args, a);
    arena_free(a);
    return code;
}
