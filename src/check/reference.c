#define _GNU_SOURCE
#include "base/file.h"
#include "base/str.h"
#include "check/check.h"
#include "convert/convert.h"
#include <stdlib.h>
#include <string.h>

#define ANY_SIZE (UINT64_C(1) << 50) /* nobody ships it */

static bool on_progress(void *ctx, const char *tensor, uint64_t done, uint64_t total, uint64_t tensors_done,
                        uint64_t tensors) {
    (void)tensor, (void)tensors_done, (void)tensors;
    check_watch *w = ctx;
    w->done = (size_t)done;
    w->total = (size_t)total;
    return check_go(w);
}

bool check_is_asset(const lm *artifact) {
    return rt_model_coreml(artifact->model[0])->spec == IR_SPEC_COREAI;
}

lm *check_reference(const char *checkpoint, const lm *artifact, check_watch *w, err *e) {
    check_phase(w, "reference", 0);
    int64_t context = artifact->form.context;
    bool chunks = artifact->form.form == CONTRACT_CHUNKS;
    bool coreai = check_is_asset(artifact);
    const convert_options o = {.format = coreai ? "coreai" : NULL,
                               .steer_around = coreai ? "none" : NULL,
                               .preset = coreai   ? NULL
                                         : chunks ? "chunks"
                                                  : "single",
                               .chunks = chunks ? "1" : NULL,
                               .max_file_size = chunks ? ANY_SIZE : 0,
                               .precision = "float32",
                               .context = context < INT32_MAX ? context : 0,
                               .top_k = 0,
                               .progress = on_progress,
                               .ctx = w};
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
    if (!m && e->code == ERR_CANCELLED) /* not of interest: the conversion that was */
        *e = (err){.code = ERR_CANCELLED, .msg = "cancelled"};
    else if (!m)
        err_where(e, "reference");
    err ignored = {0}; /* the maps are open: the names can go */
    file_remove_tree(dir.s, &ignored);
    str_free(&out);
    str_free(&dir);
    return m;
}
