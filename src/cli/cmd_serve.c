#include "cli/input.h"
#include "cli/options.h"
#include "cli/output.h"
#include "generate/artifact.h"
#include "server/server.h"
#include <stdio.h>
#include <string.h>

#define MAX_NAMES 8
#define MAX_RULES 16

static bool go_on(void *ctx) {
    (void)ctx;
    return !cli_interrupted();
}

static bool hurry(void *ctx) {
    (void)ctx;
    return cli_interrupts() > 1;
}

static void tell(void *ctx, const char *address, int port) {
    const served_model *m = ctx;
    cli_printf("%s: listening at http://%s:%d\n", m->name[0], address, port);
    cli_flush();
}

typedef struct {
    const char *name[MAX_NAMES], *host[MAX_RULES], *origin[MAX_RULES];
    served_model m;
    server_options o;
} setup;

static void read_options(setup *s, const cli_args *a) {
    server_options *o = &s->o;
    *o = (server_options){.host = cli_text(a, "host"),
                          .port = (int)cli_int(a, "port"),
                          .connections = (size_t)cli_int(a, "connections"),
                          .body = (size_t)cli_int(a, "max-body"),
                          .header = (size_t)cli_int(a, "max-header"),
                          .receive_limit = cli_real(a, "receive-timeout"),
                          .idle_limit = cli_real(a, "idle-timeout"),
                          .grace = cli_real(a, "grace"),
                          .quiet = cli_flag(a, "quiet"),
                          .listening = tell,
                          .keep_going = go_on,
                          .hurry = hurry,
                          .ctx = &s->m};
    o->queue = (queue_options){.mode = strcmp(cli_text(a, "precision"), "strict") ? RT_FAST : RT_STRICT,
                               .sessions = (size_t)cli_int(a, "sessions"),
                               .waiting = (size_t)cli_int(a, "queue"),
                               .kept = (size_t)cli_int(a, "prefix-cache") << 20,
                               .time_limit = cli_real(a, "time-limit"),
                               .stall_limit = o->idle_limit};
    o->access = (access_rules){.host = s->host, .origin = s->origin};
    o->access.n_host = cli_paths(a, "allow-host", s->host, MAX_RULES);
    o->access.n_origin = cli_paths(a, "cors-origin", s->origin, MAX_RULES);
    s->m = (served_model){.name = s->name};
    s->m.n_name = cli_paths(a, "name", s->name, MAX_NAMES);
}

static int check_usage(const cli_args *a, const setup *s) {
    if (s->m.n_name > MAX_NAMES)
        return cli_usage(a, "--name was given %zu times; %d are enough", s->m.n_name, MAX_NAMES);
    if (s->o.access.n_host > MAX_RULES || s->o.access.n_origin > MAX_RULES)
        return cli_usage(a, "--allow-host and --cors-origin may each be given %d times", MAX_RULES);
    if (s->m.n_name && !strcmp(s->name[0], "*"))
        return cli_usage(a, "give a --name before \"*\": answers tell it");
    return CLI_OK;
}

/* The template of its chats; none that is known is no reason not to serve completions. */
static bool open_chat(setup *s, const cli_args *a, chat_template **chat, err *e) {
    err none = {0};
    const char *name = cli_text(a, "template");
    *chat = chat_open(s->m.m->text_path, name, name ? e : &none);
    if (!*chat && !name) cli_error("%s; /v1/chat/completions is refused", none.msg);
    if (*chat && chat_note(*chat)) cli_error("%s", chat_note(*chat));
    s->m.chat = *chat;
    return *chat || !name;
}

static bool serve(setup *s, const cli_args *a, const lm *m, err *e) {
    if (!m->text)
        return err_set(e, ERR_USAGE, "%s: a server needs a tokenizer: name its directory by --tokenizer",
                       cli_arg(a, "ARTIFACT"));
    arena *keys = arena_new();
    int64_t most = cli_given(a, "max-prompt") ? cli_int(a, "max-prompt") : m->form.context;
    s->m.m = m;
    s->m.max_prompt = most < m->form.context ? most : m->form.context;
    chat_template *chat = NULL;
    grammars *made = grammars_new();
    s->m.grammars = made;
    bool ok = served_defaults(m, &s->m.defaults, e) && open_chat(s, a, &chat, e);
    if (ok && cli_given(a, "api-key-file"))
        ok = access_read_keys(&s->o.access, keys, cli_text(a, "api-key-file"), e);
    ok = ok && server_run(&s->m, &s->o, e);
    grammars_free(made);
    chat_close(chat);
    arena_free(keys);
    return ok;
}

/* The last part of the path that says something. */
static const char *default_name(arena *a, const char *path) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    const char *name = artifact_name(arena_strn(a, path, n));
    return *name && strcmp(name, ".") && strcmp(name, "..") ? name : "model";
}

int cmd_serve(const cli_args *a) {
    setup s;
    read_options(&s, a);
    int usage = check_usage(a, &s);
    if (usage != CLI_OK) return usage;
    err e = {0};
    cli_catch_two_interrupts();
    arena *names = arena_new();
    if (!s.m.n_name) s.name[s.m.n_name++] = default_name(names, cli_arg(a, "ARTIFACT"));
    lm *m = lm_open_as(cli_arg(a, "ARTIFACT"), cli_text(a, "tokenizer"), cli_text(a, "contract"), &e);
    bool ok = m && serve(&s, a, m, &e);
    lm_close(m);
    arena_free(names);
    return ok ? CLI_OK : cli_fail(&e);
}
