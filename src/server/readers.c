#include "server/readers.h"
#include "server/answer.h"
#include "server/fatal.h"
#include <pthread.h>
#include <stdlib.h>

/* So that requests go on past a few whose schemas take a while. */
enum { READERS = 4 };

typedef struct waiting {
    read_request *read;
    str body;
    stream *out;
    double arrived;
    struct waiting *next;
} waiting;

struct readers {
    const served_model *m;
    queue *q;
    pthread_t thread[READERS];
    int n_thread;
    pthread_mutex_t lock;
    pthread_cond_t news;
    waiting *head, **end;
    bool stopping;
};

/* ---- one request ---- */

typedef struct {
    const readers *r;
    const waiting *w;
    job *j; /* result; NULL with the error */
    api_error e;
} reading;

static void read_body(void *ctx) {
    reading *k = ctx;
    const waiting *w = k->w;
    request r;
    arena *a = arena_new();
    if (!w->read(&r, a, k->r->m, str_get(&w->body), w->body.len, &k->e)) {
        arena_free(a);
        return;
    }
    k->j = job_new(&r, k->r->m, w->out, w->arrived);
}

static void label(const job *j) {
    const sampler_options *s = &j->r.sampling;
    const struct {
        const char *name;
        double value;
    } row[] = {{"temperature", (double)s->temperature},
               {"top_p", (double)s->top_p},
               {"min_p", (double)s->min_p},
               {"top_k", (double)s->top_k},
               {"repetition_penalty", (double)s->repetition_penalty},
               {"presence_penalty", (double)s->presence_penalty},
               {"frequency_penalty", (double)s->frequency_penalty}};
    str b = {0};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        str_printf(&b, "%s%s=%g", i ? " " : "", row[i].name, row[i].value);
    str_printf(&b, " seed=%llu", (unsigned long long)s->seed);
    stream_label(j->out, j->id, &b);
    str_free(&b);
}

static void refuse(stream *out, const api_error *e) {
    const stream_counts none = {0};
    answer_refusal(out, e, &none);
}

/* In a heap of its own, so that a body that needs more memory than there is is refused and no more. */
static void read_one(const readers *r, waiting *w) {
    reading k = {.r = r, .w = w};
    heap *h = heap_new(NULL, NULL);
    if (!h || !mem_guard(h, read_body, &k, NULL)) {
        k.j = NULL;
        heap_drop(h);
        k.e = (api_error){0};
        api_fail(&k.e, 503, "out_of_memory", NULL, "There is not enough memory to read the request.");
    } else {
        heap_leave(h);
    }
    str_free(&w->body);
    if (k.j) label(k.j);
    if (k.j && queue_submit(r->q, k.j, &k.e)) return;
    refuse(w->out, &k.e);
    if (k.j)
        job_free(k.j);
    else
        stream_release(w->out);
}

/* ---- threads ---- */

static waiting *next(readers *r) {
    pthread_mutex_lock(&r->lock);
    while (!r->head && !r->stopping) pthread_cond_wait(&r->news, &r->lock);
    waiting *w = r->head;
    if (w && !(r->head = w->next)) r->end = &r->head;
    pthread_mutex_unlock(&r->lock);
    return w;
}

static void work(void *ctx) {
    readers *r = ctx;
    for (waiting *w; (w = next(r));) {
        read_one(r, w);
        mem_free(w);
    }
}

static void *thread(void *ctx) {
    server_guarded(work, ctx);
    return NULL;
}

readers *readers_new(const served_model *m, queue *q, err *e) {
    readers *r = mem_alloc(sizeof *r);
    *r = (readers){.m = m, .q = q};
    r->end = &r->head;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->news, NULL);
    while (r->n_thread < READERS && !pthread_create(&r->thread[r->n_thread], NULL, thread, r)) r->n_thread++;
    if (r->n_thread) return r;
    err_set(e, ERR_MEMORY, "no thread to read requests");
    readers_free(r);
    return NULL;
}

bool readers_take(readers *r, read_request *read, str *body, stream *out, double arrived) {
    waiting *w = mem_alloc(sizeof *w);
    *w = (waiting){.read = read, .body = *body, .out = out, .arrived = arrived};
    pthread_mutex_lock(&r->lock);
    bool ok = !r->stopping;
    if (ok) {
        *r->end = w;
        r->end = &w->next;
        *body = (str){0};
        pthread_cond_signal(&r->news);
    }
    pthread_mutex_unlock(&r->lock);
    if (!ok) mem_free(w);
    return ok;
}

void readers_stop(readers *r) {
    pthread_mutex_lock(&r->lock);
    r->stopping = true;
    pthread_cond_broadcast(&r->news);
    pthread_mutex_unlock(&r->lock);
    while (r->n_thread) pthread_join(r->thread[--r->n_thread], NULL);
}

void readers_free(readers *r) {
    if (!r) return;
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->news);
    mem_free(r);
}
