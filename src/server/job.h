/* A request being served: its choices, its client, its counts. */
#ifndef SERVER_JOB_H
#define SERVER_JOB_H
#include "server/stream.h"
#include "server/task.h"

typedef struct job {
    request r;
    const served_model *m;
    stream *out;
    char id[48];     /* as answers call it */
    int64_t created; /* seconds since 1970 */
    double arrived;  /* clock_seconds() */
    double stalled;  /* since when the client doesn't read; 0: it does */
    task *task;
    size_t n_task, started, finished;
    bool answering; /* the head is known to the client: errors come as events from here on */
    bool over;      /* nothing more is made */
    stream_counts counts;
    struct job *next;
} job;

/* r, its arena and out belong to the job from here on. arrived: clock_seconds(). */
job *job_new(const request *r, const served_model *m, stream *out, double arrived);
void job_free(job *j);
#endif
