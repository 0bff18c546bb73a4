/* The files behind kern_rounded_open(). */
#ifndef KERNELS_ROUNDED_OVERLAY_H
#define KERNELS_ROUNDED_OVERLAY_H
#include "kernels/rounded.h"

void kern_rounded_portable(kern_rounded *t);
void kern_rounded_avx2(kern_rounded *t);
void kern_rounded_avx512(kern_rounded *t);
void kern_rounded_neon(kern_rounded *t);
#endif
