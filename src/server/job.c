#include "server/job.h"
#include "base/clock.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

static uint64_t random_bits(void) {
    uint64_t x;
    if (getrandom(&x, sizeof x, 0) != (ssize_t)sizeof x) x = (uint64_t)(clock_seconds() * 1e9);
    return x;
}

job *job_new(const request *r, const served_model *m, stream *out, double arrived) {
    job *j = ARENA_NEW(r->a, job);
    *j = (job){.r = *r, .m = m, .out = out, .created = (int64_t)time(NULL), .arrived = arrived};
    if (!r->seeded) j->r.sampling.seed = random_bits();
    snprintf(j->id, sizeof j->id, "%s-%016" PRIx64 "%08" PRIx32, r->chat ? "chatcmpl" : "cmpl", random_bits(),
             (uint32_t)random_bits());
    j->n_task = r->n_prompt * (size_t)r->n;
    j->task = ARENA_ARRAY(r->a, task, j->n_task);
    for (size_t i = 0; i < j->n_task; i++) j->task[i] = (task){.job = j, .index = i};
    for (size_t i = 0; i < r->n_prompt; i++) j->counts.prompt_tokens += r->prompt[i].n;
    return j;
}

void job_free(job *j) {
    for (size_t i = 0; i < j->n_task; i++) task_free(&j->task[i]);
    stream_release(j->out);
    request_free(&j->r);
    arena_free(j->r.a); /* j too */
}
