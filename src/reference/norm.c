#include "reference/ops.h"
#include "reference/walk.h"
#include <math.h>

bool ev_softmax(ref_eval *v) {
    const ref_tensor *t = ev_in(v, A_x);
    const float *x = ev_floats(v, t);
    int axis = ev_axis(v, A_axis, -1, t->type.rank);
    if (!x || axis < 0 || !ev_new(v, 0)) return false;
    float *o = ref_floats(&v->out[0]);
    int64_t n = t->type.dim[axis], inner = ref_inner(&t->type, axis), outer = ref_outer(&t->type, axis);
    for (int64_t r = 0; r < outer * inner; r++) {
        int64_t base = r / inner * n * inner + r % inner;
        float top = -INFINITY, sum = 0;
        for (int64_t i = 0; i < n; i++) top = x[base + i * inner] > top ? x[base + i * inner] : top;
        for (int64_t i = 0; i < n; i++) sum += o[base + i * inner] = expf(x[base + i * inner] - top);
        for (int64_t i = 0; i < n; i++) o[base + i * inner] /= sum;
    }
    return true;
}

/* Elements of a tensor as groups (index over the kept dimensions) of members (index over the chosen axes), in
 * index order: where each begins. */
typedef struct {
    int64_t groups, members;
    int64_t *group, *member; /* offsets */
} grouping;

static int64_t *offsets(ref_eval *v, const ir_type *t, uint32_t axes, int64_t *count) {
    int64_t st[IR_MAX_RANK], dim[IR_MAX_RANK], s[IR_MAX_RANK];
    int rank = 0;
    ref_strides(t, st);
    *count = 1;
    for (int d = 0; d < t->rank; d++)
        if (axes >> d & 1) dim[rank] = t->dim[d], s[rank++] = st[d], *count *= t->dim[d];
    int64_t *out = ev_temp(v, *count * 2), k = 0;
    if (!out) return NULL;
    for (ref_walk w = ref_walk_start(rank, dim, 1, (const int64_t *const[]){s}); !w.done; ref_walk_next(&w))
        for (int64_t i = 0; i < w.run; i++) out[k++] = w.pos[0] + i * w.step[0];
    return out;
}

static bool group_by(ref_eval *v, const ir_type *t, uint32_t axes, grouping *g) {
    uint32_t all = (1u << t->rank) - 1;
    g->member = offsets(v, t, axes, &g->members);
    g->group = g->member ? offsets(v, t, all & ~axes, &g->groups) : NULL;
    return g->group != NULL;
}

/* o = (x - mean) / sqrt(var + eps) within a group; gamma and beta by member (step 1) or one for the group
 * (step 0). */
static void normalise(float *o, const float *x, const grouping *g, int64_t at, float eps, const float *gamma,
                      const float *beta, int64_t step) {
    float sum = 0, square = 0, n = (float)g->members;
    for (int64_t i = 0; i < g->members; i++) sum += x[at + g->member[i]];
    float mean = sum / n;
    for (int64_t i = 0; i < g->members; i++) {
        float d = x[at + g->member[i]] - mean;
        square += d * d;
    }
    float scale = sqrtf(square / n + eps);
    for (int64_t i = 0; i < g->members; i++) {
        float y = (x[at + g->member[i]] - mean) / scale;
        if (gamma) y *= gamma[i * step];
        if (beta) y += beta[i * step];
        o[at + g->member[i]] = y;
    }
}

/* An optional parameter of `count` values; false on error. */
static bool parameter(ref_eval *v, ir_operand name, int64_t count, const float **out) {
    const ref_tensor *t = ev_in(v, name);
    *out = NULL;
    if (!t) return true;
    if (ref_count(t) != count)
        return ev_fail(v, "%s must have %lld values", ir_operand_name(name), (long long)count);
    return (*out = ev_floats(v, t)) != NULL;
}

bool ev_layer_norm(ref_eval *v) {
    const ref_tensor *t = ev_in(v, A_x);
    const float *x = ev_floats(v, t), *gamma, *beta;
    uint32_t axes;
    grouping g;
    if (!x || !ev_axes(v, A_axes, t->type.rank, &axes) || !group_by(v, &t->type, axes, &g) ||
        !parameter(v, A_gamma, g.members, &gamma) || !parameter(v, A_beta, g.members, &beta) || !ev_new(v, 0))
        return false;
    float eps = ev_float(v, A_epsilon, 1e-5f);
    for (int64_t i = 0; i < g.groups; i++)
        normalise(ref_floats(&v->out[0]), x, &g, g.group[i], eps, gamma, beta, 1);
    return true;
}

bool ev_instance_norm(ref_eval *v) {
    const ref_tensor *t = ev_in(v, A_x);
    int rank = t->type.rank;
    const float *x = ev_floats(v, t), *gamma, *beta;
    grouping g;
    if (rank < 3) return ev_fail(v, "x must have rank 3 or 4");
    int64_t channels = t->type.dim[1];
    if (!x || !group_by(v, &t->type, ((1u << rank) - 1) & ~3u, &g) ||
        !parameter(v, A_gamma, channels, &gamma) || !parameter(v, A_beta, channels, &beta) || !ev_new(v, 0))
        return false;
    float eps = ev_float(v, A_epsilon, 1e-5f);
    for (int64_t i = 0; i < g.groups; i++) {
        int64_t c = i % channels;
        normalise(ref_floats(&v->out[0]), x, &g, g.group[i], eps, gamma ? gamma + c : NULL,
                  beta ? beta + c : NULL, 0);
    }
    return true;
}

bool ev_batch_norm(ref_eval *v) {
    const ref_tensor *t = ev_in(v, A_x);
    const float *x = ev_floats(v, t), *gamma, *beta, *mean, *var;
    if (t->type.rank < 3) return ev_fail(v, "x must have rank 3 to 5");
    int64_t channels = t->type.dim[1], inner = ref_inner(&t->type, 1);
    if (!x || !parameter(v, A_mean, channels, &mean) || !parameter(v, A_variance, channels, &var) ||
        !parameter(v, A_gamma, channels, &gamma) || !parameter(v, A_beta, channels, &beta) || !ev_new(v, 0))
        return false;
    if (!mean || !var) return ev_fail(v, "mean and variance are missing");
    float eps = ev_float(v, A_epsilon, 1e-5f), *o = ref_floats(&v->out[0]);
    for (int64_t i = 0, n = ref_count(t); i < n; i++) {
        int64_t c = i / inner % channels;
        float y = (x[i] - mean[c]) / sqrtf(var[c] + eps);
        o[i] = y * (gamma ? gamma[c] : 1) + (beta ? beta[c] : 0);
    }
    return true;
}

/* x / sqrt(sum of squares over the last three dimensions + eps) */
bool ev_l2_norm(ref_eval *v) {
    const ref_tensor *t = ev_in(v, A_x);
    const float *x = ev_floats(v, t);
    if (t->type.rank < 3) return ev_fail(v, "x must have rank 3 or more");
    if (!x || !ev_new(v, 0)) return false;
    float eps = ev_float(v, A_epsilon, 1e-6f), *o = ref_floats(&v->out[0]);
    int64_t n = ref_inner(&t->type, t->type.rank - 4), groups = ref_outer(&t->type, t->type.rank - 3);
    for (int64_t g = 0; g < groups; g++) {
        float sum = 0;
        for (int64_t i = 0; i < n; i++) sum += x[g * n + i] * x[g * n + i];
        float root = sqrtf(sum + eps);
        for (int64_t i = 0; i < n; i++) o[g * n + i] = x[g * n + i] / root;
    }
    return true;
}
