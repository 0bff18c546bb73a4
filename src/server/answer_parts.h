/* What the answers of both kinds of requests share. */
#ifndef SERVER_ANSWER_PARTS_H
#define SERVER_ANSWER_PARTS_H
#include "server/job.h"

const char *answer_finish(task_finish f); /* as JSON */
/* {"id", ..., "choices":[ */
void answer_open(str *b, const job *j, const char *object);
void answer_usage(str *b, const job *j);
void answer_event(job *j, const str *b); /* sends "data: b" */

void answer_chat_choice(str *b, const task *t); /* whole */
void answer_chat_progress(task *t);             /* sends what is new */
#endif
