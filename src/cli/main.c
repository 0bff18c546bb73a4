#include "base/heap.h"
#include "cli/engine.h"
#include "cli/help.h"
#include "cli/options.h"
#include "cli/output.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cmd_version(const cli_args *a) {
    (void)a;
    cli_printf("millet %s\n", MILLET_VERSION);
    return CLI_OK;
}

static int print(void (*make)(str *)) {
    str text = {0};
    make(&text);
    cli_out(text.s, text.len);
    str_free(&text);
    return CLI_OK;
}

static int print_help(const char *name) {
    int command = cli_command_find(name);
    if (command < 0) {
        cli_error("unknown command %s; see millet --help", name);
        return CLI_USAGE;
    }
    str text = {0};
    help_command(&text, command);
    cli_out(text.s, text.len);
    str_free(&text);
    return CLI_OK;
}

static int run_command(int command, int argc, char **argv) {
    cli_args *a = cli_parse(command, argc, argv);
    if (!a) return CLI_USAGE;
    int code = CLI_OK;
    if (cli_wants_help(a))
        code = print_help(cli_commands[command].name);
    else if ((code = cli_engine(a)) == CLI_OK)
        code = cli_commands[command].main(a);
    cli_args_free(a);
    return code;
}

static int dispatch(int argc, char **argv) {
    if (argc < 2) {
        cli_error("no command; see millet --help");
        return CLI_USAGE;
    }
    const char *word = argv[1];
    if (!strcmp(word, "--help") || !strcmp(word, "-h") || !strcmp(word, "help"))
        return argc > 2 ? print_help(argv[2]) : print(help_overview);
    if (!strcmp(word, "--version")) return cmd_version(NULL);
    if (!strcmp(word, "--man")) return print(help_man);
    if (!strcmp(word, "--bash-completion")) return print(help_bash_completion);
    int command = cli_command_find(word);
    if (command < 0) {
        cli_error("unknown %s %s; see millet --help", word[0] == '-' ? "option" : "command", word);
        return CLI_USAGE;
    }
    return run_command(command, argc - 2, argv + 2);
}

/* The words of the command line, and what comes of them. */
typedef struct {
    int argc;
    char **argv;
    int code;
} invocation;

static void invoke(void *ctx) {
    invocation *i = ctx;
    i->code = dispatch(i->argc, i->argv);
}

/* MILLET_DUMP's stages. */
static void print_dump(void *ctx, unsigned level, const char *text) {
    (void)ctx;
    if (level == HEAP_LOG_DUMP) fputs(text, stderr);
}

int main(int argc, char **argv) {
    invocation i = {argc, argv, CLI_FAILED};
    const heap_hooks hooks = {.log = print_dump};
    heap *h = getenv("MILLET_DUMP") ? heap_new(NULL, &hooks) : NULL;
    size_t wanted;
    cli_begin();
    if (!mem_guard(h, invoke, &i, &wanted)) cli_error("out of memory (%zu bytes asked for)", wanted);
    heap_drop(h);
    return cli_end(i.code);
}
