/* What a model writes, split as it streams: reasoning, answer, calls of tools.
 *
 *     reply *r = reply_new(&(reply_options){.thinking = prompt.thinking, .may_think = chat_can_think(c),
 *                                           .calls = tools ? chat_calls_of(c) : CHAT_CALLS_NONE, .tools =
 * tools}, on_event, ctx); for each piece of text: reply_push(r, piece, n);      // text/detokenize.h, special
 * tokens skipped reply_end(r); reply_free(r);
 *
 * However the text is cut in pieces, the events are the same, but for where text is cut in events. A marker
 * (<think>, <tool_call> ...) never shows, not even a part of one; text that only begins like one comes as
 * soon as that is known. Newlines that templates put around reasoning and between text and calls are left
 * out.
 *
 * Calls are looked for behind the reasoning only, several in a row. What isn't a well-formed call is given
 * back as content, as it was written. */
#ifndef TEXT_REPLY_H
#define TEXT_REPLY_H
#include "text/chat.h"

typedef enum {
    REPLY_REASONING,  /* text */
    REPLY_CONTENT,    /* text */
    REPLY_CALL,       /* a call begins; s: the name of the tool */
    REPLY_ARGUMENTS,  /* a piece of its arguments; joined, the text of a JSON object */
    REPLY_CALL_END,   /* the call is complete */
    REPLY_CALL_BROKEN /* the call that began turned out malformed, or the text ended inside of it: it must be
                         dropped; its text comes as content next */
} reply_kind;

typedef struct {
    reply_kind kind;
    const char *s; /* n bytes, not NUL-terminated, until the callback returns */
    size_t n;
    size_t call; /* of the last four: which one, from 0 */
} reply_event;

typedef void reply_fn(void *ctx, const reply_event *event);

typedef struct {
    bool thinking;  /* the prompt ends inside of <think> (chat_prompt.thinking) */
    bool may_think; /* the text may begin with <think> (chat_can_think()) */
    chat_calls
        calls; /* how calls are written; CHAT_CALLS_NONE: there are no tools, nothing is taken for a call */
    const json *tools; /* their definitions, which say what type an argument has where the dialect doesn't
                          (CHAT_CALLS_XML): strings stay as they are, the rest is read as JSON; may be NULL;
                          borrowed as long as the reply */
    bool whole_calls;  /* events of a call come together, once it is complete: none is ever broken */
} reply_options;

typedef struct reply reply;

reply *reply_new(const reply_options *o, reply_fn *fn, void *ctx);
void reply_push(reply *r, const char *s, size_t n);
/* The text is over. What was held back comes now; a call whose closing tag alone is missing counts. */
void reply_end(reply *r);
void reply_free(reply *r);

/* Complete calls so far: the reason of the end is "tool_calls" when there are any. */
size_t reply_calls(const reply *r);
/* The reasoning isn't over. */
bool reply_in_reasoning(const reply *r);
#endif
