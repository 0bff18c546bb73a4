/* What kind of template an unknown Jinja text is, by what only templates of that kind have in them. Where
 * that isn't plain, it stays unknown. */
#include "text/chat_forms.h"
#include <string.h>

static bool has(chat_view v, const char *s) {
    return chat_find(v, s) != SIZE_MAX;
}

static bool has_all(chat_view v, const char *const *marks) {
    for (; *marks; marks++)
        if (!has(v, *marks)) return false;
    return true;
}

/* What a branch writes: newlines as Jinja's strings spell them, or as they are. */
static chat_end end_of(chat_view branch) {
    size_t open = chat_find(branch, "<think>");
    if (open == SIZE_MAX) return CHAT_END_PLAIN;
    return has(chat_from(branch, open), "</think>") ? CHAT_END_EMPTY : CHAT_END_OPEN;
}

/* The parts of {% if enable_thinking ... %} then {% else %} other {% endif %}. */
static bool split_branch(chat_view v, chat_view *condition, chat_view *then, chat_view *other) {
    size_t close = chat_find(v, "%}");
    if (close == SIZE_MAX) return false;
    *condition = (chat_view){v.s, close};
    v = chat_from(v, close + 2);
    size_t end = chat_find(v, "endif");
    if (end == SIZE_MAX) return false;
    v.n = end;
    size_t middle = chat_find(v, "else");
    *then = (chat_view){v.s, middle == SIZE_MAX ? v.n : middle};
    *other = middle == SIZE_MAX ? (chat_view){"", 0} : chat_from(v, middle);
    return !has(*then, "elif");
}

/* The ends of the generation prompt: the last branch of the template. */
static bool read_ends(chat_form *form, chat_view v) {
    size_t at = chat_find_last(v, "add_generation_prompt");
    if (at == SIZE_MAX) return false;
    v = chat_from(v, at);
    if (!has(v, "<|im_start|>assistant")) return false;
    at = chat_find(v, "enable_thinking");
    if (at == SIZE_MAX) {
        memset(form->end, end_of(v), sizeof form->end);
        return true;
    }
    chat_view condition, then, other;
    if (!split_branch(chat_from(v, at), &condition, &then, &other)) return false;
    bool is_false = has(condition, "is false") || has(condition, "== false");
    bool is_true = has(condition, "is true") || has(condition, "== true");
    if (is_false == is_true || !has(condition, "is defined")) return false;
    form->end[CHAT_THINK_OFF] = (unsigned char)end_of(is_false ? then : other);
    form->end[CHAT_THINK_ON] = (unsigned char)end_of(is_false ? other : then);
    form->end[CHAT_THINK_DEFAULT] = (unsigned char)end_of(other);
    return true;
}

/* A system message for conversations that have none: {% if loop.first and messages[0]['role'] != 'system'
 * %}{{
 * '<|im_start|>system\nTEXT<|im_end|>\n' }}. False when system messages are spoken of in any other way. */
static bool default_system(chat_view v, chat_view *system) {
    static const char open[] = "<|im_start|>system";
    *system = (chat_view){"", 0};
    size_t at = chat_find(v, "system");
    if (at == SIZE_MAX) return true;
    chat_view condition = {v.s, at}, rest = chat_from(v, at + strlen("system"));
    if (!has(condition, "loop.first") || !(chat_ends(condition, "!= '") || chat_ends(condition, "!= \"")))
        return false;
    at = chat_find(rest, open);
    if (at == SIZE_MAX) return false;
    rest = chat_from(rest, at + strlen(open));
    at = chat_find(rest, "<|im_end|>");
    if (at == SIZE_MAX || has(rest, "system")) return false;
    chat_view text = {rest.s, at};
    if (!chat_starts(text, "\n") && !chat_starts(text, "\\n")) return false;
    *system = chat_from(text, text.s[0] == '\n' ? 1 : 2);
    for (const char *c = "\\'\"{"; *c; c++)
        if (memchr(system->s, *c, system->n)) return false;
    return system->n > 0;
}

/* The whole of it: a loop that writes role and content, and perhaps a system message in front. */
static bool is_bare_chatml(chat_view v, chat_view *system) {
    static const char *const others[] = {"tool",    "think", "trim", "raise", "elif",
                                         "default", "strip", "bos",  "set "};
    if (!default_system(v, system)) return false;
    chat_view before = system->n ? (chat_view){v.s, (size_t)(system->s - v.s)} : v;
    chat_view behind = chat_from(v, before.n + system->n);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (has(before, others[i]) || has(behind, others[i])) return false;
    return v.n - system->n < 600 && has(v, "role") && has(v, "content");
}

bool chat_by_marks(chat_form *form, const char *jinja, size_t n, chat_view *system) {
    static const char *const any[] = {"<|im_start|>", "<|im_end|>", NULL};
    static const char *const xml[] = {
        "<tool_call>", "<function=",        "<parameter=", "<IMPORTANT>", "<tool_response>",
        "</think>",    "reasoning_content", "|trim",       NULL};
    static const char *const json_calls[] = {"<tool_call>", "\\\"arguments\\\": <args-json-object>",
                                             "<tool_response>", "tojson", NULL};
    chat_view v = {jinja, n}, message = {"", 0};
    *system = message;
    if (!has_all(v, any)) return false;
    const char *name = NULL;
    bool text_only = has(v, "message.content is string"),
         thinks = has(v, "reasoning_content") && has(v, "</think>");
    if (has_all(v, xml) && !has(v, "reasoning_effort"))
        name = has(v, "preserve_thinking") ? "qwen3_6" : "qwen3_5";
    else if (has_all(v, json_calls) && !has(v, "<function=") && thinks)
        name = text_only ? "qwen3_v2" : "qwen3";
    else if (has_all(v, json_calls) && !has(v, "<function=") && !has(v, "think"))
        name = has(v, "You are Qwen, created by Alibaba Cloud.") ? "qwen2_5"
               : text_only                                       ? "qwen3_instruct_2507"
                                                                 : NULL;
    else if (is_bare_chatml(v, &message))
        name = "chatml";
    if (!name) return false;
    *system = message;
    *form = *chat_form_find(name);
    return read_ends(form, v);
}
