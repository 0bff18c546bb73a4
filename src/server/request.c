#include "server/request.h"
#include "server/cuts.h"
#include "server/request_parts.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

bool request_model(const served_model *m, const char *name, size_t n, api_error *e) {
    bool whole = strlen(name) == n; /* no name has a NUL in it */
    for (size_t i = 0; whole && i < m->n_name; i++)
        if (!strcmp(m->name[i], name) || !strcmp(m->name[i], "*")) return true;
    return api_fail(e, 404, "model_not_found", "model",
                    "The model '%.200s' does not exist; this server has '%s'.", name, m->name[0]);
}

/* ---- completions ---- */

static bool take_prompt(fields *f, const json *v, api_error *e) {
    (void)e;
    f->prompt = v;
    return true;
}
static bool take_echo(fields *f, const json *v, api_error *e) {
    (void)e;
    f->r->echo = v->i;
    return true;
}
static bool take_logprobs(fields *f, const json *v, api_error *e) {
    f->r->logprobs = true;
    return fields_int(f->name, v, 0, REQUEST_MAX_TOP, &f->r->top_logprobs, e);
}
static bool take_best_of(fields *f, const json *v, api_error *e) {
    (void)f;
    return v->i == 1 ||
           api_fail(e, 400, "unsupported_parameter", "best_of",
                    "Unsupported value: 'best_of' above 1 is not supported; ask for several with 'n'.");
}

static const field completion_fields[] = {
    {"prompt", IS_STRING | IS_ARRAY, take_prompt, NULL},
    {"echo", IS_BOOL, take_echo, NULL},
    {"logprobs", IS_INT, take_logprobs, NULL},
    {"best_of", IS_INT, take_best_of, NULL},
    {"suffix", 0, NULL, "models of this server continue a text, they don't fill gaps"},
};

bool request_too_long(const served_model *m, size_t tokens, const char *param, api_error *e) {
    return api_fail(e, 400, "context_length_exceeded", param,
                    "This model takes prompts of at most %" PRId64 " tokens, but yours has %s%zu.",
                    m->max_prompt, tokens > (size_t)m->max_prompt ? "" : "more than ", tokens);
}

static bool text_prompt(fields *f, const json *v, request_prompt *p, api_error *e) {
    const lm *m = f->m->m;
    err x = {0};
    int32_t *ids = NULL;
    if (v->len / REQUEST_LONGEST_TOKEN > (uint64_t)f->m->max_prompt)
        return request_too_long(f->m, (size_t)f->m->max_prompt, "prompt", e);
    if (!lm_encode(m, v->s, v->len, &ids, &p->n, &x))
        return api_fail(e, 400, "invalid_prompt", "prompt", "Invalid 'prompt': %s", x.msg);
    p->ids = arena_copy(f->r->a, ids, p->n * sizeof *ids);
    mem_free(ids);
    return p->n <= (uint64_t)f->m->max_prompt || request_too_long(f->m, p->n, "prompt", e);
}

static bool id_prompt(fields *f, const json *v, request_prompt *p, api_error *e) {
    int64_t vocab = f->m->m->vocab ? f->m->m->vocab : INT32_MAX;
    if (v->len > (uint64_t)f->m->max_prompt) return request_too_long(f->m, v->len, "prompt", e);
    int32_t *ids = ARENA_ARRAY(f->r->a, int32_t, v->len);
    JSON_EACH(c, v) {
        if (c->kind != JSON_INT) return fields_wrong_kind("prompt", IS_INT, c, e);
        if (c->i < 0 || c->i >= vocab)
            return api_fail(e, 400, "invalid_prompt", "prompt",
                            "Invalid 'prompt': token id %" PRId64 " is outside the vocabulary (0 to %" PRId64
                            ").",
                            c->i, vocab - 1);
        ids[p->n++] = (int32_t)c->i;
    }
    p->ids = ids;
    return p->n || api_fail(e, 400, "invalid_prompt", "prompt", "Invalid 'prompt': it is empty.");
}

/* A text, ids, or a list of either. */
static bool prompts(fields *f, api_error *e) {
    request *r = f->r;
    const json *v = f->prompt;
    if (!v)
        return api_fail(e, 400, "missing_required_parameter", "prompt",
                        "Missing required parameter: 'prompt'.");
    bool list = v->kind == JSON_ARRAY && v->child && v->child->kind != JSON_INT;
    size_t n = list ? v->len : 1;
    if (n * (uint64_t)r->n > REQUEST_MAX_CHOICES)
        return api_fail(e, 400, "array_above_max_length", "prompt",
                        "Invalid 'prompt': %zu prompts with n %" PRId64 " are more than %d choices.", n, r->n,
                        REQUEST_MAX_CHOICES);
    r->prompt = ARENA_ARRAY(r->a, request_prompt, n);
    for (const json *c = list ? v->child : v; r->n_prompt < n; c = c->next) {
        request_prompt *p = &r->prompt[r->n_prompt++];
        if (c->kind == JSON_STRING  ? !text_prompt(f, c, p, e)
            : c->kind == JSON_ARRAY ? !id_prompt(f, c, p, e)
                                    : !fields_wrong_kind("prompt", IS_STRING | IS_ARRAY, c, e))
            return false;
    }
    return true;
}

/* What was asked for fits behind each prompt. */
static bool fits(fields *f, api_error *e) {
    const request *r = f->r;
    int64_t context = f->m->m->form.context;
    for (size_t i = 0; i < r->n_prompt; i++)
        if (r->max_new > context - (int64_t)r->prompt[i].n + 1)
            return api_fail(e, 400, "context_length_exceeded", r->chat ? "messages" : "prompt",
                            "This model's maximum context length is %" PRId64
                            " tokens. However, you requested %" PRId64 " tokens (%zu in the prompt, %" PRId64
                            " to generate). Please reduce either.",
                            context, (int64_t)r->prompt[i].n + r->max_new, r->prompt[i].n, r->max_new);
    return true;
}

/* Where the graph picks the id there is nothing to sample from. */
static bool can_sample(fields *f, api_error *e) {
    const request *r = f->r;
    const sampler_options *s = &r->sampling;
    if (!f->m->m->form.best) return true;
    bool plain = s->temperature < 1e-5f && s->repetition_penalty == 1 && s->presence_penalty == 0 &&
                 s->frequency_penalty == 0 && !r->n_bias && !r->logprobs && !r->constraint;
    return plain ||
           api_fail(
               e, 400, "unsupported_parameter", NULL,
               "This model returns its best token only, no scores: use temperature 0, without penalties, "
               "logit_bias, logprobs and constraints.");
}

bool request_complete(fields *f, api_error *e) {
    for (size_t i = 0; i < f->r->n_prompt; i++) cuts_make(&f->r->prompt[i], f->r->a, f->m->m);
    return can_sample(f, e) && fits(f, e);
}

void request_free(request *r) {
    if (r->constraint) grammar_free(r->constraint);
    r->constraint = NULL;
}

const json *request_parse(arena *a, const void *body, size_t n, api_error *e) {
    err x = {0};
    const json *root = json_parse(a, "The body of your request", body, n, &x);
    if (!root)
        api_fail(e, 400, "invalid_json", NULL, "%s", x.msg);
    else if (root->kind != JSON_OBJECT)
        api_fail(e, 400, "invalid_json", NULL, "The body of your request must be a JSON object, but is %s.",
                 json_kind_name(root->kind));
    return e->status ? NULL : root;
}

bool request_completion(request *r, arena *a, const served_model *m, const void *body, size_t n,
                        api_error *e) {
    *r = (request){.a = a,
                   .n = 1,
                   .max_new = -1,
                   .budget = -1,
                   .default_new = COMPLETION_MAX_NEW,
                   .sampling = m->defaults,
                   .reuse = true,
                   .model = m->name[0]};
    fields f = {.r = r, .m = m, .top = -1, .root = request_parse(a, body, n, e)};
    return f.root &&
           fields_take(&f, completion_fields, sizeof completion_fields / sizeof *completion_fields, e) &&
           prompts(&f, e) && request_complete(&f, e);
}
