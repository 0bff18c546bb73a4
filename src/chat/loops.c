#include "chat/loops.h"

bool loops_add(loops *l, int32_t id) {
    bool looped = false;
    for (uint32_t p = 1; p <= LOOPS_PERIOD && p <= l->n; p++) {
        l->run[p] = l->last[(l->n - p) % LOOPS_PERIOD] == id ? l->run[p] + 1 : 0;
        uint32_t enough = p * (LOOPS_TIMES - 1) > LOOPS_TOKENS ? p * (LOOPS_TIMES - 1) : LOOPS_TOKENS;
        looped |= l->run[p] >= enough;
    }
    l->last[l->n++ % LOOPS_PERIOD] = id;
    return looped;
}
