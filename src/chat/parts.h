/* Inside of a conversation. */
#ifndef CHAT_PARTS_H
#define CHAT_PARTS_H
#include "chat/talk.h"
#include <stdint.h>

struct talk {
    const lm *m;
    talk_options o;
    char *template_name;
    chat_template *chat;
    prefix_cache *prefix;
    decoder *d;
    talk_message *message;
    size_t n, cap;
    /* what was fed last, as text and ids: a prompt that begins with the text begins with the ids */
    str fed_text;
    token_list fed;
    uint64_t replies; /* that stayed, since the seed was set: each has a seed of its own */
    size_t size;      /* tokens of prompt and reply, where no message changed since; else UNMEASURED */
};

#define UNMEASURED SIZE_MAX

/* A prompt in the making. Zero-initialise, free with talk_prompt_free(). */
typedef struct {
    chat_prompt p;
    token_list ids;
    size_t first;  /* ids in front of the first question: those of the system message */
    size_t stable; /* ids that stand in the prompts of all later turns */
} talk_prompt;

/* Of the messages and a question (NULL: none). */
bool talk_make_prompt(const talk *t, const char *question, size_t n, talk_prompt *p, err *e);
void talk_prompt_free(talk_prompt *p);
/* Tokens that the messages make. */
size_t talk_measure(const talk *t);
void talk_message_free(talk_message *m);
void talk_clear(talk *t);  /* all messages */
void talk_forget(talk *t); /* which text belongs to what was fed */
/* [{"role": ..., "content": ...}, ...] */
void talk_write_messages(const talk *t, str *out);

#endif
