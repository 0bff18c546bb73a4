/* Tasks that a model does with a text: what it is told, how a long text is cut, how it chooses among options.
 */
#ifndef CHAT_TASKS_H
#define CHAT_TASKS_H
#include "chat/talk.h"

/* What the system message says. */
typedef struct {
    const char *task;     /* "summarize", "translate", "proofread", "extract", "decide" */
    int64_t words;        /* summarize: at most; 0: it doesn't say */
    const char *language; /* translate: into it; summarize: in it, NULL: in that of the text */
    const char *more;     /* further instructions; NULL */
    const char *form;     /* extract: the text of the schema; NULL */
} task_words;
void task_system(str *out, const task_words *w);
/* Whether a long text may be done piece by piece, its results put together as the pieces were. */
bool task_in_pieces(const char *task);

/* A part of a text: [start, end) is done, what lies between two pieces is copied. */
typedef struct {
    size_t start, end;
} task_piece;

/* Cuts a text between paragraphs, so that each piece leaves room for a result that is twice as long. *piece:
 * mem_free() it. ERR_LIMIT: a paragraph is too long. */
bool task_cut(talk *t, const char *text, size_t n, task_piece **piece, size_t *n_piece, err *e);

/* The question that a text and options make: "... A) yes\nB) no\n". */
enum { TASK_MAX_OPTIONS = 26 };
void task_question(str *out, const char *text, size_t n, const char *question, const char *const *option,
                   size_t n_option);
/* Probabilities of the letters of n_option options as the beginning of the reply, among themselves; *share:
 * what they have of all (NAN where the package returns its best candidates only). w: as for talk_scores().
 * ERR_UNSUPPORTED: the package returns no scores, or a letter is not one token. */
bool task_decide(talk *t, const char *question, size_t n, size_t n_option, const talk_watch *w, double *p,
                 double *share, err *e);
#endif
