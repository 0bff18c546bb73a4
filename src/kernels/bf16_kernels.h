/* The table entries of KERN_BF16, for the files that define prepare_bf16() and bf16(job, lo, hi, kind): that
 * is inlined into a kernel for each kind of weight. No guard: included once, behind both. */
#define KERNEL(name, kind)                                                                                   \
    static void name(const kern_linear *job, int64_t lo, int64_t hi) {                                       \
        bf16(job, lo, hi, kind);                                                                             \
    }
KERNEL(bf16_f32, F32)
KERNEL(bf16_f16, F16)
KERNEL(bf16_channel8, CHANNEL8)
KERNEL(bf16_block8, BLOCK8)
KERNEL(bf16_block4, BLOCK4)
KERNEL(bf16_narrow, NARROW)
KERNEL(bf16_wide, WIDE)

static void bf16_palette(const kern_linear *job, int64_t lo, int64_t hi) {
    if (job->w->bits == 8)
        bf16_wide(job, lo, hi);
    else
        bf16_narrow(job, lo, hi);
}

/* band: rows of w that are decoded at a time; scratch: bytes a column. */
static void bf16_overlay(kern_table *t, uint8_t band, uint16_t scratch) {
    static kern_linear_fn *const fn[KERN_W_KINDS] = {
        [KERN_W_F32] = bf16_f32,          [KERN_W_F16] = bf16_f16,       [KERN_W_CHANNEL8] = bf16_channel8,
        [KERN_W_BLOCK8] = bf16_block8,    [KERN_W_BLOCK4] = bf16_block4, [KERN_W_PALETTE] = bf16_palette,
        [KERN_W_PALETTE4] = bf16_palette,
    };
    t->prepare[KERN_X_BF16] = prepare_bf16;
    t->prepare_part[KERN_X_BF16] = prepare_bf16_part;
    for (int kind = 0; kind < KERN_W_KINDS; kind++)
        if (fn[kind]) {
            t->linear[KERN_BF16][kind] = fn[kind];
            t->form[KERN_BF16][kind] = KERN_X_BF16;
            t->band[KERN_BF16][kind] = band;
            t->scratch[KERN_BF16][kind] = scratch;
        }
}
