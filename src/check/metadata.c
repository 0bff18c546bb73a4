#include "base/file.h"
#include "base/json.h"
#include "check/check.h"
#include "generate/artifact.h"
#include <inttypes.h>
#include <string.h>

/* A whole number that metadata.json states, against the package's; one that is not stated is not compared. */
static void compare(str *failures, const json *o, const char *key, int64_t is) {
    const json *j = json_get(o, key);
    if (j && (j->kind != JSON_INT || j->i != is))
        str_printf(failures, "metadata.json: %s is not %" PRId64 ", as in the package\n", key, is);
}

static void compare_graph(str *failures, const json *graph, const contract *c) {
    const char *preset = c->form == CONTRACT_CHUNKS ? "chunks" : "single";
    const char *says = json_str(graph, "preset", preset);
    if (strcmp(says, preset))
        str_printf(failures, "metadata.json: preset is %s, the package has the form %s\n", says, preset);
    if (c->context < INT32_MAX) compare(failures, graph, "context", c->context);
    compare(failures, graph, "top_k", c->top_k);
}

/* The files that it names are there. */
static void compare_files(str *failures, arena *a, const json *files, const char *metadata) {
    const char *slash = strrchr(metadata, '/');
    JSON_EACH(f, files) {
        const char *path =
            f->kind == JSON_STRING
                ? arena_printf(a, "%.*s%s", slash ? (int)(slash + 1 - metadata) : 0, metadata, f->s)
                : "";
        if (!file_exists(path) && !file_is_dir(path))
            str_printf(failures, "metadata.json: %s is not there\n", f->key);
    }
}

bool check_metadata_run(str *failures, const char *path, const lm *artifact, err *e) {
    arena *a = arena_new();
    artifact_paths p;
    bool ok = artifact_locate(&p, a, path, NULL, e);
    const json *j = ok && p.metadata ? json_parse_file(a, p.metadata, e) : NULL;
    ok = ok && (j || !p.metadata);
    if (j) {
        const json *model = json_get(j, "model");
        const contract *c = &artifact->form;
        compare_graph(failures, json_get(j, "graph"), c);
        compare(failures, model, "vocab_size", artifact->vocab);
        if (c->form == CONTRACT_CHUNKS) compare(failures, model, "hidden_size", c->hidden);
        compare_files(failures, a, json_get(j, "files"), p.metadata);
    }
    arena_free(a);
    return ok;
}
