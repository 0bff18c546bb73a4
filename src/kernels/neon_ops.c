#include "kernels/lanes_neon.h"
/* the words of its bodies */
#include "kernels/body.h"
#include "kernels/overlay.h"

void kern_ops_neon(kern_ops *t) {
    body_fill(t);
}
