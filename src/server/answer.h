/* Answers of the API: what tasks have made, as JSON, whole or as server-sent events. */
#ifndef SERVER_ANSWER_H
#define SERVER_ANSWER_H
#include "server/job.h"

/* Sends what is ready of a task, where the answer is streamed; also that it is over, once it is. */
void answer_progress(task *t);
/* All tasks are over: the whole body, or the last events. Ends the stream. */
void answer_end(job *j);
/* In place of an answer of which nothing was sent. Ends the stream. */
void answer_refusal(stream *to, const api_error *e, const stream_counts *c);
/* In place of the answer, or as its last event. Ends the stream. */
void answer_error(job *j, const api_error *e);
#endif
