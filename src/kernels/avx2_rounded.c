#include "kernels/rounded_overlay.h"
#include "kernels/rounded_body.h"

void kern_rounded_avx2(kern_rounded *t) {
    *t = body;
    t->isa = "avx2";
}
