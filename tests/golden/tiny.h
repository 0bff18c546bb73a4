/* The model in models/ as the public interface converts it, and what transformers says behind two prompts
 * (tests/data/generate): shared by tests of whole programs. */
#ifndef TEST_TINY_H
#define TEST_TINY_H
#include "base/json.h"
#include "millet.h"
#include "work_dir.h"

typedef struct {
    char checkpoint[512], artifact[300];
    struct {
        char text[300];
        int32_t ids[300], greedy[200];
        size_t n;
    } prompt[2];
} tiny;

static inline size_t tiny_ids(const json *list, int32_t *ids) {
    size_t n = 0;
    JSON_EACH(c, list) ids[n++] = (int32_t)c->i;
    return n;
}

/* For a group's set-up: 0, or -1. */
static inline int tiny_make(tiny *t, const millet_convert_options *o) {
    const char *source = getenv("MILLET_SOURCE");
    char path[600];
    err e = {0};
    snprintf(t->checkpoint, sizeof t->checkpoint, "%s/models/tiny-qwen3.5", source ? source : ".");
    snprintf(path, sizeof path, "%s/tests/data/generate/tiny-qwen3.5.json", source ? source : ".");
    if (make_work_dir(NULL)) return -1;
    snprintf(t->artifact, sizeof t->artifact, "%s", in_work("artifact"));
    arena *a = arena_new();
    const json *golden = json_parse_file(a, path, &e),
               *p = golden ? json_get(golden, "prompts")->child : NULL;
    for (int i = 0; p && i < 2; i++, p = p->next) {
        snprintf(t->prompt[i].text, sizeof t->prompt[i].text, "%s", json_str(p, "text", ""));
        t->prompt[i].n = tiny_ids(json_get(p, "ids"), t->prompt[i].ids);
        tiny_ids(json_get(p, "greedy"), t->prompt[i].greedy);
    }
    arena_free(a);
    return golden && millet_convert(t->checkpoint, t->artifact, o, NULL, NULL) ? 0 : -1;
}
#endif
