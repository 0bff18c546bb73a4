#include "chat/tasks.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- words ---- */

void task_system(str *out, const task_words *w) {
    if (!strcmp(w->task, "summarize")) {
        str_adds(
            out,
            "Summarize the user's text. Keep what matters and its names and numbers; add nothing. Answer "
            "with the summary alone.");
        if (w->words) str_printf(out, " Use at most %" PRId64 " words.", w->words);
        if (w->language) str_printf(out, " Write it in %s.", w->language);
    } else if (!strcmp(w->task, "translate")) {
        str_printf(
            out,
            "Translate the user's text into %s. Keep its meaning, its tone and its line breaks. Answer with "
            "the translation alone.",
            w->language);
    } else if (!strcmp(w->task, "proofread")) {
        str_adds(out,
                 "Correct spelling, grammar and punctuation of the user's text, and nothing else: keep its "
                 "words, its language and its line breaks. Answer with the corrected text alone.");
    } else if (!strcmp(w->task, "extract")) {
        str_adds(
            out,
            "Extract information from the user's text as JSON. Take only what the text says. Answer with "
            "the JSON alone.");
        if (w->form) str_printf(out, " It has this JSON Schema:\n%s", w->form);
    } else {
        str_adds(out,
                 "Read the user's text and choose the option that fits best. Answer with its letter alone.");
    }
    if (w->more) str_printf(out, "%s%s", w->form ? "\n" : " ", w->more);
}

bool task_in_pieces(const char *task) {
    return !strcmp(task, "translate") || !strcmp(task, "proofread");
}

/* ---- pieces ---- */

/* Where the paragraph at `at` ends: in front of the line break that an empty line follows. */
static size_t paragraph_end(const char *s, size_t n, size_t at) {
    for (size_t i = at; i < n; i++) {
        if (s[i] != '\n') continue;
        size_t k = i + 1;
        while (k < n && (s[k] == ' ' || s[k] == '\t' || s[k] == '\r')) k++;
        if (k == n || s[k] == '\n') return i;
    }
    return n;
}

static size_t skip_space(const char *s, size_t n, size_t at) {
    while (at < n && strchr(" \t\r\n", s[at])) at++;
    return at;
}

static bool tokens_of(const talk *t, const char *s, size_t n, size_t *tokens, err *e) {
    token_list ids = {0};
    bool ok = tokenizer_encode(talk_lm(t)->text, s, n, TOKENIZER_PLAIN, &ids, e);
    *tokens = ids.n;
    token_list_free(&ids);
    return ok;
}

/* Tokens that a piece may have. */
static bool room_of(talk *t, size_t *room, err *e) {
    size_t bare, context = (size_t)talk_lm(t)->form.context;
    if (!talk_tokens(t, "", 0, &bare, e)) return false;
    *room = context > bare ? (context - bare) / 3 : 0;
    return true;
}

bool task_cut(talk *t, const char *text, size_t n, task_piece **piece, size_t *n_piece, err *e) {
    size_t room, cap = 0, left = 0, tokens, number = 0;
    *piece = NULL;
    *n_piece = 0;
    if (!room_of(t, &room, e)) return false;
    for (size_t at = skip_space(text, n, 0); at < n;) {
        size_t end = paragraph_end(text, n, at);
        number++;
        if (!tokens_of(t, text + at, end - at, &tokens, e)) return false;
        if (tokens > room)
            return err_set(
                e, ERR_LIMIT,
                "paragraph %zu has %zu tokens, and a piece of the text may have %zu in a context of "
                "%" PRId64 ": put an empty line into it, or convert with a longer context",
                number, tokens, room, talk_lm(t)->form.context);
        if (*n_piece && tokens + 2 <= left) {
            (*piece)[*n_piece - 1].end = end;
            left -= tokens + 2;
        } else {
            if (*n_piece == cap) *piece = mem_realloc(*piece, (cap = 2 * cap + 8) * sizeof **piece);
            (*piece)[(*n_piece)++] = (task_piece){at, end};
            left = room - tokens;
        }
        at = skip_space(text, n, end);
    }
    return true;
}

/* ---- options ---- */

void task_question(str *out, const char *text, size_t n, const char *question, const char *const *option,
                   size_t n_option) {
    str_add(out, text, n);
    str_adds(out, n && text[n - 1] == '\n' ? "\n" : "\n\n");
    if (question) str_printf(out, "%s\n", question);
    for (size_t i = 0; i < n_option; i++) str_printf(out, "%c) %s\n", (char)('A' + i), option[i]);
}

static bool letter_ids(const talk *t, int32_t *id, size_t n, err *e) {
    for (size_t i = 0; i < n; i++) {
        const char letter = (char)('A' + i);
        token_list ids = {0};
        bool ok = tokenizer_encode(talk_lm(t)->text, &letter, 1, TOKENIZER_PLAIN, &ids, e);
        if (ok && ids.n != 1)
            ok = err_set(e, ERR_UNSUPPORTED, "the letter %c is %zu tokens of this tokenizer, not one", letter,
                         ids.n);
        id[i] = ok ? ids.ids[0] : -1;
        token_list_free(&ids);
        if (!ok) return false;
    }
    return true;
}

/* The score of an id; -infinity where it is not among the candidates. */
static double score_of(const decoder_row *row, int32_t id) {
    if (!row->id) return (size_t)id < row->n ? (double)row->score[id] : -INFINITY;
    for (size_t i = 0; i < row->n; i++)
        if (row->id[i] == id) return (double)row->score[i];
    return -INFINITY;
}

bool task_decide(talk *t, const char *question, size_t n, size_t n_option, const talk_watch *w, double *p,
                 double *share, err *e) {
    int32_t id[TASK_MAX_OPTIONS];
    decoder_row row;
    if (talk_lm(t)->form.best)
        return err_set(e, ERR_UNSUPPORTED, "the package returns its best token only, no scores to decide by");
    if (!letter_ids(t, id, n_option, e) || !talk_scores(t, question, n, "", w, &row, e)) return false;
    double most = row.score[row.largest], sum = 0, all = 0;
    for (size_t i = 0; i < n_option; i++) sum += p[i] = exp(score_of(&row, id[i]) - most);
    for (size_t i = 0; i < row.n; i++) all += exp((double)row.score[i] - most);
    *share = row.id ? (double)NAN : sum / all;
    for (size_t i = 0; i < n_option; i++) p[i] = sum > 0 ? p[i] / sum : 1 / (double)n_option;
    return sum > 0 || err_set(e, ERR_UNSUPPORTED, "none of the letters is among the package's candidates");
}
