/* Every kernel of ops.h, compiled for the instruction set whose lanes_*.h was included before. */
#include "kernels/body_attention.h"
#include "kernels/body_delta.h"
#include "kernels/body_order.h"

static void body_fill(kern_ops *t) {
    *t = (kern_ops){.isa = t->isa,
                    .pointwise = {[KERN_ADD] = pointwise_add,
                                  [KERN_SUB] = pointwise_sub,
                                  [KERN_MUL] = pointwise_mul,
                                  [KERN_SILU] = pointwise_silu,
                                  [KERN_SIGMOID] = pointwise_sigmoid,
                                  [KERN_EXP] = pointwise_exp,
                                  [KERN_SILU_MUL] = pointwise_silu_mul,
                                  [KERN_SIGMOID_MUL] = pointwise_sigmoid_mul},
                    .narrow = narrow,
                    .widen = widen,
                    .norm = norm,
                    .softmax = softmax,
                    .attend = attend,
                    .attend_join = attend_join,
                    .visible = visible,
                    .conv = conv,
                    .gates = gates,
                    .delta = delta,
                    .top = top,
                    .argmax = argmax,
                    .scan = scan,
                    .product = product};
}
