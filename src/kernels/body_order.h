/* The largest of a row. */
#ifndef KERNELS_BODY_ORDER_H
#define KERNELS_BODY_ORDER_H
#include "kernels/body_rows.h"

typedef struct {
    float key;
    int32_t index;
} ranked;

/* a comes before b; NaN is larger than all numbers, equal ones keep their order. */
INLINE bool ranks_before(ranked a, ranked b) {
    bool na = a.key != a.key, nb = b.key != b.key;
    if (na != nb) return na;
    if (!na && a.key != b.key) return a.key > b.key;
    return a.index < b.index;
}

/* The root is the last in order. */
static void rank_down(ranked *heap, int64_t n, int64_t i) {
    ranked x = heap[i];
    for (int64_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && ranks_before(heap[child], heap[child + 1])) child++;
        if (!ranks_before(x, heap[child])) break;
        heap[i] = heap[child];
    }
    heap[i] = x;
}

/* Elements [from, to) of x, all behind those in the heap: only larger ones get in. */
INLINE void rank_range(ranked *heap, int64_t k, const float *x, int64_t from, int64_t to) {
    for (int64_t i = from; i < to; i++) {
        ranked a = {x[i], (int32_t)i};
        if (ranks_before(a, heap[0])) heap[0] = a, rank_down(heap, k, 0);
    }
}

static void top(const kern_top *job, int64_t lo, int64_t hi) {
    ranked *heap = job->scratch;
    for (int64_t r = lo; r < hi && job->k > 0; r++) {
        const float *x = job->x + r * job->ldx;
        int64_t k = job->k, i = k;
        for (int64_t j = 0; j < k; j++) heap[j] = (ranked){x[j], (int32_t)j};
        for (int64_t j = k / 2 - 1; j >= 0; j--) rank_down(heap, k, j);
        for (; i + 4 * LANES <= job->n; i += 4 * LANES) {
            uint64_t larger = 0;
            for (int u = 0; u < 4; u++)
                larger |= (uint64_t)v_above(v_load(x + i + u * LANES), heap[0].key) << u * LANES;
            for (; larger; larger &= larger - 1) {
                int64_t at = i + __builtin_ctzll(larger);
                rank_range(heap, k, x, at, at + 1);
            }
        }
        rank_range(heap, k, x, i, job->n);
        for (int64_t n = k; n-- > 0;) { /* the last in order leaves first */
            if (job->values) job->values[r * k + n] = heap[0].key;
            if (job->ids) job->ids[r * k + n] = heap[0].index + job->first;
            heap[0] = heap[n];
            rank_down(heap, n, 0);
        }
    }
}

static int64_t argmax(const float *x, int64_t n) {
    if (n == 0 || x[0] != x[0]) return 0;
    vec most = v_all(x[0]);
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) most = v_max(v_load(x + i), most);
    float best = v_top(most);
    for (; i < n; i++) best = x[i] > best ? x[i] : best;
    float below = nextafterf(best, -INFINITY);
    for (i = 0; i + LANES <= n && !v_above(v_load(x + i), below);) i += LANES;
    while (x[i] != best) i = i + 1 < n ? i + 1 : 0; /* from the start: nothing is above -inf */
    return i;
}

/* Where the largest is, is looked for in one block only. */
#define SCAN_BLOCK 2048

/* The largest of n elements; *bad is no longer 0 once one is not finite. */
INLINE float scan_block(const float *x, int64_t n, float *bad) {
    vec most[4], zero[4];
    for (int u = 0; u < 4; u++) most[u] = v_all(-INFINITY), zero[u] = v_all(0);
    int64_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES)
        for (int u = 0; u < 4; u++) {
            vec v = v_load(x + i + u * LANES);
            most[u] = v_max(v, most[u]);
            zero[u] = v_fma(v, v_all(0), zero[u]);
        }
    float best = v_top(v_max(v_max(most[0], most[1]), v_max(most[2], most[3])));
    *bad += v_sum((zero[0] + zero[1]) + (zero[2] + zero[3]));
    for (; i < n; i++) {
        best = x[i] > best ? x[i] : best;
        *bad += x[i] * 0;
    }
    return best;
}

static bool scan(const float *x, int64_t n, int64_t *largest) {
    float best = -INFINITY, bad = 0;
    int64_t at = 0;
    for (int64_t i = 0; i < n; i += SCAN_BLOCK) {
        float most = scan_block(x + i, n - i < SCAN_BLOCK ? n - i : SCAN_BLOCK, &bad);
        if (most > best) best = most, at = i;
    }
    if (!(bad == 0)) return false;
    while (at < n && x[at] != best) at++;
    *largest = at;
    return true;
}
#endif
