#include "generate/cover.h"
#include "base/arena.h"
#include <stdlib.h>

bool cover_plan(const int64_t *size, size_t n_size, size_t n, int64_t room, bool pad, uint8_t *choice,
                err *e) {
    uint64_t *cost = mem_try(n + 1, sizeof *cost); /* of the cheapest way for the last r tokens */
    if (!cost) return err_set(e, ERR_MEMORY, "no memory to plan %zu tokens", n);
    for (size_t r = 1; r <= n; r++) {
        int64_t left = room - (int64_t)(n - r); /* positions from here to the end of the context */
        cost[r] = UINT64_MAX;
        for (size_t i = n_size; i-- > 0;) {
            if (size[i] > left || (!pad && (uint64_t)size[i] > r)) continue;
            uint64_t rest = (uint64_t)size[i] < r ? cost[r - (size_t)size[i]] : 0;
            uint64_t sum = COVER_CALL + (uint64_t)size[i] + rest;
            if (sum >= cost[r]) continue;
            cost[r] = sum;
            choice[r] = (uint8_t)i;
        }
    }
    mem_free(cost);
    return true;
}
