#include "kernels/amx_tiles.h"
#include "kernels/rate_loops.h"

/* Tiles 0 to 3 are sums, 4 and 5 are multiplied. */
static void begin(void) {
    tiles_on();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
}

#define FOUR(product)                                                                                        \
    for (int64_t i = 0; i < rounds; i++) {                                                                   \
        product(0, 4, 5);                                                                                    \
        product(1, 4, 5);                                                                                    \
        product(2, 4, 5);                                                                                    \
        product(3, 4, 5);                                                                                    \
    }

void rate_amx_bf16(int64_t rounds) {
    begin();
    FOUR(_tile_dpbf16ps)
    _tile_release();
}

__attribute__((target("amx-int8"))) void rate_amx_int8(int64_t rounds) {
    begin();
    FOUR(_tile_dpbssd)
    _tile_release();
}
