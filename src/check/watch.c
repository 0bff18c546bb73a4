#include "check/check.h"

bool check_go(void *ctx) {
    const check_watch *w = ctx;
    return !w->tick || w->tick(w->ctx, w->phase, w->done < w->total ? w->done : w->total, w->total);
}

void check_phase(check_watch *w, const char *phase, size_t total) {
    w->phase = phase;
    w->done = 0;
    w->total = total;
}

bool check_step(check_watch *w, size_t done, err *e) {
    w->done += done;
    return check_go(w) || err_set(e, ERR_CANCELLED, "cancelled");
}
