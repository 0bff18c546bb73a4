#include "kernels/rounded_body.h"
#include "kernels/rounded_overlay.h"

void kern_rounded_avx512(kern_rounded *t) {
    *t = body;
    t->isa = "avx512";
}
