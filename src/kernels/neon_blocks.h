/* The kernels of int8 and int4 in blocks of 32, for the files that define blocks_row(job, r, i0, n, nibbles)
 * and BATCH. No guard: included once, behind both. */
INLINE void blocks(const kern_linear *job, int64_t lo, int64_t hi, bool nibbles) {
    for (int64_t r = lo; r < hi; r++) {
        int64_t i = 0;
        for (; i + BATCH <= job->n; i += BATCH) blocks_row(job, r, i, BATCH, nibbles);
        for (; i < job->n; i++) blocks_row(job, r, i, 1, nibbles);
    }
}

static void int16_block8(const kern_linear *job, int64_t lo, int64_t hi) {
    blocks(job, lo, hi, false);
}

static void int16_block4(const kern_linear *job, int64_t lo, int64_t hi) {
    blocks(job, lo, hi, true);
}
