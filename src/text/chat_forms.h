/* Inside of the chat templates: what their renderers share. */
#ifndef TEXT_CHAT_FORMS_H
#define TEXT_CHAT_FORMS_H
#include "text/chat.h"

/* A part of somebody's text. */
typedef struct {
    const char *s;
    size_t n;
} chat_view;

/* One rendering. */
typedef struct {
    const struct chat_form *form;
    const json *messages;
    const chat_options *o;
    chat_prompt *p;
    arena *a; /* texts that had to be put together */
    err *e;
} chat_writer;

/* What a generation prompt ends in, behind "<|im_start|>assistant\n". */
typedef enum {
    CHAT_END_PLAIN,
    CHAT_END_EMPTY, /* <think>\n\n</think>\n\n: no thinking */
    CHAT_END_OPEN   /* <think>\n */
} chat_end;

enum {
    CHAT_THINKS = 1,      /* the model may think: reasoning of answers is told from their content */
    CHAT_LENIENT = 2,     /* content that is null or absent counts as empty */
    CHAT_JSON_SCALARS = 4 /* CHAT_CALLS_XML: true, not True */
};

typedef struct chat_form {
    const char *name;
    bool (*render)(chat_writer *w);
    chat_calls calls;
    unsigned flags;
    unsigned char end[3]; /* a chat_end for each chat_thinking */
    const char *system;   /* for a conversation that has no system message; NULL: none */
} chat_form;

/* Renderers: everything in front of the generation prompt (chat_forms.c). */
bool chat_qwen3_5(chat_writer *w);
bool chat_qwen3(chat_writer *w);
bool chat_qwen2_5(chat_writer *w);
bool chat_chatml(chat_writer *w);
bool chat_chatml_think(chat_writer *w);

/* What the text of an unknown template tells: form (with its ends) and true, or false (chat_marks.c). What
 * the form points to is part of jinja, or static; *system is its system message, without an end. */
bool chat_by_marks(chat_form *form, const char *jinja, size_t n, chat_view *system);
const chat_form *chat_form_find(const char *name);

/* ---- Writing (chat_write.c) ---- */

/* The template's own text: control tokens in it are such. */
void chat_own(chat_writer *w, const char *s);
/* Text of messages or options: it is only text. */
void chat_theirs(chat_writer *w, chat_view v);
void chat_json_theirs(chat_writer *w, const json *v);

/* As Python's json.dumps(v, ensure_ascii=False). */
void chat_json(str *out, const json *v);
/* As Python's str(): scalars other than strings. */
void chat_scalar(str *out, const json *v);

/* ---- Views ---- */

bool chat_starts(chat_view v, const char *s);
bool chat_ends(chat_view v, const char *s);
/* Where s begins in v, the first or the last time; SIZE_MAX: nowhere. */
size_t chat_find(chat_view v, const char *s);
size_t chat_find_last(chat_view v, const char *s);
chat_view chat_from(chat_view v, size_t at);
/* Python's str.strip(), and strip("\n") of one end. */
chat_view chat_trim(chat_view v);
chat_view chat_no_lines_before(chat_view v);
chat_view chat_no_lines_behind(chat_view v);

/* ---- Messages ---- */

/* The message (NULL: there is none) has this role. */
bool chat_role_is(const json *m, const char *role);
/* Sets the error "messages[i]...: what". Always false. */
bool chat_fail(const chat_writer *w, size_t index, const char *what);
/* The member "content" (or another) which must be text; absent, null and others are errors unless the form
 * is lenient. */
bool chat_text(const chat_writer *w, const json *m, size_t index, chat_view *v);
/* The member "reasoning_content"; v->s is NULL when there is none. */
bool chat_reasoning(const chat_writer *w, const json *m, size_t index, chat_view *v);
/* Calls of a message: NULL when it has none; each is an object with a name once *failed is not set. */
const json *chat_calls_in(const chat_writer *w, const json *m, size_t index, bool *failed);
/* The part of a call that has the name: {"function": {...}} or itself. */
const json *chat_call(const json *call);
/* Tools, NULL when there are none. */
const json *chat_tools(const chat_writer *w);
#endif
