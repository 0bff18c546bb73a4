/* A contract description, and a YAML file: what is accepted is complete, what is refused has an error. */
#include "base/json.h"
#include "base/yaml.h"
#include "generate/describe.h"
#include "generate/pattern.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void must(bool ok) {
    if (!ok) abort();
}

static void look_at(const description *d) {
    must(d->name && d->n_package);
    for (size_t i = 0; i < d->n_package; i++) {
        const describe_package *p = &d->package[i];
        must(p->role && p->n_in && p->n_out);
        for (size_t k = 0; k < p->n_in; k++) must(p->in[k].rank > 0 && p->in[k].is < MEANS_COUNT);
        for (size_t k = 0; k < p->files.n; k++)
            pattern_fits(p->files.s[k], "q_embeddings_lut4_chunk_01of02", NULL);
    }
}

/* The first byte chooses. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (!n) return 0;
    arena *a = arena_new();
    err e = {0};
    const char *text = (const char *)data + 1;
    if (*data & 1) {
        const description *d = describe_parse(a, "x.json", text, n - 1, &e);
        must(!d == (e.code != ERR_NONE));
        if (d) look_at(d);
    } else {
        const json *j = yaml_parse(a, "x.yaml", text, n - 1, &e);
        str s = {0};
        must(!j == (e.code != ERR_NONE));
        if (j) json_canonical(&s, j);
        str_free(&s);
    }
    arena_free(a);
    return 0;
}
