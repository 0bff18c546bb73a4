#define _GNU_SOURCE
#include "server/queue.h"
#include "base/clock.h"
#include "generate/batch.h"
#include "server/answer.h"
#include "server/cuts.h"
#include "server/fatal.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NAP 0.05 /* seconds, where all that run wait for their clients */

typedef struct {
    decoder *d;       /* NULL: not made yet */
    task *t;          /* NULL: free */
    bool reading;     /* the prompt */
    size_t cut, base; /* the one that is read up to, of the prompt's; tokens before it */
    bool kept;        /* some of it was */
    int32_t next;     /* else: to be fed */
} session;

struct queue {
    const served_model *m;
    queue_options o;
    pthread_t thread;
    session *session;
    size_t turn; /* whose prompt is next */
    batch *b;
    prefix_cache *prefix; /* NULL: nothing is kept */
    batch_step_one *step;
    session **stepping;
    job **running;
    decoder_hooks *hooks; /* by step */
    double deadline;      /* cut, as the model's thread has seen it */
    /* shared with those who submit */
    pthread_mutex_t lock;
    pthread_cond_t news;
    job *head, *tail; /* with choices that haven't begun */
    size_t n_waiting;
    bool poked, stopping, started, ended;
    double cut;          /* when to cut what runs */
    double mean_seconds; /* of requests, for Retry-After */
};

/* ---- the queue ---- */

static void push(queue *q, job *j) {
    j->next = NULL;
    if (q->tail)
        q->tail->next = j;
    else
        q->head = j;
    q->tail = j;
    q->n_waiting++;
}

static job *pop(queue *q) {
    job *j = q->head;
    q->head = j->next;
    if (!q->head) q->tail = NULL;
    q->n_waiting--;
    return j;
}

bool queue_submit(queue *q, job *j, api_error *e) {
    pthread_mutex_lock(&q->lock);
    bool ok = true;
    if (q->stopping)
        ok = api_fail(e, 503, "shutting_down", NULL, "The server is shutting down.");
    else if (q->n_waiting >= q->o.waiting)
        ok = api_fail(e, 429, "queue_full", NULL, "%zu requests are waiting already. Please try again later.",
                      q->n_waiting);
    if (ok) {
        push(q, j);
        pthread_cond_signal(&q->news);
    }
    METRICS_DO(q->o.metrics, q->o.metrics->waiting = q->n_waiting;
               q->o.metrics->refused += !ok && e->status == 429);
    pthread_mutex_unlock(&q->lock);
    return ok;
}

void queue_poke(queue *q) {
    pthread_mutex_lock(&q->lock);
    q->poked = true;
    pthread_cond_signal(&q->news);
    pthread_mutex_unlock(&q->lock);
}

int queue_retry_after(queue *q) {
    pthread_mutex_lock(&q->lock);
    double s = q->mean_seconds * (double)q->n_waiting / (double)q->o.sessions;
    pthread_mutex_unlock(&q->lock);
    return s < 1 ? 1 : s > 120 ? 120 : (int)ceil(s);
}

/* ---- the end of choices and requests ---- */

/* A request goes once none of its choices waits or runs. */
static void settle(queue *q, job *j) {
    if (j->started < j->n_task && !j->over) return;
    for (size_t i = 0; i < q->o.sessions; i++)
        if (q->session[i].t && q->session[i].t->job == j) return;
    metrics *m = q->o.metrics;
    double seconds = clock_seconds() - j->arrived;
    if (!j->over) answer_end(j);
    METRICS_DO(m, m->prompt_tokens += j->counts.prompt_tokens; m->cached_tokens += j->counts.cached_tokens;
               m->new_tokens += j->counts.new_tokens);
    metrics_observe(m, &m->total, seconds);
    pthread_mutex_lock(&q->lock);
    q->mean_seconds += (seconds - q->mean_seconds) / 8;
    pthread_mutex_unlock(&q->lock);
    job_free(j);
}

static void release(queue *q, session *s) {
    job *j = s->t->job;
    s->t->done = true;
    j->finished++;
    s->t = NULL;
    settle(q, j);
}

/* Takes a job's choices from their sessions; it must be over, or gone. */
static void drop(queue *q, job *j) {
    bool waits = j->started < j->n_task; /* in the queue still: it goes when it is looked at there */
    j->over = true;
    for (size_t i = 0; i < q->o.sessions; i++)
        if (q->session[i].t && q->session[i].t->job == j) q->session[i].t = NULL;
    if (!waits) settle(q, j);
}

static void fail(queue *q, job *j, const api_error *e) {
    answer_error(j, e);
    drop(q, j);
}

/* ---- clients ---- */

static void leave(queue *q, job *j) {
    if (!j->over) stream_abandon(j->out, &j->counts);
    j->over = true;
    METRICS_DO(q->o.metrics, q->o.metrics->left++);
}

/* A call of it failed, or was cut because its client left. */
static void fail_from(queue *q, job *j, const err *from) {
    api_error e = {0};
    if (from->code == ERR_CANCELLED) {
        leave(q, j);
        drop(q, j);
        return;
    }
    api_fail_from(&e, from);
    fail(q, j, &e);
}

/* Why a job can't go on: its client left, doesn't read, or it takes too long. */
static bool check_job(queue *q, job *j, double now, api_error *e) {
    bool full = stream_waiting(j->out) > STREAM_HIGH && j->r.stream;
    if (!full) j->stalled = 0;
    if (full && !j->stalled) j->stalled = now;
    if (stream_gone(j->out) || (j->stalled && now - j->stalled > q->o.stall_limit)) {
        leave(q, j);
        return false;
    }
    if (q->o.time_limit && now - j->arrived > q->o.time_limit)
        return api_fail(e, 504, "timeout", NULL, "The request took more than %g seconds.", q->o.time_limit);
    if (q->deadline > 0 && now > q->deadline)
        return api_fail(e, 503, "shutting_down", NULL, "The server is shutting down.");
    return true;
}

static void check_running(queue *q) {
    double now = clock_seconds();
    job **list = q->running;
    size_t n = 0;
    for (size_t i = 0; i < q->o.sessions; i++) {
        task *t = q->session[i].t;
        size_t k = 0;
        while (t && k < n && list[k] != t->job) k++;
        if (t && k == n) list[n++] = t->job;
    }
    for (size_t i = 0; i < n; i++) {
        api_error e = {0};
        if (check_job(q, list[i], now, &e)) continue;
        if (e.status)
            fail(q, list[i], &e);
        else
            drop(q, list[i]);
    }
}

/* Takes those that can't go on out of the queue. */
static void check_waiting(queue *q) {
    double now = clock_seconds();
    job *list = NULL, *bad = NULL;
    pthread_mutex_lock(&q->lock);
    list = q->head;
    bool stopping = q->stopping;
    q->deadline = q->cut;
    q->head = q->tail = NULL;
    q->n_waiting = 0;
    for (job *j = list, *next; j; j = next) {
        next = j->next;
        bool cut = stopping && !j->started;
        if (!j->over && !cut && !stream_gone(j->out) &&
            !(q->o.time_limit && now - j->arrived > q->o.time_limit)) {
            push(q, j);
            continue;
        }
        j->next = bad;
        bad = j;
    }
    METRICS_DO(q->o.metrics, q->o.metrics->waiting = q->n_waiting);
    pthread_mutex_unlock(&q->lock);
    for (job *j = bad, *next; j; j = next) {
        api_error e = {0};
        next = j->next;
        if (!j->over && check_job(q, j, now, &e))
            api_fail(&e, 503, "shutting_down", NULL, "The server is shutting down.");
        j->started = j->n_task; /* what didn't begin never will */
        if (e.status) answer_error(j, &e);
        drop(q, j);
    }
}

/* ---- a choice begins ---- */

static task *next_task(queue *q) {
    pthread_mutex_lock(&q->lock);
    task *t = NULL;
    if (q->head) {
        job *j = pop(q);
        t = &j->task[j->started++];
        if (j->started < j->n_task) push(q, j);
        METRICS_DO(q->o.metrics, q->o.metrics->waiting = q->n_waiting);
    }
    pthread_mutex_unlock(&q->lock);
    return t;
}

static void finish(queue *q, session *s) {
    answer_progress(s->t);
    release(q, s);
}

static bool make_decoder(queue *q, session *s, err *e) {
    s->d = decoder_new(q->m->m, q->o.mode, e);
    if (s->d) batch_adopt(q->b, s->d);
    return s->d;
}

/* The prompt up to its next cut. */
static bool begin_part(session *s, err *e) {
    task *t = s->t;
    const request_prompt *p = &t->prompt;
    while (p->cut[s->cut] <= s->base) s->cut++;
    return decoder_begin(s->d, p->ids + s->base, p->cut[s->cut] - s->base, task_wants_prompt_rows(&t->job->r),
                         e);
}

static bool begin_prompt(queue *q, session *s, err *e) {
    task *t = s->t;
    prefix_place at = {0};
    bool reuse = q->prefix && t->job->r.reuse && !task_wants_prompt_rows(&t->job->r);
    if (!s->d && !make_decoder(q, s, e)) return false;
    if (!reuse) {
        prefix_leave(q->prefix, s->d);
        decoder_restart(s->d);
    } else if (!prefix_seek(q->prefix, s->d, t->prompt.ids, t->prompt.n, &at, e)) {
        return false;
    }
    t->cached = at.reused;
    t->job->counts.cached_tokens += at.reused;
    s->base = at.reused;
    s->cut = 0;
    s->kept = false;
    s->reading = true;
    return begin_part(s, e);
}

static void begin(queue *q, session *s, task *t) {
    err e = {0};
    job *j = t->job;
    s->t = t;
    if (!task_begin(t, &j->r, q->m, &e)) {
        fail_from(q, j, &e);
    } else if (!t->most && !task_wants_prompt_rows(&j->r)) {
        t->finish = TASK_LENGTH;
        finish(q, s);
    } else if (!begin_prompt(q, s, &e)) {
        fail_from(q, j, &e);
    }
}

static size_t tell_active(queue *q) {
    size_t n = 0;
    for (size_t i = 0; i < q->o.sessions; i++) n += q->session[i].t != NULL;
    METRICS_DO(q->o.metrics, q->o.metrics->active = n);
    return n;
}

static void admit(queue *q) {
    for (size_t i = 0; i < q->o.sessions; i++) {
        task *t = q->session[i].t ? NULL : next_task(q);
        if (t) begin(q, &q->session[i], t);
    }
    tell_active(q);
}

/* ---- a round ---- */

/* The row behind what was fed: the next id, and its text. */
static void take(queue *q, session *s, const decoder_row *row) {
    err e = {0};
    task *t = s->t;
    job *j = t->job;
    if (!t->most) {
        t->finish = TASK_LENGTH;
        finish(q, s);
        return;
    }
    if (!task_take(t, &j->r, q->m, row, &s->next, &e)) {
        fail_from(q, j, &e);
        return;
    }
    j->counts.new_tokens++;
    if (!j->counts.first_seconds) {
        j->counts.first_seconds = clock_seconds() - j->arrived;
        metrics_observe(q->o.metrics, &q->o.metrics->first, j->counts.first_seconds);
    }
    if (t->finish != TASK_GOES_ON)
        finish(q, s);
    else
        answer_progress(t);
}

static bool prompt_row(void *ctx, size_t index, const decoder_row *row, err *e) {
    session *s = ctx;
    return task_prompt_row(s->t, &s->t->job->r, s->base + index, row, e);
}

/* A call of its prompt went well: keeps what is worth it, goes on behind a cut, or generates. */
static void read_on(queue *q, session *s, const decoder_row *row) {
    const request_prompt *p = &s->t->prompt;
    err e = {0};
    if (decoder_left(s->d)) return;
    s->base = p->cut[s->cut];
    if (s->base < p->n) {
        bool keep = q->prefix && s->t->job->r.reuse && cuts_keep(p, s->cut);
        if (keep) prefix_keep(q->prefix, s->d);
        s->kept |= keep;
        if (!begin_part(s, &e)) fail_from(q, s->t->job, &e);
        return;
    }
    if (s->kept) prefix_leave(q->prefix, s->d); /* to where other sessions can have it */
    s->reading = false;
    take(q, s, row);
}

static void step(queue *q, size_t n) {
    batch_step(q->b, q->step, n);
    for (size_t i = 0; i < n; i++) {
        session *s = q->stepping[i];
        batch_step_one *k = &q->step[i];
        if (!s->t) continue; /* another choice of its request has failed */
        if (!k->ok)
            fail_from(q, s->t->job, &k->e);
        else if (s->reading)
            read_on(q, s, &k->row);
        else
            take(q, s, &k->row);
    }
}

static void add(queue *q, session *s, decoder_hooks *hooks, size_t *n) {
    job *j = s->t->job;
    *hooks = (decoder_hooks){.ctx = s, .cancel = stream_left(j->out)};
    if (s->reading && task_wants_prompt_rows(&j->r)) hooks->row = prompt_row;
    q->stepping[*n] = s;
    q->step[*n] = (batch_step_one){.d = s->d, .id = s->reading ? -1 : s->next, .hooks = hooks};
    (*n)++;
}

/* All that generate, together; also prompts, where these go token by token anyway. */
static bool decode_round(queue *q) {
    const contract *f = &q->m->m->form;
    bool prompts_too = f->n_func == 1 && !f->func->flexible && f->func->tokens == 1;
    size_t n = 0, generating = 0;
    for (size_t i = 0; i < q->o.sessions; i++) {
        session *s = &q->session[i];
        if (!s->t || (s->reading && !prompts_too) || s->t->job->stalled) continue;
        generating += !s->reading;
        add(q, s, &q->hooks[n], &n);
    }
    if (!n) return false;
    double start = clock_seconds();
    step(q, n);
    double seconds = clock_seconds() - start;
    metrics *m = q->o.metrics;
    METRICS_DO(m, m->rounds += generating > 0; m->batched += generating;
               *(generating ? &m->decode_seconds : &m->prompt_seconds) += seconds);
    return true;
}

/* One call of the prompt whose turn it is. False: there is none. */
static bool read_prompt(queue *q) {
    size_t n = q->o.sessions, i = 0, one = 0;
    while (i < n && !(q->session[(q->turn + i) % n].t && q->session[(q->turn + i) % n].reading)) i++;
    if (i == n) return false;
    session *s = &q->session[(q->turn + i) % n];
    q->turn = (q->turn + i + 1) % n;
    add(q, s, q->hooks, &one);
    step(q, one);
    return true;
}

static bool round_of_all(queue *q) {
    check_waiting(q);
    check_running(q);
    admit(q);
    double start = clock_seconds();
    bool busy = decode_round(q);
    double middle = clock_seconds(), until = middle + (middle - start), now = middle;
    bool read = read_prompt(q);
    while (read && (now = clock_seconds()) < until) read = read_prompt(q);
    if (now > middle) METRICS_DO(q->o.metrics, q->o.metrics->prompt_seconds += now - middle);
    return busy || now > middle;
}

/* Waits for something to do. False: nothing will come. */
static bool wait(queue *q, bool idle) {
    size_t n = tell_active(q);
    pthread_mutex_lock(&q->lock);
    while (!n && !q->head && !q->stopping) pthread_cond_wait(&q->news, &q->lock);
    if (n && idle && !q->poked) {
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        t.tv_nsec += (long)(NAP * 1e9);
        if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
        pthread_cond_timedwait(&q->news, &q->lock, &t);
    }
    q->poked = false;
    bool more = n || q->head || !q->stopping;
    pthread_mutex_unlock(&q->lock);
    return more;
}

static void work(void *ctx) {
    queue *q = ctx;
    bool idle = false;
    while (wait(q, idle)) idle = !round_of_all(q);
    pthread_mutex_lock(&q->lock);
    q->ended = true;
    pthread_mutex_unlock(&q->lock);
}

static void *thread(void *ctx) {
    server_guarded(work, ctx);
    return NULL;
}

/* ---- begin and end ---- */

queue *queue_new(const served_model *m, const queue_options *o, err *e) {
    queue *q = mem_alloc(sizeof *q);
    *q = (queue){.m = m, .o = *o};
    q->session = mem_alloc(o->sessions * sizeof *q->session);
    q->step = mem_alloc(o->sessions * sizeof *q->step);
    q->stepping = mem_alloc(o->sessions * sizeof(session *));
    q->running = mem_alloc(o->sessions * sizeof(job *));
    for (size_t i = 0; i < o->sessions; i++) q->session[i] = (session){0};
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->news, NULL);
    q->hooks = mem_alloc(o->sessions * sizeof *q->hooks);
    q->b = batch_new(m->m, o->mode, 0, e);
    if (q->b && o->kept && (q->prefix = prefix_new(m->m, o->kept, e))) prefix_points_only(q->prefix);
    bool ready = q->b && (!o->kept || q->prefix) && make_decoder(q, &q->session[0], e);
    if (ready && !pthread_create(&q->thread, NULL, thread, q)) {
        q->started = true;
        return q;
    }
    err_set(e, ERR_MEMORY, "no thread for the model");
    queue_free(q);
    return NULL;
}

void queue_close(queue *q, double grace) {
    pthread_mutex_lock(&q->lock);
    q->stopping = true;
    q->cut = clock_seconds() + grace;
    pthread_cond_signal(&q->news);
    pthread_mutex_unlock(&q->lock);
}

bool queue_ended(queue *q) {
    pthread_mutex_lock(&q->lock);
    bool ended = q->ended;
    pthread_mutex_unlock(&q->lock);
    return ended;
}

void queue_stop(queue *q) {
    if (q->started) pthread_join(q->thread, NULL);
    q->started = false;
}

void queue_free(queue *q) {
    if (!q) return;
    prefix_free(q->prefix);
    for (size_t i = 0; i < q->o.sessions; i++) decoder_free(q->session[i].d);
    batch_free(q->b);
    mem_free(q->hooks);
    mem_free(q->session);
    mem_free(q->step);
    mem_free(q->stepping);
    mem_free(q->running);
    pthread_mutex_destroy(&q->lock);
    pthread_cond_destroy(&q->news);
    mem_free(q);
}
