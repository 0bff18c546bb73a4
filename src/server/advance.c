#include "server/advance.h"

void advance(advance_step *step, size_t n) {
    for (size_t i = 0; i < n; i++) {
        step[i].e = (err){0};
        decoder_feed(step[i].d, &step[i].id, 1, NULL, &step[i].row, &step[i].e);
    }
}
