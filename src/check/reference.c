#define _GNU_SOURCE
#include "base/file.h"
#include "base/str.h"
#include "check/check.h"
#include "convert/convert.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
    bool (*keep_going)(void *ctx);
    void *ctx;
} poll;

static bool on_progress(void *ctx, const char *tensor, uint64_t done, uint64_t total, uint64_t tensors_done,
                        uint64_t tensors) {
    (void)tensor, (void)done, (void)total, (void)tensors_done, (void)tensors;
    const poll *p = ctx;
    return !p->keep_going || p->keep_going(p->ctx);
}

lm *check_reference(const char *checkpoint, const lm *artifact, bool (*keep_going)(void *ctx), void *ctx,
                    err *e) {
    poll p = {keep_going, ctx};
    int64_t context = artifact->form.context;
    const convert_options o = {.preset = artifact->form.form == CONTRACT_CHUNKS ? "chunks" : "single",
                               .precision = "float32",
                               .context = context < INT32_MAX ? context : 0,
                               .top_k = 0,
                               .progress = on_progress,
                               .ctx = &p};
    const char *root = getenv("TMPDIR");
    str dir = {0}, out = {0};
    str_printf(&dir, "%s/millet-check-XXXXXX", root && *root ? root : "/tmp");
    if (!mkdtemp(dir.s)) {
        err_errno(e, "%s", dir.s);
        str_free(&dir);
        return NULL;
    }
    str_printf(&out, "%s/reference", dir.s);
    lm *m = NULL;
    if (convert_checkpoint(checkpoint, out.s, &o, NULL, e)) m = lm_open(out.s, NULL, e);
    err ignored = {0}; /* the maps are open: the names can go */
    file_remove_tree(dir.s, &ignored);
    str_free(&out);
    str_free(&dir);
    return m;
}
