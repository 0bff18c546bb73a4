/* The tile registers as every AMX kernel wants them: eight of 16 rows of 64 bytes. */
#ifndef KERNELS_AMX_TILES_H
#define KERNELS_AMX_TILES_H
#include <immintrin.h>
#include <stdint.h>

static inline void tiles_on(void) {
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1};
    for (int t = 0; t < 8; t++) config.bytes[t] = 64, config.rows[t] = 16;
    /* GCC takes the instruction to read the first eight bytes alone, and leaves out stores to the others. */
    __asm__ volatile("" : : "r"(&config) : "memory");
    _tile_loadconfig(&config);
}
#endif
