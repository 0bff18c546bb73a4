#include "kernels/lanes_avx512.h"
/* the words of its bodies */
#include "kernels/body.h"
#include "kernels/overlay.h"

void kern_ops_avx512(kern_ops *t) {
    body_fill(t);
}
