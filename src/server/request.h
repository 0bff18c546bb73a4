/* Requests of the API: a JSON body -> what is to be generated, everything checked. */
#ifndef SERVER_REQUEST_H
#define SERVER_REQUEST_H
#include "generate/lm.h"
#include "server/error.h"
#include "server/grammars.h"
#include "server/stop.h"
#include "text/chat.h"

#define REQUEST_MAX_CHOICES 128 /* of one request: prompts times n */
#define REQUEST_MAX_STOPS   16
#define REQUEST_MAX_STOP    256 /* bytes of a stop string */
#define REQUEST_MAX_TOP     20  /* top_logprobs */
#define COMPLETION_MAX_NEW  16  /* as the API has it where a completion doesn't say */

/* What is served. */
typedef struct {
    const lm *m;
    const char *const *name; /* what the model is called; the first is told; "*" is any */
    size_t n_name;
    sampler_options defaults;  /* where a request doesn't say */
    int64_t max_prompt;        /* tokens; at most the context */
    const chat_template *chat; /* NULL: there is none, so no chat either */
    grammars *grammars;        /* those of earlier requests */
} served_model;

/* Sampling where a request doesn't say: the checkpoint's generation_config.json; temperature 1 where that
 * doesn't. */
bool served_defaults(const lm *m, sampler_options *o, err *e);

typedef struct {
    int32_t id;
    float value;
} request_bias;

/* Ids, and where they are cut in feeds: ascending, the last one is n. */
typedef struct {
    const int32_t *ids;
    size_t n;
    const size_t *cut;
    size_t n_cut;
} request_prompt;

typedef struct {
    arena *a; /* everything in it lives here */
    bool chat, stream, include_usage, echo, logprobs, ignore_eos, seeded;
    bool reuse; /* cache_prompt: states of earlier requests may be taken over */
    int64_t top_logprobs;
    request_prompt *prompt;
    size_t n_prompt;
    int64_t n;       /* choices for each prompt */
    int64_t max_new; /* -1: not given, as many as fit, but at most: */
    int64_t default_new;
    sampler_options sampling;
    const stop_string *stop;
    size_t n_stop;
    const request_bias *bias;
    size_t n_bias;
    const char *model;   /* as answers call it */
    grammar *constraint; /* shared; NULL: none */
    /* of a chat: how the reply is read */
    const json *tools; /* NULL: there are none */
    chat_calls calls;
    bool thinking, may_think; /* it begins with reasoning; it may */
    int64_t budget;           /* tokens of reasoning; it is closed then. -1: as many as it takes */
} request;

/* body: JSON, of n bytes. r is filled with what lives in a, which the caller frees, also after an error. */
bool request_completion(request *r, arena *a, const served_model *m, const void *body, size_t n,
                        api_error *e);
bool request_chat(request *r, arena *a, const served_model *m, const void *body, size_t n, api_error *e);
void request_free(request *r); /* what it shares; its arena is the caller's */
/* The model exists: 404 otherwise, as the API has it. n: bytes of the name, which may have a NUL in it. */
bool request_model(const served_model *m, const char *name, size_t n, api_error *e);
#endif
