#include "kernels/lanes_avx2.h"
/* the words of its bodies */
#include "kernels/body.h"
#include "kernels/overlay.h"

void kern_ops_avx2(kern_ops *t) {
    body_fill(t);
}
