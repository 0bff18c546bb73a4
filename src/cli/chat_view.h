/* What a conversation looks like: replies as they stream, reasoning in a style of its own, what they cost. In
 * a terminal nothing that a model writes can play with it. */
#ifndef CLI_CHAT_VIEW_H
#define CLI_CHAT_VIEW_H
#include "chat/talk.h"

typedef struct {
    bool terminal; /* standard output is one */
    bool styled;   /* and takes escape sequences: not TERM=dumb, not NO_COLOR */
    bool erases;   /* and can erase a line: not TERM=dumb */
    bool hide;     /* reasoning isn't shown */
    /* of the reply under way */
    bool any, fresh_line, busy;
    talk_kind kind;
} chat_view;

chat_view chat_view_of_stdout(bool hide);
const char *chat_view_prompt_style(const chat_view *v); /* NULL: none */

/* A reply. text: as a talk_text_fn with the view as ctx; false once nobody reads. */
void chat_view_begin(chat_view *v);
bool chat_view_text(void *view, talk_kind kind, const char *s, size_t n);
/* Ends it with a new line. */
void chat_view_end(chat_view *v);

/* A remark of the program, dim where there are styles, on a line of its own; in a pipe on stderr. */
void chat_view_note(const chat_view *v, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* One line behind a reply in a terminal: tokens, rate, how full the context is. As wide as fits. */
void chat_view_cost(const chat_view *v, const talk_turn *turn, size_t used, size_t context);
#endif
