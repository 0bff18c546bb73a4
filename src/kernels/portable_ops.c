#include "kernels/lanes_portable.h"
/* the words of its bodies */
#include "kernels/body.h"
#include "kernels/overlay.h"

void kern_ops_portable(kern_ops *t) {
    body_fill(t);
}
