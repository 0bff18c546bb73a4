#include "chat/tasks.h"
#include "cli/constraint.h"
#include "cli/input.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/sampling.h"
#include <math.h>
#include <string.h>

/* A task under way. */
typedef struct {
    const cli_args *a;
    const char *task;
    talk *t;
    str text, result;
    bool as_json, any;                      /* something was printed */
    size_t prompt, reused, written, pieces; /* tokens; pieces done */
} job;

static bool go_on(void *ctx) {
    (void)ctx;
    return !cli_interrupted();
}

static bool take(void *ctx, talk_kind kind, const char *s, size_t n) {
    job *j = ctx;
    if (kind == TALK_REASONING) return true;
    if (j->as_json) {
        str_add(&j->result, s, n);
        return true;
    }
    j->any = true;
    return cli_out(s, n) && cli_flush();
}

static void put(job *j, const char *s, size_t n) {
    if (n) take(j, TALK_ANSWER, s, n);
}

/* ---- usage ---- */

/* Parts "a,b" at the commas; they stay in copy. */
static size_t split(char *copy, const char **option, size_t most) {
    size_t n = 0;
    for (char *s = copy; s; n++) {
        char *comma = strchr(s, ',');
        if (comma) *comma = 0;
        while (*s == ' ') s++;
        if (n < most) option[n] = s;
        s = comma ? comma + 1 : NULL;
    }
    return n;
}

/* --options of decide: enough of them, each with a name of its own. */
static int check_choice(const cli_args *a) {
    const char *option[TASK_MAX_OPTIONS];
    arena *mem = arena_new();
    size_t n = split(arena_str(mem, cli_text(a, "options")), option, TASK_MAX_OPTIONS);
    int code = CLI_OK;
    if (n < 2 || n > TASK_MAX_OPTIONS)
        code = cli_usage(a, "--options: %zu option%s, expected 2 to %d", n, str_plural(n), TASK_MAX_OPTIONS);
    for (size_t i = 0; code == CLI_OK && i < n; i++) {
        if (!*option[i]) code = cli_usage(a, "--options: option %zu is empty", i + 1);
        for (size_t k = 0; code == CLI_OK && k < i; k++)
            if (!strcmp(option[i], option[k]))
                code =
                    cli_usage(a, "--options: options %zu and %zu are both '%.60s'", k + 1, i + 1, option[i]);
    }
    arena_free(mem);
    return code;
}

/* What goes with which task. */
static int check_usage(const cli_args *a, const char *task) {
    static const struct {
        const char *option, *task, *other;
    } only[] = {{"to", "translate", NULL},       {"words", "summarize", NULL},
                {"language", "summarize", NULL}, {"options", "decide", NULL},
                {"question", "decide", NULL},    {"json-schema", "extract", NULL},
                {"json-object", "extract", NULL}};
    static const char *const tasks[] = {"summarize", "translate", "proofread", "extract", "decide"};
    bool known = false;
    for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++) known |= !strcmp(tasks[i], task);
    if (!known)
        return cli_usage(a, "TASK must be summarize, translate, proofread, extract or decide, not '%s'",
                         task);
    for (size_t i = 0; i < sizeof only / sizeof *only; i++)
        if (cli_given(a, only[i].option) && strcmp(task, only[i].task))
            return cli_usage(a, "--%s is for %s", only[i].option, only[i].task);
    if (!strcmp(task, "translate") && !cli_given(a, "to"))
        return cli_usage(a, "translate needs --to LANGUAGE");
    if (!strcmp(task, "decide") && !cli_given(a, "options"))
        return cli_usage(a, "decide needs --options A,B,...");
    if (cli_given(a, "json-schema") && cli_flag(a, "json-object"))
        return cli_usage(a, "give one of --json-object and --json-schema");
    if (cli_given(a, "json-schema") && !strcmp(cli_text(a, "json-schema"), "-"))
        return cli_usage(a, "--json-schema: standard input is the text");
    return strcmp(task, "decide") ? CLI_OK : check_choice(a);
}

static bool read_options(const cli_args *a, const char *task, const lm *m, talk_options *o, err *e) {
    *o = (talk_options){.mode = strcmp(cli_text(a, "precision"), "strict") ? RT_FAST : RT_STRICT,
                        .sampling = m->defaults,
                        .max_new = cli_given(a, "max-new-tokens") ? cli_int(a, "max-new-tokens") : -1,
                        .thinking = strcmp(cli_text(a, "think"), "off") ? CHAT_THINK_ON : CHAT_THINK_OFF,
                        .template_name = cli_text(a, "template"),
                        .budget = PREFIX_BUDGET};
    cli_sampling(a, &o->sampling);
    if (strcmp(task, "extract")) return true;
    if (cli_given(a, "json-schema")) return cli_forms(a, o, e);
    o->form = grammar_json_object(NULL, e); /* whatever JSON, but JSON */
    o->form_behind = o->form ? grammar_json_object(&(grammar_options){.behind = "</think>"}, e) : NULL;
    return o->form_behind != NULL;
}

static bool tell(job *j, err *e) {
    const cli_args *a = j->a;
    str form = {0}, system = {0};
    if (cli_given(a, "json-schema") && !cli_read_text(&form, cli_text(a, "json-schema"), e)) return false;
    const task_words w = {.task = j->task,
                          .words = cli_given(a, "words") ? cli_int(a, "words") : 0,
                          .language = cli_given(a, "to") ? cli_text(a, "to") : cli_text(a, "language"),
                          .more = cli_text(a, "instruct"),
                          .form = form.len ? str_get(&form) : NULL};
    task_system(&system, &w);
    talk_system(j->t, str_get(&system));
    str_free(&system);
    str_free(&form);
    return true;
}

/* ---- texts ---- */

static bool one(job *j, const char *s, size_t n, err *e) {
    const talk_watch w = {take, go_on, j, cli_cancel()};
    talk_turn turn;
    size_t tokens;
    talk_reset(j->t);
    if (!talk_tokens(j->t, s, n, &tokens, e)) return false;
    if (tokens > talk_most(j->t))
        return err_set(
            e, ERR_LIMIT,
            "the text is too long: with the task it has %zu tokens, and of the context's %lld positions "
            "%zu may be used for it; shorten it, or convert with a longer context",
            tokens, (long long)talk_lm(j->t)->form.context, talk_most(j->t));
    if (!talk_ask(j->t, s, n, &w, &turn, e)) return false;
    j->prompt += turn.prompt;
    j->reused += turn.reused;
    j->written += turn.written;
    j->pieces++;
    return turn.end == TALK_END || cli_interrupted() ||
           err_set(e, ERR_LIMIT, "the result is incomplete: %s", talk_end_text(turn.end));
}

/* Piece by piece, with what lies between the pieces as it is. */
static bool all_pieces(job *j, err *e) {
    task_piece *piece;
    size_t n, at = 0;
    const char *s = str_get(&j->text);
    bool ok = task_cut(j->t, s, j->text.len, &piece, &n, e);
    for (size_t i = 0; ok && i < n && !cli_interrupted(); i++) {
        put(j, s + at, piece[i].start - at);
        ok = one(j, s + piece[i].start, piece[i].end - piece[i].start, e);
        at = piece[i].end;
    }
    mem_free(piece);
    return ok;
}

static void print_json(const job *j) {
    str b = {0};
    str_adds(&b, "{\"text\":");
    str_json_string(&b, str_get(&j->result), j->result.len);
    str_printf(&b, ",\"pieces\":%zu,\"prompt_tokens\":%zu,\"reused_tokens\":%zu,\"new_tokens\":%zu}\n",
               j->pieces, j->prompt, j->reused, j->written);
    cli_out(b.s, b.len);
    str_free(&b);
}

static bool write_text(job *j, err *e) {
    bool ok = task_in_pieces(j->task) ? all_pieces(j, e) : one(j, str_get(&j->text), j->text.len, e);
    if (!j->as_json && (ok || j->any)) cli_out("\n", 1);
    if (ok && j->as_json) print_json(j);
    return ok;
}

/* ---- options ---- */

static void print_choice(const job *j, const char *const *option, const double *p, size_t n, double share) {
    size_t best = 0;
    str b = {0};
    for (size_t i = 1; i < n; i++)
        if (p[i] > p[best]) best = i;
    if (!j->as_json) {
        str_printf(&b, "%s\n", option[best]);
    } else {
        str_adds(&b, "{\"choice\":");
        str_json_string(&b, option[best], strlen(option[best]));
        str_printf(&b, ",\"index\":%zu,\"probabilities\":[", best);
        for (size_t i = 0; i < n; i++) {
            if (i) str_addc(&b, ',');
            str_json_double(&b, p[i]);
        }
        str_adds(&b, "],\"share\":");
        str_json_double(&b, share);
        str_adds(&b, "}\n");
    }
    cli_out(b.s, b.len);
    str_free(&b);
}

static bool decide(job *j, err *e) {
    const char *option[TASK_MAX_OPTIONS];
    double p[TASK_MAX_OPTIONS], share;
    const talk_watch w = {.keep_going = go_on, .cancel = cli_cancel()};
    arena *a = arena_new();
    size_t n = split(arena_str(a, cli_text(j->a, "options")), option, TASK_MAX_OPTIONS);
    str question = {0};
    task_question(&question, str_get(&j->text), j->text.len, cli_text(j->a, "question"), option, n);
    bool ok = task_decide(j->t, str_get(&question), question.len, n, &w, p, &share, e);
    if (ok) print_choice(j, option, p, n, share);
    str_free(&question);
    arena_free(a);
    return ok;
}

int cmd_task(const cli_args *a) {
    job j = {.a = a, .task = cli_arg(a, "TASK"), .as_json = cli_flag(a, "json")};
    int usage = check_usage(a, j.task);
    if (usage != CLI_OK) return usage;
    err e = {0};
    talk_options o = {0};
    cli_catch_interrupts();
    lm *m = lm_open_as(cli_arg(a, "PACKAGE"), cli_text(a, "tokenizer"), cli_text(a, "contract"), &e);
    bool ok = m && read_options(a, j.task, m, &o, &e) && (j.t = talk_open(m, &o, &e)) && tell(&j, &e) &&
              cli_read_text(&j.text, cli_text(a, "input"), &e);
    if (ok && strspn(str_get(&j.text), " \t\r\n") == j.text.len)
        ok = err_set(&e, ERR_USAGE, "the text is empty");
    if (ok && chat_note(talk_template(j.t))) cli_error("warning: %s", chat_note(talk_template(j.t)));
    ok = ok && (strcmp(j.task, "decide") ? write_text(&j, &e) : decide(&j, &e));
    talk_close(j.t);
    grammar_free(o.form);
    grammar_free(o.form_behind);
    lm_close(m);
    str_free(&j.text);
    str_free(&j.result);
    if (!ok) return cli_fail(&e);
    return cli_done();
}
