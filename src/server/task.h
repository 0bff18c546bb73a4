/* One generation of a request (a choice): from a row of scores to the next id, and to text that may be sent.
 */
#ifndef SERVER_TASK_H
#define SERVER_TASK_H
#include "generate/decoder.h"
#include "server/request.h"
#include "structured/matcher.h"
#include "text/detokenize.h"
#include "text/reply.h"

typedef enum { TASK_GOES_ON, TASK_STOP, TASK_LENGTH, TASK_CALLS } task_finish;

/* The log-probabilities that belong to one token: its own, and those of the likeliest. */
typedef struct {
    int32_t id;
    float logprob; /* NAN: none, the first of a prompt */
    size_t start;  /* where its text begins, in bytes of the choice's text; characters before it */
    size_t start_char;
    uint32_t n_top;
    struct {
        int32_t id;
        float logprob;
    } top[REQUEST_MAX_TOP];
} token_scores;

/* A call of a tool in a chat. */
typedef struct {
    char id[36];
    str name, arguments;
    bool told;   /* that it is there, in an event */
    size_t sent; /* of arguments */
} task_call;

typedef struct task {
    struct job *job;
    size_t index; /* of the choice */
    request_prompt prompt;
    size_t cached; /* prompt tokens that weren't fed */
    sampler *s;
    detokenizer out;
    stopper stop;
    str piece;        /* decoded, not yet through the stopper */
    str text;         /* may be sent */
    size_t sent;      /* of text: in events already */
    size_t produced;  /* bytes decoded so far, sent or held */
    size_t chars;     /* characters of them */
    size_t generated; /* ids, end ids included */
    size_t most;      /* how many may come */
    token_scores *scores;
    size_t n_scores, cap_scores, scores_sent;
    float *biased; /* a row with logit_bias added */
    size_t cap_biased;
    matcher *constraint; /* NULL: none */
    uint32_t *allowed;
    /* of a chat: text, read */
    reply *reply;
    str content, reasoning;
    size_t read;                         /* of text */
    size_t content_sent, reasoning_sent; /* in events */
    task_call *call;
    size_t n_call, cap_call, reasoning_tokens;
    bool broken;      /* the text ended inside of the last call; what is left of it is no content */
    bool told;        /* the role, in an event */
    token_list close; /* ids that end reasoning beyond its budget, once that is spent */
    size_t n_close;   /* of them: generated */
    task_finish finish;
    bool begun, done;
} task;

/* Prompt, sampler, stop strings; choice `index` of the request. */
bool task_begin(task *t, const request *r, const served_model *m, err *e);
void task_free(task *t);

/* Whether rows behind each token of the prompt are wanted (echo with logprobs); then task_prompt_row() takes
 * them, in order. */
bool task_wants_prompt_rows(const request *r);
bool task_prompt_row(task *t, const request *r, size_t index, const decoder_row *row, err *e);

/* Samples from the row; t->text grows by what may be sent, t->finish says whether it is over. *id is what to
 * feed next. */
bool task_take(task *t, const request *r, const served_model *m, const decoder_row *row, int32_t *id, err *e);
/* Scores up to here belong to text that may be sent. */
size_t task_scores_ready(const task *t);

/* log softmax of the row at id; the likeliest into top. Relative to the row's candidates, where it has not
 * all. */
void task_scores(token_scores *out, const decoder_row *row, int32_t id, size_t n_top, int32_t limit);
#endif
