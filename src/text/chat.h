/* Chat templates: a conversation -> the text and the ids that a model was trained to continue. The templates
 * that we know are written in C, each equal to its Jinja original, text and ids.
 *
 *     chat_template *c = chat_open("checkpoint", NULL, &e);     // the one that the checkpoint's template is
 *     chat_options o = CHAT_OPTIONS;                            // with a generation prompt
 *     chat_prompt p = {0};
 *     if (chat_render(c, messages, &o, &p, &e))                 // p.text
 *         chat_encode(&p, tokenizer, false, &ids, &e);
 *     reply_begin(..., p.thinking, ...)                         // text/reply.h reads what the model answers
 *     chat_prompt_free(&p);
 *
 * Messages are in the form of the OpenAI API, as transformers' apply_chat_template() takes them: an array of
 * {"role", "content": text or [{"type": "text", "text"}], "reasoning_content", "tool_calls": [{"function":
 * {"name", "arguments": an object}}]}. What comes over the wire goes through chat_messages() first.
 *
 * Text of messages never becomes control tokens: the prompt knows which of its parts are the template's own,
 * and only there are added tokens looked for. */
#ifndef TEXT_CHAT_H
#define TEXT_CHAT_H
#include "base/json.h"
#include "text/tokenizer.h"

/* How a model writes a call of a tool. */
typedef enum {
    CHAT_CALLS_NONE, /* the template has no place for tools */
    CHAT_CALLS_JSON, /* <tool_call> {"name": ..., "arguments": {...}} </tool_call> */
    CHAT_CALLS_XML /* <tool_call> <function=NAME> <parameter=NAME> value </parameter> </function> </tool_call>
                    */
} chat_calls;

typedef struct chat_template chat_template;

/* The template of a directory with a tokenizer: chat_template.jinja, else "chat_template" of
 * tokenizer_config.json (of several the one named "default"). name (may be NULL) chooses one of
 * chat_template_names() instead; then dir may be NULL. NULL on error: no template there, or none that we
 * know. Threads may share it. */
chat_template *chat_open(const char *dir, const char *name, err *e);
/* The same for the text of a template. */
chat_template *chat_open_text(const char *jinja, size_t n, err *e);
void chat_close(chat_template *c);

/* "qwen2_5, qwen3, ...": what a user may choose from. Static. */
const char *chat_template_names(void);
const char *chat_name(const chat_template *c);
/* One line for the user when the checkpoint's template isn't known byte for byte but was recognised by what
 * is in it; else NULL. Lives as long as c. */
const char *chat_note(const chat_template *c);
chat_calls chat_calls_of(const chat_template *c);
/* The model may think before it answers (<think> ... </think>). */
bool chat_can_think(const chat_template *c);
/* chat_options.thinking changes what is rendered. */
bool chat_has_thinking_switch(const chat_template *c);
/* With thinking left to the template, the model is asked to think. */
bool chat_thinks_by_default(const chat_template *c);

typedef enum { CHAT_THINK_DEFAULT, CHAT_THINK_OFF, CHAT_THINK_ON } chat_thinking;

typedef struct {
    const json *tools;      /* array of tool definitions; NULL, null and [] are the same: none */
    bool generation;        /* ends with the beginning of the assistant's turn */
    chat_thinking thinking; /* enable_thinking */
    bool keep_thinking;     /* also in turns before the last question, where templates drop it */
} chat_options;
#define CHAT_OPTIONS ((chat_options){.generation = true})
/* From an object {"tools", "add_generation_prompt" (default false, as in transformers), "enable_thinking",
 * "preserve_thinking"}; NULL: an empty one. tools stays borrowed. */
bool chat_options_read(chat_options *o, const json *options, err *e);

/* Zero-initialise, free with chat_prompt_free(). */
typedef struct {
    str text;
    text_span *control; /* the template's own parts, in order, never touching each other */
    size_t count, cap;
    bool thinking; /* ends inside of <think>: the reply begins with reasoning */
} chat_prompt;
void chat_prompt_free(chat_prompt *p);

/* Replaces p. An error names the message, or is what the template itself raises. Messages and options are not
 * kept. */
bool chat_render(const chat_template *c, const json *messages, const chat_options *o, chat_prompt *p, err *e);
/* Appends the ids of p. allow_special: text of messages that looks like control tokens is such, as it is for
 * transformers. */
bool chat_encode(const chat_prompt *p, const tokenizer *t, bool allow_special, token_list *out, err *e);

/* Messages as they come over the wire -> as templates take them: parts of text joined, null content "",
 * arguments of calls (JSON in a string) parsed, the role "developer" taken for "system", "reasoning" for
 * "reasoning_content". Anything that can't be rendered is an error that names the place. The result lives in
 * a and points into messages. */
const json *chat_messages(arena *a, const json *messages, err *e);
#endif
