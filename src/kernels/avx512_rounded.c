#include "kernels/rounded_overlay.h"
#include "kernels/rounded_body.h"

void kern_rounded_avx512(kern_rounded *t) {
    *t = body;
    t->isa = "avx512";
}
