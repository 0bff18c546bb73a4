#include "server/cuts.h"
#include <string.h>

#define KEEP_LAST    4
#define KEEP_SPACING ((size_t)4 * CUT_SPACING)

/* Ids of the beginning of an assistant's turn, in the form of ChatML; 0: the tokenizer has none. */
static size_t turn_ids(const lm *m, int32_t ids[8]) {
    token_list list = {0};
    err e = {0};
    size_t n = 0;
    if (m->text && tokenizer_encode(m->text, "<|im_start|>assistant", 21, 0, &list, &e) && list.n &&
        list.n <= 8 && tokenizer_is_added(m->text, list.ids[0])) {
        n = list.n;
        memcpy(ids, list.ids, n * sizeof *ids);
    }
    token_list_free(&list);
    return n;
}

void cuts_make(request_prompt *p, arena *a, const lm *m) {
    int32_t turn[8];
    size_t k = turn_ids(m, turn), n = 0, *cut = NULL, cap = 0;
    for (size_t i = 1; i <= p->n; i++) {
        bool here = i == p->n || i % CUT_SPACING == 0 ||
                    (k && p->n - i >= k && !memcmp(p->ids + i, turn, k * sizeof *turn));
        if (!here) continue;
        cut = arena_grow(a, cut, n, &cap, n + 1, sizeof *cut);
        cut[n++] = i;
    }
    p->cut = cut;
    p->n_cut = n;
}

bool cuts_keep(const request_prompt *p, size_t k) {
    return k + 1 + KEEP_LAST > p->n_cut || p->cut[k] % KEEP_SPACING == 0;
}
