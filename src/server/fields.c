#include "server/fields.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *article_kind(json_kind k) {
    static const char *const name[] = {"null",     "a boolean", "an integer", "a decimal",
                                       "a string", "an array",  "an object"};
    return name[k];
}

/* "a string or an array" */
static const char *expected(unsigned kinds, char text[120]) {
    size_t n = 0;
    bool number = (kinds & IS_NUMBER) == IS_NUMBER;
    for (unsigned k = JSON_BOOL; k <= JSON_OBJECT; k++) {
        if (!(kinds >> k & 1) || (number && k == JSON_REAL)) continue;
        const char *what = number && k == JSON_INT ? "a number" : article_kind((json_kind)k);
        n += (size_t)snprintf(text + n, 120 - n, "%s%s", n ? " or " : "", what);
    }
    return text;
}

bool fields_wrong_kind(const char *name, unsigned kinds, const json *v, api_error *e) {
    char text[120] = "";
    return api_fail(e, 400, "invalid_type", name, "Invalid type for '%s': expected %s, but got %s instead.",
                    name, expected(kinds, text), article_kind(v->kind));
}

bool fields_int(const char *name, const json *v, int64_t low, int64_t high, int64_t *out, api_error *e) {
    if (v->kind != JSON_INT) return fields_wrong_kind(name, IS_INT, v, e);
    if (v->i < low)
        return api_fail(e, 400, "integer_below_min_value", name,
                        "Invalid '%s': expected a value >= %" PRId64 ", but got %" PRId64 " instead.", name,
                        low, v->i);
    if (v->i > high)
        return api_fail(e, 400, "integer_above_max_value", name,
                        "Invalid '%s': expected a value <= %" PRId64 ", but got %" PRId64 " instead.", name,
                        high, v->i);
    *out = v->i;
    return true;
}

bool fields_number(const char *name, const json *v, double low, double high, float *out, api_error *e) {
    if (!(1u << v->kind & IS_NUMBER)) return fields_wrong_kind(name, IS_NUMBER, v, e);
    if (!(v->d >= low))
        return api_fail(e, 400, "decimal_below_min_value", name,
                        "Invalid '%s': expected a value >= %g, but got %g instead.", name, low, v->d);
    if (!(v->d <= high))
        return api_fail(e, 400, "decimal_above_max_value", name,
                        "Invalid '%s': expected a value <= %g, but got %g instead.", name, high, v->d);
    *out = (float)v->d;
    return true;
}

/* ---- fields of both kinds of requests ---- */

static bool take_model(fields *f, const json *v, api_error *e) {
    if (!request_model(f->m, v->s, v->len, e)) return false;
    f->r->model = v->s;
    return true;
}
static bool take_stream(fields *f, const json *v, api_error *e) {
    (void)e;
    f->r->stream = v->i;
    return true;
}
static bool take_ignore_eos(fields *f, const json *v, api_error *e) {
    (void)e;
    f->r->ignore_eos = v->i;
    return true;
}
static bool take_reuse(fields *f, const json *v, api_error *e) {
    (void)e;
    f->r->reuse = v->i;
    return true;
}
static bool take_stream_options(fields *f, const json *v, api_error *e) {
    f->stream_options = v;
    JSON_EACH(c, v) {
        bool usage = json_named(c, "include_usage");
        if (!usage && !json_named(c, "include_obfuscation"))
            return api_fail(e, 400, "unknown_parameter", "stream_options",
                            "Unknown parameter: 'stream_options.%s'.", c->key);
        if (c->kind != JSON_BOOL) return fields_wrong_kind("stream_options.include_usage", IS_BOOL, c, e);
        if (usage) f->r->include_usage = c->i;
    }
    return true;
}
static bool take_n(fields *f, const json *v, api_error *e) {
    return fields_int(f->name, v, 1, REQUEST_MAX_CHOICES, &f->r->n, e);
}
bool fields_max_new(fields *f, const json *v, api_error *e) {
    return fields_int(f->name, v, f->r->chat ? 1 : 0, INT32_MAX, &f->r->max_new, e);
}
/* Temperature and the two penalties have OpenAI's ranges, which clients count on, not those of the command
 * line. */
static bool take_temperature(fields *f, const json *v, api_error *e) {
    return fields_number(f->name, v, 0, 2, &f->r->sampling.temperature, e);
}
static bool take_top_p(fields *f, const json *v, api_error *e) {
    return fields_number(f->name, v, 0, 1, &f->r->sampling.top_p, e);
}
static bool take_min_p(fields *f, const json *v, api_error *e) {
    return fields_number(f->name, v, 0, 1, &f->r->sampling.min_p, e);
}
static bool take_top_k(fields *f, const json *v, api_error *e) {
    int64_t k = 0;
    if (!fields_int(f->name, v, -1, INT32_MAX, &k, e)) return false;
    f->r->sampling.top_k = k < 0 ? 0 : k;
    return true;
}
static bool take_presence(fields *f, const json *v, api_error *e) {
    return fields_number(f->name, v, -2, 2, &f->r->sampling.presence_penalty, e);
}
static bool take_frequency(fields *f, const json *v, api_error *e) {
    return fields_number(f->name, v, -2, 2, &f->r->sampling.frequency_penalty, e);
}
static bool take_repetition(fields *f, const json *v, api_error *e) {
    return fields_number(f->name, v, 0.01, 100, &f->r->sampling.repetition_penalty, e);
}
static bool take_seed(fields *f, const json *v, api_error *e) {
    (void)e;
    f->r->sampling.seed = (uint64_t)v->i;
    f->r->seeded = true;
    return true;
}

static bool add_stop(stop_string *to, size_t *n, const json *v, api_error *e) {
    if (v->kind != JSON_STRING) return fields_wrong_kind("stop", IS_STRING, v, e);
    if (*n == REQUEST_MAX_STOPS)
        return api_fail(e, 400, "array_above_max_length", "stop", "Invalid 'stop': at most %d stop strings.",
                        REQUEST_MAX_STOPS);
    if (!v->len)
        return api_fail(e, 400, "string_below_min_length", "stop", "Invalid 'stop': a stop string is empty.");
    if (v->len > REQUEST_MAX_STOP)
        return api_fail(e, 400, "string_above_max_length", "stop",
                        "Invalid 'stop': a stop string has more than %d bytes.", REQUEST_MAX_STOP);
    to[(*n)++] = (stop_string){v->s, v->len};
    return true;
}

static bool take_stop(fields *f, const json *v, api_error *e) {
    request *r = f->r;
    stop_string *list = ARENA_ARRAY(r->a, stop_string, REQUEST_MAX_STOPS);
    r->stop = list;
    r->n_stop = 0;
    if (v->kind == JSON_STRING) return add_stop(list, &r->n_stop, v, e);
    JSON_EACH(c, v)
    if (!add_stop(list, &r->n_stop, c, e)) return false;
    return true;
}

/* A key that is a whole number, written in the one way: two keys are never one id. */
static bool token_id(const json *member, int64_t *id) {
    char text[24];
    if (!str_to_int64(member->key, id) || *id < 0) return false;
    snprintf(text, sizeof text, "%" PRId64, *id);
    return json_named(member, text);
}

static bool take_bias(fields *f, const json *v, api_error *e) {
    request *r = f->r;
    request_bias *list = ARENA_ARRAY(r->a, request_bias, v->len);
    int32_t limit = lm_sample_limit(f->m->m);
    r->bias = list;
    r->n_bias = 0;
    JSON_EACH(c, v) {
        int64_t id;
        char name[64];
        snprintf(name, sizeof name, "logit_bias[%.32s]", c->key);
        if (!token_id(c, &id) || id >= limit)
            return api_fail(e, 400, "invalid_value", "logit_bias",
                            "Invalid key in 'logit_bias': '%.32s'. Expected a token id from 0 to %d.", c->key,
                            limit - 1);
        float value = 0;
        if (!fields_number(name, c, -100, 100, &value, e)) return false;
        list[r->n_bias++] = (request_bias){(int32_t)id, value};
    }
    return true;
}

static const field common[] = {
    {"model", IS_STRING, take_model, NULL},
    {"stream", IS_BOOL, take_stream, NULL},
    {"stream_options", IS_OBJECT, take_stream_options, NULL},
    {"n", IS_INT, take_n, NULL},
    {"max_tokens", IS_INT, fields_max_new, NULL},
    {"temperature", IS_NUMBER, take_temperature, NULL},
    {"top_p", IS_NUMBER, take_top_p, NULL},
    {"min_p", IS_NUMBER, take_min_p, NULL},
    {"top_k", IS_INT, take_top_k, NULL},
    {"presence_penalty", IS_NUMBER, take_presence, NULL},
    {"frequency_penalty", IS_NUMBER, take_frequency, NULL},
    {"repetition_penalty", IS_NUMBER, take_repetition, NULL},
    {"seed", IS_INT, take_seed, NULL},
    {"stop", IS_STRING | IS_ARRAY, take_stop, NULL},
    {"logit_bias", IS_OBJECT, take_bias, NULL},
    {"ignore_eos", IS_BOOL, take_ignore_eos, NULL},
    {"cache_prompt", IS_BOOL, take_reuse, NULL},
    {"user", IS_STRING, NULL, NULL},
    {"metadata", IS_OBJECT, NULL, NULL},
    {"safety_identifier", IS_STRING, NULL, NULL},
    {"prompt_cache_key", IS_STRING, NULL, NULL},
    {"prompt_cache_retention", IS_STRING, NULL, NULL},
    {"service_tier", IS_STRING, NULL, NULL},
};

static const field *find(const field *table, size_t n, const json *member) {
    for (size_t i = 0; i < n; i++)
        if (json_named(member, table[i].name)) return &table[i];
    return NULL;
}

bool fields_take(fields *f, const field *own, size_t n_own, api_error *e) {
    JSON_EACH(v, f->root) {
        const field *row = find(own, n_own, v);
        if (!row) row = find(common, sizeof common / sizeof *common, v);
        if (!row)
            return api_fail(e, 400, "unknown_parameter", v->key, "Unknown parameter: '%.100s'.", v->key);
        f->name = row->name;
        if (v->kind == JSON_NULL) continue;
        if (row->refused)
            return api_fail(e, 400, "unsupported_parameter", row->name, "Unsupported parameter: '%s': %s.",
                            row->name, row->refused);
        if (!(row->kinds >> v->kind & 1)) return fields_wrong_kind(row->name, row->kinds, v, e);
        if (row->take && !row->take(f, v, e)) return false;
    }
    if (f->stream_options && !f->r->stream)
        return api_fail(e, 400, NULL, "stream_options",
                        "The 'stream_options' parameter is only allowed when 'stream' is enabled.");
    return true;
}
