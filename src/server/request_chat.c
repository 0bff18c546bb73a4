/* Chats: messages -> prompt by the model's template; tools and response formats -> constraints. */
#include "server/cuts.h"
#include "server/fields.h"
#include "server/request_parts.h"
#include <stdio.h>
#include <string.h>

/* ---- fields ---- */

static bool take_messages(fields *f, const json *v, api_error *e) {
    f->messages = v;
    return v->child ||
           api_fail(e, 400, "empty_array", "messages", "Invalid 'messages': expected at least one message.");
}
static bool take_tools(fields *f, const json *v, api_error *e) {
    (void)e;
    f->tools = v->child ? v : NULL;
    return true;
}
static bool take_choice(fields *f, const json *v, api_error *e) {
    (void)e;
    f->tool_choice = v;
    return true;
}
static bool take_parallel(fields *f, const json *v, api_error *e) {
    (void)e;
    f->parallel = v;
    return true;
}
static bool take_format(fields *f, const json *v, api_error *e) {
    (void)e;
    f->format = v;
    return true;
}
static bool take_template_options(fields *f, const json *v, api_error *e) {
    (void)e;
    f->template_options = v;
    return true;
}
static bool take_thinking(fields *f, const json *v, api_error *e) {
    (void)e;
    f->thinking = v->i ? CHAT_THINK_ON : CHAT_THINK_OFF;
    return true;
}
static bool take_budget(fields *f, const json *v, api_error *e) {
    return fields_int(f->name, v, 0, INT32_MAX, &f->r->budget, e);
}
static bool take_effort(fields *f, const json *v, api_error *e) {
    static const char *const known[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
    size_t i = 0, n = sizeof known / sizeof *known;
    while (i < n && !json_is(v, known[i])) i++;
    if (i == n)
        return api_fail(
            e, 400, "invalid_value", "reasoning_effort",
            "Invalid value: '%.40s'. Supported values are: 'none', 'minimal', 'low', 'medium', 'high', "
            "'xhigh' and 'max'; 'none' turns thinking off.",
            v->s);
    if (!i) f->thinking = CHAT_THINK_OFF;
    return true;
}
static bool take_logprobs(fields *f, const json *v, api_error *e) {
    (void)e;
    f->r->logprobs = v->i;
    return true;
}
static bool take_top_logprobs(fields *f, const json *v, api_error *e) {
    return fields_int(f->name, v, 0, REQUEST_MAX_TOP, &f->top, e);
}
static bool take_modalities(fields *f, const json *v, api_error *e) {
    (void)f;
    JSON_EACH(c, v)
    if (!json_is(c, "text"))
        return api_fail(e, 400, "unsupported_value", "modalities",
                        "Unsupported value: models of this server write text.");
    return true;
}

static const field chat_fields[] = {
    {"messages", IS_ARRAY, take_messages, NULL},
    {"tools", IS_ARRAY, take_tools, NULL},
    {"tool_choice", IS_STRING | IS_OBJECT, take_choice, NULL},
    {"parallel_tool_calls", IS_BOOL, take_parallel, NULL},
    {"response_format", IS_OBJECT, take_format, NULL},
    {"max_completion_tokens", IS_INT, fields_max_new, NULL},
    {"logprobs", IS_BOOL, take_logprobs, NULL},
    {"top_logprobs", IS_INT, take_top_logprobs, NULL},
    {"chat_template_kwargs", IS_OBJECT, take_template_options, NULL},
    {"enable_thinking", IS_BOOL, take_thinking, NULL},
    {"thinking_budget", IS_INT, take_budget, NULL},
    {"reasoning_effort", IS_STRING, take_effort, NULL},
    {"modalities", IS_ARRAY, take_modalities, NULL},
    {"store", IS_BOOL, NULL, NULL},
    {"verbosity", IS_STRING, NULL, NULL},
    {"prediction", IS_OBJECT, NULL, NULL}, /* a hint for speed */
    {"audio", 0, NULL, "models of this server write text"},
    {"web_search_options", 0, NULL, "this server doesn't search"},
    {"functions", 0, NULL, "use 'tools'"},
    {"function_call", 0, NULL, "use 'tool_choice'"},
};

/* ---- tools ---- */

typedef enum { CHOICE_AUTO, CHOICE_NONE, CHOICE_REQUIRED, CHOICE_NAMED } choice;

static bool tool_name(const json *name) {
    if (!name || !name->len || name->len > 64) return false;
    for (uint32_t i = 0; i < name->len; i++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-", name->s[i]) ||
            !name->s[i])
            return false;
    return true;
}

static bool check_tool(const json *t, size_t i, api_error *e) {
    char where[64];
    const json *f = json_get_kind(t, "function", JSON_OBJECT);
    snprintf(where, sizeof where, "tools[%zu]", i);
    if (t->kind != JSON_OBJECT) return fields_wrong_kind(where, IS_OBJECT, t, e);
    if (strcmp(json_str(t, "type", ""), "function"))
        return api_fail(e, 400, "invalid_value", where,
                        "Invalid value for '%s.type': only 'function' is supported.", where);
    if (!f)
        return api_fail(e, 400, "missing_required_parameter", where,
                        "Missing required parameter: '%s.function'.", where);
    if (!tool_name(json_get_kind(f, "name", JSON_STRING)))
        return api_fail(e, 400, "invalid_value", where,
                        "Invalid '%s.function.name': expected 1 to 64 letters, digits, '_' or '-'.", where);
    const json *p = json_get(f, "parameters");
    if (p && p->kind != JSON_OBJECT && p->kind != JSON_NULL) return fields_wrong_kind(where, IS_OBJECT, p, e);
    return true;
}

static const json *find_tool(const json *tools, const char *name) {
    JSON_EACH(t, tools)
    if (!strcmp(json_str(json_get(t, "function"), "name", ""), name)) return t;
    return NULL;
}

/* tool_choice; *named: the one tool. */
static bool read_choice(const fields *f, choice *c, const json **named, api_error *e) {
    const json *v = f->tool_choice;
    *c = CHOICE_AUTO;
    if (!v) return true;
    if (!f->tools)
        return json_is(v, "none") || json_is(v, "auto") ||
               api_fail(e, 400, NULL, "tool_choice",
                        "Invalid value for 'tool_choice': it is only allowed when 'tools' are given.");
    if (v->kind == JSON_OBJECT) {
        const char *name = json_str(json_get(v, "function"), "name", NULL), *type = json_str(v, "type", "");
        if (strcmp(type, "function") || !json_get(v, "function"))
            return api_fail(
                e, 400, "unsupported_value", "tool_choice",
                "Unsupported form of 'tool_choice': of objects {\"type\": \"function\", \"function\": "
                "{\"name\": NAME}} is supported.");
        *c = CHOICE_NAMED;
        *named = name ? find_tool(f->tools, name) : NULL;
        return *named || api_fail(e, 400, "invalid_value", "tool_choice",
                                  "Invalid value for 'tool_choice': it names no function of 'tools'.");
    }
    static const char *const word[] = {"auto", "none", "required"};
    for (int i = 0; i < 3; i++)
        if (json_is(v, word[i])) return *c = (choice)i, true;
    return api_fail(
        e, 400, "invalid_value", "tool_choice",
        "Invalid value: '%.40s'. Supported values are: 'none', 'auto', 'required' and a function.", v->s);
}

#define MAX_TOOLS 128 /* as the API has it */

static bool check_tools(fields *f, api_error *e) {
    size_t i = 0;
    JSON_EACH(t, f->tools) {
        if (i == MAX_TOOLS)
            return api_fail(e, 400, "array_above_max_length", "tools",
                            "Invalid 'tools': array too long. Expected an array with maximum length %d.",
                            MAX_TOOLS);
        if (!check_tool(t, i++, e)) return false;
        if (find_tool(f->tools, json_get(json_get(t, "function"), "name")->s) != t)
            return api_fail(e, 400, "invalid_value", "tools",
                            "Invalid 'tools': two functions have the name '%s'.",
                            json_get(json_get(t, "function"), "name")->s);
    }
    return !f->tools || chat_calls_of(f->m->chat) != CHAT_CALLS_NONE ||
           api_fail(
               e, 400, "unsupported_parameter", "tools",
               "The chat template of this model has no place for tools; serve it with --template NAME to use "
               "another.");
}

/* ---- constraints ---- */

typedef struct {
    const json *schema; /* NULL: any object */
    tools_options tools;
    grammar_options at;
    bool of_tools;
} wanted;

static grammar *make(const void *ctx, err *e) {
    const wanted *w = ctx;
    if (w->of_tools) return grammar_tools(&w->tools, e);
    return w->schema ? grammar_from_schema(w->schema, &w->at, e) : grammar_json_object(&w->at, e);
}

static bool constrain(fields *f, const wanted *w, const str *key, const char *param, api_error *e) {
    err x = {0};
    f->r->constraint = grammars_get(f->m->grammars, key->s, key->len, make, w, &x);
    return f->r->constraint || api_fail(e, x.code == ERR_MEMORY ? 503 : 400, "invalid_schema", param,
                                        "Invalid schema for '%s': %s", param, x.msg);
}

static const char *behind(const request *r) {
    return r->thinking ? "</think>" : NULL;
}

static bool constrain_format(fields *f, api_error *e) {
    const char *type = json_str(f->format, "type", "");
    const json *given = json_get_kind(f->format, "json_schema", JSON_OBJECT);
    if (!f->format || !strcmp(type, "text")) return true;
    bool schema = !strcmp(type, "json_schema");
    if (!schema && strcmp(type, "json_object"))
        return api_fail(
            e, 400, "invalid_value", "response_format.type",
            "Invalid value: '%.40s'. Supported values are: 'text', 'json_object' and 'json_schema'.", type);
    if (schema && !json_get_kind(given, "schema", JSON_OBJECT))
        return api_fail(e, 400, "missing_required_parameter", "response_format.json_schema.schema",
                        "Missing required parameter: 'response_format.json_schema.schema'.");
    if (f->r->tools)
        return api_fail(
            e, 400, "unsupported_parameter", "response_format",
            "'response_format' can't go with 'tools' that may be called; set 'tool_choice' to 'none'.");
    wanted w = {.schema = schema ? json_get(given, "schema") : NULL, .at = {behind(f->r)}};
    str key = {0};
    str_printf(&key, "format %d ", f->r->thinking);
    if (w.schema) json_canonical(&key, w.schema);
    bool ok = constrain(f, &w, &key, "response_format", e);
    str_free(&key);
    return ok;
}

/* Forced calls, and those whose definition is strict, follow a grammar. */
static bool constrain_calls(fields *f, choice c, const json *named, api_error *e) {
    request *r = f->r;
    bool strict = false;
    size_t n = 0;
    grammar_tool *list = ARENA_ARRAY(r->a, grammar_tool, f->tools->len);
    str key = {0};
    JSON_EACH(t, f->tools) {
        const json *fn = json_get(t, "function");
        bool own = json_bool(fn, "strict", false);
        strict |= own;
        if (c == CHOICE_NAMED && t != named) continue;
        list[n++] =
            (grammar_tool){json_get(fn, "name")->s, json_get_kind(fn, "parameters", JSON_OBJECT), false};
        json_canonical(&key, fn);
    }
    bool one = c == CHOICE_NAMED || (f->parallel && !f->parallel->i),
         forced = c == CHOICE_REQUIRED || c == CHOICE_NAMED;
    bool ok = true;
    if (forced || strict || one) {
        wanted w = {.of_tools = true,
                    .tools = {.tool = list,
                              .n_tool = n,
                              .one_call = one,
                              .at = {behind(r)},
                              .dialect = r->calls == CHAT_CALLS_XML ? TOOLS_XML : TOOLS_JSON,
                              .choice = forced ? TOOLS_REQUIRED : TOOLS_AUTO}};
        str_printf(&key, " tools %d %d %d %d %zu", r->thinking, one, forced, strict, n);
        ok = constrain(f, &w, &key, "tools", e);
        if (!ok && !strict &&
            e->status == 400) { /* what isn't strict need not have a schema that can be followed */
            for (size_t i = 0; i < n; i++) list[i].loose = true;
            str_adds(&key, " loose");
            *e = (api_error){0};
            ok = constrain(f, &w, &key, "tools", e);
        }
    }
    str_free(&key);
    return ok;
}

/* ---- the prompt ---- */

/* Text of all messages, to refuse what can't fit before it is read. */
static size_t text_bytes(const json *v, int depth) {
    size_t n = v->kind == JSON_STRING ? v->len : 0;
    for (const json *c = v->kind >= JSON_ARRAY && depth ? v->child : NULL; c; c = c->next)
        n += text_bytes(c, depth - 1);
    return n;
}

static bool set_prompt(fields *f, const chat_prompt *p, api_error *e) {
    request *r = f->r;
    err x = {0};
    token_list ids = {0};
    bool ok = chat_encode(p, f->m->m->text, false, &ids, &x) || api_fail_from(e, &x);
    if (ok && ids.n > (uint64_t)f->m->max_prompt) ok = request_too_long(f->m, ids.n, "messages", e);
    if (ok) {
        r->prompt = ARENA_NEW(r->a, request_prompt);
        r->n_prompt = 1;
        r->prompt->ids = arena_copy(r->a, ids.ids, ids.n * sizeof *ids.ids);
        r->prompt->n = ids.n;
    }
    token_list_free(&ids);
    return ok;
}

static bool render(fields *f, const json *tools, api_error *e) {
    request *r = f->r;
    err x = {0};
    chat_options o = CHAT_OPTIONS;
    if (text_bytes(f->messages, 8) / REQUEST_LONGEST_TOKEN > (uint64_t)f->m->max_prompt)
        return request_too_long(f->m, (size_t)f->m->max_prompt, "messages", e);
    if (f->template_options && !chat_options_read(&o, f->template_options, &x))
        return api_fail(e, 400, "invalid_value", "chat_template_kwargs", "Invalid 'chat_template_kwargs': %s",
                        x.msg);
    o.generation = true;
    o.tools = tools;
    if (f->thinking != CHAT_THINK_DEFAULT) o.thinking = f->thinking;
    const json *messages = chat_messages(r->a, f->messages, &x);
    chat_prompt p = {0};
    bool ok = messages && chat_render(f->m->chat, messages, &o, &p, &x);
    if (!ok) api_fail(e, 400, "invalid_messages", "messages", "Invalid 'messages': %s", x.msg);
    r->thinking = ok && p.thinking;
    r->may_think = chat_can_think(f->m->chat);
    ok = ok && set_prompt(f, &p, e);
    chat_prompt_free(&p);
    return ok;
}

static bool build(fields *f, api_error *e) {
    request *r = f->r;
    choice c;
    const json *named = NULL;
    if (!f->m->chat)
        return api_fail(e, 400, "unsupported_model", "model",
                        "The model '%s' has no chat template that is known: use /v1/completions.",
                        f->m->name[0]);
    if (!f->messages)
        return api_fail(e, 400, "missing_required_parameter", "messages",
                        "Missing required parameter: 'messages'.");
    if (f->top > 0 && !r->logprobs)
        return api_fail(e, 400, NULL, "top_logprobs",
                        "The 'top_logprobs' parameter is only allowed when 'logprobs' is enabled.");
    r->top_logprobs = f->top > 0 ? f->top : 0;
    if (!check_tools(f, e) || !read_choice(f, &c, &named, e)) return false;
    bool calls = f->tools && c != CHOICE_NONE;
    r->tools = calls ? f->tools : NULL;
    r->calls = calls ? chat_calls_of(f->m->chat) : CHAT_CALLS_NONE;
    return render(f, r->tools, e) && constrain_format(f, e) && (!calls || constrain_calls(f, c, named, e)) &&
           request_complete(f, e);
}

bool request_chat(request *r, arena *a, const served_model *m, const void *body, size_t n, api_error *e) {
    *r = (request){.a = a,
                   .chat = true,
                   .n = 1,
                   .max_new = -1,
                   .budget = -1,
                   .default_new = INT32_MAX,
                   .sampling = m->defaults,
                   .reuse = true,
                   .model = m->name[0]};
    fields f = {.r = r, .m = m, .top = -1, .root = request_parse(a, body, n, e)};
    bool ok =
        f.root && fields_take(&f, chat_fields, sizeof chat_fields / sizeof *chat_fields, e) && build(&f, e);
    if (!ok) request_free(r);
    return ok;
}
