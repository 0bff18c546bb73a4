#include "kernels/rounded_overlay.h"
#ifdef __x86_64__
#include "kernels/rounded_body.h"

void kern_rounded_avx2(kern_rounded *t) {
    *t = body;
    t->isa = "avx2";
}
#endif
