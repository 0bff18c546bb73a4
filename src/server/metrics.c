#include "server/metrics.h"
#include <inttypes.h>
#include <string.h>

static const double bound[METRICS_BUCKETS] = {0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};

void metrics_begin(metrics *m, size_t sessions) {
    *m = (metrics){.sessions = sessions};
    pthread_mutex_init(&m->lock, NULL);
}

void metrics_observe(metrics *m, metrics_histogram *h, double seconds) {
    size_t i = 0;
    while (i < METRICS_BUCKETS && seconds > bound[i]) i++;
    METRICS_DO(m, h->bucket[i]++; h->count++; h->sum += seconds);
}

static void title(str *b, const char *name, const char *type, const char *help) {
    str_printf(b, "# HELP millet_%s %s\n# TYPE millet_%s %s\n", name, help, name, type);
}

static void whole(str *b, const char *name, const char *type, const char *help, uint64_t v) {
    title(b, name, type, help);
    str_printf(b, "millet_%s %" PRIu64 "\n", name, v);
}

static void real(str *b, const char *name, const char *type, const char *help, double v) {
    title(b, name, type, help);
    str_printf(b, "millet_%s ", name);
    str_json_double(b, v);
    str_addc(b, '\n');
}

static void histogram(str *b, const char *name, const char *help, const metrics_histogram *h) {
    uint64_t below = 0;
    title(b, name, "histogram", help);
    for (size_t i = 0; i <= METRICS_BUCKETS; i++) {
        below += h->bucket[i];
        str_printf(b, "millet_%s_bucket{le=\"", name);
        if (i < METRICS_BUCKETS)
            str_json_double(b, bound[i]);
        else
            str_adds(b, "+Inf");
        str_printf(b, "\"} %" PRIu64 "\n", below);
    }
    str_printf(b, "millet_%s_sum ", name);
    str_json_double(b, h->sum);
    str_printf(b, "\nmillet_%s_count %" PRIu64 "\n", name, h->count);
}

void metrics_text(metrics *m, str *b) {
    pthread_mutex_lock(&m->lock);
    title(b, "responses_total", "counter", "Responses, by status.");
    for (int i = 2; i < METRICS_STATUSES; i++)
        str_printf(b, "millet_responses_total{status=\"%dxx\"} %" PRIu64 "\n", i, m->responses[i]);
    whole(b, "clients_left_total", "counter", "Clients that left before their answer was complete.", m->left);
    whole(b, "refused_total", "counter", "Requests refused because the queue was full.", m->refused);
    whole(b, "prompt_tokens_total", "counter", "Tokens of prompts.", m->prompt_tokens);
    whole(b, "cached_tokens_total", "counter", "Tokens of prompts that were not computed again.",
          m->cached_tokens);
    whole(b, "generated_tokens_total", "counter", "Tokens generated.", m->new_tokens);
    real(b, "prompt_seconds_total", "counter", "Seconds spent on prompts.", m->prompt_seconds);
    real(b, "decode_seconds_total", "counter", "Seconds spent on decoding.", m->decode_seconds);
    whole(b, "decode_rounds_total", "counter", "Steps in which each decoding session advanced by a token.",
          m->rounds);
    whole(b, "decode_sessions_total", "counter", "Sessions that took part in these steps.", m->batched);
    whole(b, "requests_waiting", "gauge", "Requests in the queue.", m->waiting);
    whole(b, "sessions_active", "gauge", "Sessions that are generating.", m->active);
    whole(b, "sessions", "gauge", "Sessions that there are.", m->sessions);
    whole(b, "connections", "gauge", "Open connections.", m->connections);
    histogram(b, "first_token_seconds", "Time from a request's arrival to its first token.", &m->first);
    histogram(b, "request_seconds", "Time from a request's arrival to the end of its answer.", &m->total);
    pthread_mutex_unlock(&m->lock);
}
