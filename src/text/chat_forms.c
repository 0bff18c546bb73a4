#include "text/chat_forms.h"
#include <string.h>

/* ---- Messages ---- */

bool chat_role_is(const json *m, const char *role) {
    return m && !strcmp(json_str(m, "role", ""), role);
}

bool chat_fail(const chat_writer *w, size_t index, const char *what) {
    return err_set(w->e, ERR_USAGE, "messages[%zu]%s", index, what);
}

bool chat_text(const chat_writer *w, const json *m, size_t index, chat_view *v) {
    const json *c = json_get(m, "content");
    *v = (chat_view){"", 0};
    if (c && c->kind == JSON_STRING) {
        *v = (chat_view){c->s, c->len};
        return true;
    }
    bool none = !c || c->kind == JSON_NULL;
    if (none && w->form->flags & CHAT_LENIENT) return true;
    return err_set(w->e, ERR_USAGE, "messages[%zu].content: the chat template %s takes text, not %s", index,
                   w->form->name, none ? "null" : json_kind_name(c->kind));
}

bool chat_reasoning(const chat_writer *w, const json *m, size_t index, chat_view *v) {
    const json *r = json_get(m, "reasoning_content");
    *v = (chat_view){NULL, 0};
    if (!r || r->kind == JSON_NULL) return true;
    if (r->kind != JSON_STRING) return chat_fail(w, index, ".reasoning_content: expected text");
    *v = (chat_view){r->s, r->len};
    return true;
}

const json *chat_call(const json *call) {
    const json *f = json_get_kind(call, "function", JSON_OBJECT);
    return f ? f : call;
}

const json *chat_calls_in(const chat_writer *w, const json *m, size_t index, bool *failed) {
    const json *calls = json_get(m, "tool_calls");
    *failed = false;
    if (!calls || calls->kind == JSON_NULL || (calls->kind == JSON_ARRAY && !calls->len)) return NULL;
    *failed = true;
    if (calls->kind != JSON_ARRAY) return chat_fail(w, index, ".tool_calls: expected an array"), NULL;
    if (w->form->calls == CHAT_CALLS_NONE) {
        err_set(w->e, ERR_UNSUPPORTED, "messages[%zu].tool_calls: the chat template %s has no form for them",
                index, w->form->name);
        return NULL;
    }
    size_t i = 0;
    JSON_EACH(c, calls) {
        if (!json_get_kind(chat_call(c), "name", JSON_STRING)) {
            err_set(w->e, ERR_USAGE, "messages[%zu].tool_calls[%zu]: expected a function with a name", index,
                    i);
            return NULL;
        }
        i++;
    }
    *failed = false;
    return calls;
}

const json *chat_tools(const chat_writer *w) {
    const json *t = w->o->tools;
    return t && t->kind == JSON_ARRAY && t->len ? t : NULL;
}

/* ---- What several templates share ---- */

static chat_view member(const json *o, const char *key) {
    const json *v = json_get_kind(o, key, JSON_STRING);
    return v ? (chat_view){v->s, v->len} : (chat_view){"", 0};
}

static void turn(chat_writer *w, const char *begin, chat_view content) {
    chat_own(w, begin);
    chat_theirs(w, content);
    chat_own(w, "<|im_end|>\n");
}

static void tool_lines(chat_writer *w) {
    JSON_EACH(t, chat_tools(w)) {
        chat_own(w, "\n");
        chat_json_theirs(w, t);
    }
}

static void tools_as_json(chat_writer *w) {
    chat_own(w, "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are "
                "provided with function signatures within <tools></tools> XML tags:\n<tools>");
    tool_lines(w);
    chat_own(w,
             "\n</tools>\n\nFor each function call, return a json object with function name and "
             "arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, "
             "\"arguments\": <args-json-object>}\n</tool_call><|im_end|>\n");
}

static bool call_as_json(chat_writer *w, const json *call, size_t index, bool text_is_raw) {
    const json *arguments = json_get(call, "arguments");
    if (!arguments) return chat_fail(w, index, ".tool_calls: a call lacks its arguments");
    chat_own(w, "<tool_call>\n{\"name\": \"");
    chat_theirs(w, member(call, "name"));
    chat_own(w, "\", \"arguments\": ");
    if (text_is_raw && arguments->kind == JSON_STRING)
        chat_theirs(w, (chat_view){arguments->s, arguments->len});
    else
        chat_json_theirs(w, arguments);
    chat_own(w, "}\n</tool_call>");
    return true;
}

/* The result of a tool; those that follow one another share a turn. */
static void tool_result(chat_writer *w, bool begin, chat_view content, const json *next) {
    if (begin) chat_own(w, "<|im_start|>user");
    chat_own(w, "\n<tool_response>\n");
    chat_theirs(w, content);
    chat_own(w, "\n</tool_response>");
    if (!chat_role_is(next, "tool")) chat_own(w, "<|im_end|>\n");
}

static bool is_tool_result(chat_view content) {
    return chat_starts(content, "<tool_response>") && chat_ends(content, "</tool_response>");
}

/* Reasoning written in the content: text in front of the first </think>, behind the last <think> there. What
 * is behind the last </think> is the answer. */
static void split_thinking(chat_view *content, chat_view *reasoning) {
    size_t close = chat_find(*content, "</think>");
    *reasoning = (chat_view){"", 0};
    if (close == SIZE_MAX) return;
    chat_view r = chat_no_lines_behind((chat_view){content->s, close});
    size_t open = chat_find_last(r, "<think>");
    if (open != SIZE_MAX) r = chat_from(r, open + strlen("<think>"));
    *reasoning = chat_no_lines_before(r);
    size_t last = chat_find_last(*content, "</think>");
    *content = chat_no_lines_before(chat_from(*content, last + strlen("</think>")));
}

/* ---- ChatML ---- */

bool chat_chatml(chat_writer *w) {
    size_t i = 0;
    if (w->form->system && !chat_role_is(w->messages->child, "system")) {
        chat_own(w, "<|im_start|>system\n");
        chat_own(w, w->form->system);
        chat_own(w, "<|im_end|>\n");
    }
    JSON_EACH(m, w->messages) {
        chat_view content;
        bool failed;
        chat_calls_in(w, m, i, &failed);
        if (failed || !chat_text(w, m, i++, &content)) return false;
        chat_own(w, "<|im_start|>");
        chat_theirs(w, member(m, "role"));
        turn(w, "\n", content);
    }
    return true;
}

static bool chatml_answer(chat_writer *w, const json *m, size_t i, chat_view content, bool show) {
    chat_view reasoning;
    bool failed;
    chat_calls_in(w, m, i, &failed);
    if (failed || !chat_reasoning(w, m, i, &reasoning)) return false;
    if (!reasoning.s) {
        split_thinking(&content, &reasoning);
        content = chat_trim(content);
    }
    chat_own(w, "<|im_start|>assistant\n");
    if (show || (w->o->keep_thinking && reasoning.n)) {
        chat_own(w, "<think>\n");
        chat_theirs(w, chat_trim(reasoning));
        chat_own(w, "\n</think>\n\n");
    }
    turn(w, "", content);
    return true;
}

/* ChatML with thinking: kept behind the last message of the user. */
bool chat_chatml_think(chat_writer *w) {
    size_t i = 0, last = SIZE_MAX;
    JSON_EACH(m, w->messages) {
        if (chat_role_is(m, "user")) last = i;
        i++;
    }
    i = 0;
    JSON_EACH(m, w->messages) {
        chat_view content;
        if (!chat_text(w, m, i, &content)) return false;
        content = chat_trim(content);
        if (chat_role_is(m, "system")) {
            if (i) return chat_fail(w, i, ": System message must be at the beginning.");
            turn(w, "<|im_start|>system\n", content);
        } else if (chat_role_is(m, "user")) {
            turn(w, "<|im_start|>user\n", content);
        } else if (chat_role_is(m, "assistant")) {
            if (!chatml_answer(w, m, i, content, last == SIZE_MAX || i > last)) return false;
        } else {
            return chat_fail(w, i, ": Unexpected message role.");
        }
        i++;
    }
    return true;
}

/* ---- Qwen2.5 ---- */

static bool answer_2_5(chat_writer *w, const json *m, size_t i) {
    bool failed;
    const json *calls = chat_calls_in(w, m, i, &failed), *c = json_get(m, "content");
    chat_view content = {"", 0};
    if (failed) return false;
    bool none = !c || c->kind == JSON_NULL;
    if (!(calls && none) && !chat_text(w, m, i, &content)) return false;
    chat_own(w, "<|im_start|>assistant");
    if (content.n || !calls) chat_own(w, "\n");
    chat_theirs(w, content);
    JSON_EACH(call, calls) {
        chat_own(w, "\n");
        if (!call_as_json(w, chat_call(call), i, false)) return false;
    }
    chat_own(w, "<|im_end|>\n");
    return true;
}

static bool system_2_5(chat_writer *w) {
    const json *m = w->messages->child;
    chat_view content;
    chat_own(w, "<|im_start|>system\n");
    if (chat_role_is(m, "system")) {
        if (!chat_text(w, m, 0, &content)) return false;
        chat_theirs(w, content);
    } else {
        chat_own(w, "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.");
    }
    if (chat_tools(w)) {
        chat_own(w, "\n\n");
        tools_as_json(w);
    } else {
        chat_own(w, "<|im_end|>\n");
    }
    return true;
}

bool chat_qwen2_5(chat_writer *w) {
    if (!system_2_5(w)) return false;
    const json *before = NULL;
    size_t i = 0;
    JSON_EACH(m, w->messages) {
        chat_view content;
        bool user = chat_role_is(m, "user"), system = chat_role_is(m, "system") && i,
             tool = chat_role_is(m, "tool");
        if ((user || system || tool) && !chat_text(w, m, i, &content)) return false;
        if (user || system) turn(w, user ? "<|im_start|>user\n" : "<|im_start|>system\n", content);
        if (tool) tool_result(w, !chat_role_is(before, "tool"), content, m->next);
        if (chat_role_is(m, "assistant") && !answer_2_5(w, m, i)) return false;
        before = m;
        i++;
    }
    return true;
}

/* ---- Qwen3 ---- */

static bool system_3(chat_writer *w) {
    const json *m = w->messages->child;
    chat_view content = {NULL, 0};
    if (chat_role_is(m, "system") && !chat_text(w, m, 0, &content)) return false;
    if (content.s && !json_get_kind(m, "content", JSON_STRING))
        return chat_fail(w, 0, ".content: a system message needs text");
    if (!chat_tools(w)) {
        if (content.s) turn(w, "<|im_start|>system\n", content);
        return true;
    }
    chat_own(w, "<|im_start|>system\n");
    if (content.s) chat_theirs(w, content);
    if (content.s) chat_own(w, "\n\n");
    tools_as_json(w);
    return true;
}

/* Whether an answer shows its reasoning: behind the last question, when it is the very last message or there
 * is any. */
static bool shows_3(const chat_writer *w, const json *m, bool behind, chat_view reasoning) {
    if (!(w->form->flags & CHAT_THINKS)) return false;
    return (behind && (!m->next || reasoning.n)) || (w->o->keep_thinking && reasoning.n);
}

static bool answer_3(chat_writer *w, const json *m, size_t i, bool behind) {
    chat_view content, reasoning;
    bool failed;
    const json *calls = chat_calls_in(w, m, i, &failed);
    if (failed || !chat_text(w, m, i, &content) || !chat_reasoning(w, m, i, &reasoning)) return false;
    if (!(w->form->flags & CHAT_THINKS))
        reasoning.n = 0;
    else if (!reasoning.s)
        split_thinking(&content, &reasoning);
    chat_own(w, "<|im_start|>assistant\n");
    if (shows_3(w, m, behind, reasoning)) {
        chat_own(w, "<think>\n");
        chat_theirs(w, chat_no_lines_before(chat_no_lines_behind(reasoning)));
        chat_own(w, "\n</think>\n\n");
        chat_theirs(w, chat_no_lines_before(content));
    } else {
        chat_theirs(w, content);
    }
    JSON_EACH(call, calls) {
        if (call != calls->child || content.n) chat_own(w, "\n");
        if (!call_as_json(w, chat_call(call), i, true)) return false;
    }
    chat_own(w, "<|im_end|>\n");
    return true;
}

/* Index of the last message of the user that is no result of a tool; that of the last message when there is
 * none. */
static bool last_question_3(const chat_writer *w, size_t *last) {
    size_t i = 0;
    *last = w->messages->len - 1u;
    JSON_EACH(m, w->messages) {
        chat_view content;
        if (chat_role_is(m, "user")) {
            if (!chat_text(w, m, i, &content)) return false;
            if (json_get_kind(m, "content", JSON_STRING) && !is_tool_result(content)) *last = i;
        }
        i++;
    }
    return true;
}

bool chat_qwen3(chat_writer *w) {
    size_t i = 0, last;
    if (!system_3(w) || !last_question_3(w, &last)) return false;
    const json *before = NULL;
    JSON_EACH(m, w->messages) {
        chat_view content;
        bool user = chat_role_is(m, "user"), system = chat_role_is(m, "system") && i,
             tool = chat_role_is(m, "tool");
        if ((user || system || tool) && !chat_text(w, m, i, &content)) return false;
        if (user || system) turn(w, user ? "<|im_start|>user\n" : "<|im_start|>system\n", content);
        if (tool) tool_result(w, !chat_role_is(before, "tool"), content, m->next);
        if (chat_role_is(m, "assistant") && !answer_3(w, m, i, i > last)) return false;
        before = m;
        i++;
    }
    return true;
}

/* ---- Qwen3.5 ---- */

/* Text of one part of a content. */
static bool part_text(const chat_writer *w, const json *part, size_t index, chat_view *v) {
    const json *text = json_get_kind(part, "text", JSON_STRING);
    const char *type = json_str(part, "type", "");
    bool other = !strcmp(type, "image") || !strcmp(type, "video") || json_get(part, "image") ||
                 json_get(part, "image_url") || json_get(part, "video");
    if (other)
        return err_set(w->e, ERR_UNSUPPORTED, "messages[%zu].content: only parts of text are supported",
                       index);
    if (!text) return chat_fail(w, index, ".content: Unexpected item type in content.");
    *v = (chat_view){text->s, text->len};
    return true;
}

/* Content as text, parts joined, without white space around. */
static bool content_3_5(const chat_writer *w, const json *m, size_t index, chat_view *v) {
    const json *c = json_get(m, "content");
    *v = (chat_view){"", 0};
    if (!c || c->kind == JSON_NULL) return true;
    if (c->kind == JSON_STRING) {
        *v = chat_trim((chat_view){c->s, c->len});
        return true;
    }
    if (c->kind != JSON_ARRAY) return chat_fail(w, index, ".content: Unexpected content type.");
    size_t n = 0;
    chat_view part;
    JSON_EACH(p, c) {
        if (!part_text(w, p, index, &part)) return false;
        n += part.n;
    }
    char *all = arena_alloc(w->a, n + 1);
    n = 0;
    JSON_EACH(p, c) {
        if (!part_text(w, p, index, &part)) return false;
        if (part.n) memcpy(all + n, part.s, part.n);
        n += part.n;
    }
    *v = chat_trim((chat_view){all, n});
    return true;
}

static const char TOOLS_3_5[] =
    "\n</tools>\n\nIf you choose to call a function ONLY reply in the following format with NO suffix:\n\n"
    "<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\nvalue_1\n</parameter>\n"
    "<parameter=example_parameter_2>\nThis is the value for the second parameter\nthat can span\nmultiple "
    "lines\n</parameter>\n</function>\n</tool_call>\n\n<IMPORTANT>\nReminder:\n- Function calls MUST follow "
    "the specified format: an inner <function=...></function> block must be nested within "
    "<tool_call></tool_call> XML tags\n- Required parameters MUST be specified\n- You may provide optional "
    "reasoning for your function call in natural language BEFORE the function call, but NOT after\n- If "
    "there is no function call available, answer the question like normal with your current knowledge and "
    "do not tell the user about function calls\n</IMPORTANT>";

static bool system_3_5(chat_writer *w) {
    const json *m = w->messages->child;
    bool system = chat_role_is(m, "system");
    chat_view content = {"", 0};
    if (system && !content_3_5(w, m, 0, &content)) return false;
    if (!chat_tools(w)) {
        if (system) turn(w, "<|im_start|>system\n", content);
        return true;
    }
    chat_own(w, "<|im_start|>system\n# Tools\n\nYou have access to the following functions:\n\n<tools>");
    tool_lines(w);
    chat_own(w, TOOLS_3_5);
    if (content.n) chat_own(w, "\n\n");
    turn(w, "", content);
    return true;
}

static bool call_3_5(chat_writer *w, const json *call, size_t index) {
    const json *arguments = json_get(call, "arguments");
    if (arguments && arguments->kind != JSON_OBJECT && arguments->kind != JSON_NULL)
        return chat_fail(w, index, ".tool_calls: arguments of a call must be an object");
    chat_own(w, "<tool_call>\n<function=");
    chat_theirs(w, member(call, "name"));
    chat_own(w, ">\n");
    JSON_EACH(v, arguments) {
        chat_own(w, "<parameter=");
        chat_theirs(w, (chat_view){v->key, v->key_len});
        chat_own(w, ">\n");
        if (v->kind == JSON_STRING)
            chat_theirs(w, (chat_view){v->s, v->len});
        else if (v->kind == JSON_ARRAY || v->kind == JSON_OBJECT || w->form->flags & CHAT_JSON_SCALARS)
            chat_json_theirs(w, v);
        else
            chat_scalar(&w->p->text, v);
        chat_own(w, "\n</parameter>\n");
    }
    chat_own(w, "</function>\n</tool_call>");
    return true;
}

static bool answer_3_5(chat_writer *w, const json *m, size_t i, chat_view content, bool behind) {
    chat_view reasoning;
    bool failed;
    const json *calls = chat_calls_in(w, m, i, &failed);
    if (failed || !chat_reasoning(w, m, i, &reasoning)) return false;
    if (!reasoning.s) split_thinking(&content, &reasoning);
    chat_own(w, "<|im_start|>assistant\n");
    if (behind || w->o->keep_thinking) {
        chat_own(w, "<think>\n");
        chat_theirs(w, chat_trim(reasoning));
        chat_own(w, "\n</think>\n\n");
    }
    chat_theirs(w, content);
    bool text = chat_trim(content).n;
    JSON_EACH(call, calls) {
        if (call != calls->child || text) chat_own(w, call == calls->child ? "\n\n" : "\n");
        if (!call_3_5(w, chat_call(call), i)) return false;
    }
    chat_own(w, "<|im_end|>\n");
    return true;
}

static bool last_question_3_5(const chat_writer *w, size_t *last) {
    size_t i = 0;
    *last = SIZE_MAX;
    JSON_EACH(m, w->messages) {
        chat_view content;
        if (chat_role_is(m, "user")) {
            if (!content_3_5(w, m, i, &content)) return false;
            if (!is_tool_result(content)) *last = i;
        }
        i++;
    }
    return *last != SIZE_MAX || err_set(w->e, ERR_USAGE, "messages: No user query found in messages.");
}

bool chat_qwen3_5(chat_writer *w) {
    size_t i = 0, last;
    if (!system_3_5(w) || !last_question_3_5(w, &last)) return false;
    const json *before = NULL;
    JSON_EACH(m, w->messages) {
        chat_view content;
        if (!content_3_5(w, m, i, &content)) return false;
        if (chat_role_is(m, "system")) {
            if (i) return chat_fail(w, i, ": System message must be at the beginning.");
        } else if (chat_role_is(m, "user")) {
            turn(w, "<|im_start|>user\n", content);
        } else if (chat_role_is(m, "assistant")) {
            if (!answer_3_5(w, m, i, content, i > last)) return false;
        } else if (chat_role_is(m, "tool")) {
            tool_result(w, before && !chat_role_is(before, "tool"), content, m->next);
        } else {
            return chat_fail(w, i, ": Unexpected message role.");
        }
        before = m;
        i++;
    }
    return true;
}
