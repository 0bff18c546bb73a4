/* The files behind kern_open(). Each fills or overlays entries of the table; the caller has checked that the
 * processor has what the file's functions use. */
#ifndef KERNELS_OVERLAY_H
#define KERNELS_OVERLAY_H
#include "kernels/kernels.h"
#include "kernels/ops.h"

void kern_portable(kern_table *t);
void kern_avx2(kern_table *t);
void kern_avx512(kern_table *t);
void kern_avx512bf16(kern_table *t);
void kern_amx(kern_table *t);
void kern_neon(kern_table *t);
void kern_neondot(kern_table *t);

void kern_ops_portable(kern_ops *t);
void kern_ops_avx2(kern_ops *t);
void kern_ops_avx512(kern_ops *t);
void kern_ops_neon(kern_ops *t);
void kern_ops_amx(kern_ops *t);

/* On AMX tiles; what these don't take goes to the AVX-512 kernels. Bytes of scratch that they need. */
kern_attention_fn kern_amx_attend;
kern_delta_fn kern_amx_delta;
size_t kern_amx_attention_scratch(int64_t d, int64_t d_v);
size_t kern_amx_delta_scratch(int64_t dk, int64_t dv);
#endif
