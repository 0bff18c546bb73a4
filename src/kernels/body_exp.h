/* The exponential function and what is made of it, in the words of lanes_*.h. */
#ifndef KERNELS_BODY_EXP_H
#define KERNELS_BODY_EXP_H

/* exp(x) with an error of at most 2 ulp (1 where v_fma() rounds once); subnormal results too; NaN stays.
 * x = n ln2 + r, |r| <= ln2 / 2; exp(r) = 1 + r + r^2 q(r) with q fitted to a relative error of 3.1e-9. */
INLINE vec v_exp(vec x) {
    x = v_min(v_all(90), v_max(v_all(-105), x));
    vec n = v_whole(x * 0x1.715476p0f);
    vec r = v_fma(n, v_all(-0x1.63p-1f), x); /* 9 bits of ln2: n times them is exact */
    r = v_fma(n, v_all(0x1.bd0106p-13f), r);
    vec q = v_fma(v_all(0x1.6a23cep-10f), r, v_all(0x1.123a2p-7f));
    q = v_fma(q, r, v_all(0x1.5558f2p-5f));
    q = v_fma(q, r, v_all(0x1.555492p-3f));
    q = v_fma(q, r, v_all(0x1.fffffcp-2f));
    return v_scale(v_fma(r * r, q, r) + 1, n);
}

INLINE vec v_sigmoid(vec x) {
    return 1 / (v_exp(-x) + 1);
}

INLINE vec v_silu(vec x) {
    return x / (v_exp(-x) + 1);
}
#endif
