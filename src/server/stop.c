#include "server/stop.h"
#include <string.h>

void stopper_begin(stopper *p, const stop_string *stop, size_t n) {
    *p = (stopper){.stop = stop, .n = n};
}

/* Where the first of the stop strings begins, or held.len. */
static size_t first_stop(const stopper *p) {
    size_t at = p->held.len;
    for (size_t i = 0; i < p->n; i++)
        for (size_t k = 0; k < at && p->stop[i].n <= p->held.len - k; k++)
            if (!memcmp(p->held.s + k, p->stop[i].s, p->stop[i].n)) at = k;
    return at;
}

/* Whether what is held from k on begins one of them. */
static bool may_stop(const stopper *p, size_t k) {
    size_t left = p->held.len - k;
    for (size_t i = 0; i < p->n; i++)
        if (left < p->stop[i].n && !memcmp(p->held.s + k, p->stop[i].s, left)) return true;
    return false;
}

static void drop(str *b, size_t n) {
    memmove(b->s, b->s + n, b->len - n);
    b->len -= n;
}

bool stopper_push(stopper *p, const char *text, size_t n, str *out) {
    if (p->found) return true;
    if (!p->n) {
        str_add(out, text, n);
        return false;
    }
    str_add(&p->held, text, n);
    size_t at = first_stop(p);
    p->found = at < p->held.len;
    if (!p->found)
        for (at = 0; at < p->held.len && !may_stop(p, at);) at++;
    str_add(out, p->held.s, at);
    drop(&p->held, p->found ? p->held.len : at);
    return p->found;
}

void stopper_flush(stopper *p, str *out) {
    if (p->held.len) str_add(out, p->held.s, p->held.len);
    str_clear(&p->held);
}

void stopper_free(stopper *p) {
    str_free(&p->held);
}
