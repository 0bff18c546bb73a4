#include "kernels/rounded_body.h"
#include "kernels/rounded_overlay.h"

void kern_rounded_portable(kern_rounded *t) {
    *t = body;
    t->isa = "portable";
}
