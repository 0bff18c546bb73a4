#include <arm_neon.h>
#define CONVERT_NEON /* fp16 <-> fp32, for the body */
#include "kernels/rounded_body.h"
#include "kernels/rounded_overlay.h"

void kern_rounded_neon(kern_rounded *t) {
    *t = body;
    t->isa = "neon";
}
