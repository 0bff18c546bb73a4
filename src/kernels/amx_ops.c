#include "kernels/overlay.h"

void kern_ops_amx(kern_ops *t) {
    t->attend = kern_amx_attend;
    t->delta = kern_amx_delta;
}
