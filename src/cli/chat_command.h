/* What begins with a slash in millet chat. */
#ifndef CLI_CHAT_COMMAND_H
#define CLI_CHAT_COMMAND_H
#include "chat/talk.h"
#include "cli/chat_view.h"
#include "cli/line.h"

typedef struct {
    talk *t;
    chat_view view;
    line_reader *in;
    talk_turn last; /* zero before the first */
    double load_seconds;
    bool failed; /* a command or a turn: the exit code of a run without a terminal */
} chat_session;

typedef enum {
    CHAT_TEXT,  /* no command */
    CHAT_DONE,  /* done, or it said why not */
    CHAT_RETRY, /* the last question once more */
    CHAT_QUIT
} chat_action;

#define CHAT_REREAD "; it was saved with another artifact, so the next turn reads it again"

/* text: a line, or several; "//" begins a message with a slash: text is changed then. */
chat_action chat_command(chat_session *s, str *text);
#endif
