/* What the server counts, and tells at /metrics in Prometheus' text form. Any thread may count. */
#ifndef SERVER_METRICS_H
#define SERVER_METRICS_H
#include "base/str.h"
#include <pthread.h>

enum { METRICS_STATUSES = 6, METRICS_BUCKETS = 12 };

typedef struct {
    uint64_t bucket[METRICS_BUCKETS + 1], count;
    double sum;
} metrics_histogram;

typedef struct {
    pthread_mutex_t lock;
    uint64_t responses[METRICS_STATUSES]; /* by hundreds: [2]: 2xx; [0]: clients that left before */
    uint64_t prompt_tokens, cached_tokens, new_tokens, refused, left;
    uint64_t rounds, batched;              /* decode rounds, and the sessions that took part */
    double prompt_seconds, decode_seconds; /* that the model worked */
    size_t waiting, active, sessions, connections;
    metrics_histogram first, total; /* seconds to the first token; to the end */
} metrics;

void metrics_begin(metrics *m, size_t sessions);
void metrics_observe(metrics *m, metrics_histogram *h, double seconds);
void metrics_text(metrics *m, str *out);
#define METRICS_DO(m, what)                                                                                  \
    do {                                                                                                     \
        pthread_mutex_lock(&(m)->lock);                                                                      \
        what;                                                                                                \
        pthread_mutex_unlock(&(m)->lock);                                                                    \
    } while (0)
#endif
