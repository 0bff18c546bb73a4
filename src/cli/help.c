#include "cli/help.h"
#include "cli/options.h"
#include <string.h>

#define WIDTH 90 /* of a help line */

static const char about[] = "millet converts language models from Hugging Face checkpoints to Core ML "
                            "packages, and reads, checks and executes "
                            "such packages on Linux.";

/* Adds text, broken at spaces, with lines after the first indented; the first one starts at column at. */
static void wrap(str *out, const char *text, size_t at, size_t indent) {
    size_t column = at;
    while (*text) {
        size_t n = strcspn(text, " ");
        if (column > indent && column + 1 + n > WIDTH) {
            str_printf(out, "\n%*s", (int)indent, "");
            column = indent;
        } else if (column > indent) {
            str_addc(out, ' ');
            column++;
        }
        str_add(out, text, n);
        column += n;
        text += n;
        while (*text == ' ') text++;
    }
    str_addc(out, '\n');
}

/* "  label      help..." */
static void entry(str *out, const char *label, const char *help) {
    enum { INDENT = 28 };
    size_t n = strlen(label);
    str_printf(out, "  %s", label);
    if (n + 4 > INDENT)
        str_printf(out, "\n%*s", INDENT, "");
    else
        str_printf(out, "%*s", (int)(INDENT - n - 2), "");
    wrap(out, help, INDENT, INDENT);
}

/* The option's help, with its fallback behind. */
static void option_help(str *out, const cli_option *o) {
    str_adds(out, o->help);
    if (o->fallback) str_printf(out, " (default: %s)", o->fallback);
}

static void option_entry(str *out, const cli_option *o) {
    str label = {0}, help = {0};
    if (o->letter)
        str_printf(&label, "-%c, ", o->letter);
    else
        str_adds(&label, "    ");
    str_printf(&label, "--%s%s%s", o->name, o->value ? " " : "", o->value ? o->value : "");
    option_help(&help, o);
    entry(out, str_get(&label), str_get(&help));
    str_free(&label);
    str_free(&help);
}

void help_overview(str *out) {
    str_adds(out, "Usage: millet COMMAND [arguments]\n\n");
    wrap(out, about, 0, 0);
    str_adds(out, "\nCommands:\n");
    for (const cli_command *c = cli_commands; c->name; c++) entry(out, c->name, c->brief);
    str_adds(out, "\nmillet COMMAND --help explains a command.\n\nExample:\n");
    str_adds(out, "  millet convert checkpoints/tiny -o out/tiny\n");
    str_adds(out, "  millet run out/tiny --prompt 'Once upon a time'\n");
}

static void each_line(str *out, const char *text, const char *before, const char *after) {
    while (*text) {
        size_t n = strcspn(text, "\n");
        str_printf(out, "%s%.*s%s", before, (int)n, text, after);
        text += n + (text[n] == '\n');
    }
}

static bool has_options(int command) {
    for (const cli_option *o = cli_options; o->name; o++)
        if (o->command == command) return true;
    return false;
}

void help_command(str *out, int command) {
    const cli_command *c = &cli_commands[command];
    str_printf(out, "Usage: millet %s%s%s\n\n", c->name, *c->usage ? " " : "", c->usage);
    wrap(out, c->text, 0, 0);
    const char *title = "\nArguments:\n";
    for (const cli_positional *p = cli_positionals; p->name; p++)
        if (p->command == command) {
            str_adds(out, title);
            title = "";
            entry(out, p->name, p->help);
        }
    if (has_options(command)) str_adds(out, "\nOptions:\n");
    for (const cli_option *o = cli_options; o->name; o++)
        if (o->command == command) option_entry(out, o);
    str_adds(out, strchr(c->examples, '\n') ? "\nExamples:\n" : "\nExample:\n");
    each_line(out, c->examples, "  ", "\n");
}

/* Text for roff: no line may start with a control character, hyphens and backslashes are literal. */
static void roff(str *out, const char *text) {
    for (const char *p = text; *p; p++) switch (*p) {
        case '\\': str_adds(out, "\\e"); break;
        case '-': str_adds(out, "\\-"); break;
        case '\'': str_adds(out, "\\(aq"); break;
        case '.': str_adds(out, p == text ? "\\&." : "."); break;
        default: str_addc(out, *p);
        }
}

static void roff_line(str *out, const char *text) {
    roff(out, text);
    str_addc(out, '\n');
}

static void man_option(str *out, const cli_option *o) {
    str help = {0};
    str_adds(out, ".TP\n");
    if (o->letter) str_printf(out, "\\fB\\-%c\\fR, ", o->letter);
    str_adds(out, "\\fB\\-\\-");
    roff(out, o->name);
    str_adds(out, "\\fR");
    if (o->value) {
        str_adds(out, " \\fI");
        roff(out, o->value);
        str_adds(out, "\\fR");
    }
    str_addc(out, '\n');
    option_help(&help, o);
    roff_line(out, str_get(&help));
    str_free(&help);
}

static void man_command(str *out, int command) {
    const cli_command *c = &cli_commands[command];
    str_printf(out, ".SS millet %s ", c->name);
    roff_line(out, c->usage);
    roff_line(out, c->text);
    for (const cli_positional *p = cli_positionals; p->name; p++)
        if (p->command == command) {
            str_printf(out, ".TP\n\\fI%s\\fR\n", p->name);
            roff_line(out, p->help);
        }
    for (const cli_option *o = cli_options; o->name; o++)
        if (o->command == command) man_option(out, o);
    str_adds(out, ".PP\nExamples:\n.PP\n.EX\n");
    for (const char *e = c->examples; *e;) {
        size_t n = strcspn(e, "\n");
        str line = {0};
        str_add(&line, e, n);
        roff_line(out, str_get(&line));
        str_free(&line);
        e += n + (e[n] == '\n');
    }
    str_adds(out, ".EE\n");
}

void help_man(str *out) {
    str_printf(out, ".TH MILLET 1 \"\" \"millet %s\" \"User Commands\"\n", MILLET_VERSION);
    str_adds(out, ".SH NAME\nmillet \\- convert, inspect and run language models in Core ML packages\n");
    str_adds(out, ".SH SYNOPSIS\n.B millet\n.I COMMAND\n.RI [ arguments ]\n.SH DESCRIPTION\n");
    roff_line(out, about);
    str_adds(out, ".SH COMMANDS\n");
    for (int i = 0; cli_commands[i].name; i++) man_command(out, i);
    str_adds(out, ".SH EXIT STATUS\n"
                  ".TP\n0\nsuccess; also when the reader of standard output goes away\n"
                  ".TP\n1\nfailure: one line on standard error says what and where\n"
                  ".TP\n2\nwrong usage\n"
                  ".TP\n130, 143\ninterrupted (SIGINT, SIGTERM)\n");
}

/* The words of a choice, or what tells bash to complete file names. */
static void completion_value(str *out, const cli_option *o) {
    str_printf(out, "    %s:--%s", cli_commands[o->command].name, o->name);
    if (o->letter) str_printf(out, "|%s:-%c", cli_commands[o->command].name, o->letter);
    str_adds(out, ")");
    if (o->kind == CHOICE) {
        str words = {0};
        for (const char *p = o->value; *p; p++) str_addc(&words, *p == '|' ? ' ' : *p);
        str_printf(out, " COMPREPLY=($(compgen -W '%s' -- \"$word\"));", str_get(&words));
        str_free(&words);
    } else if (o->kind == PATH || o->kind == PATHS) {
        str_adds(out, " compopt -o filenames; COMPREPLY=($(compgen -f -- \"$word\"));");
    }
    str_adds(out, " return;;\n");
}

void help_bash_completion(str *out) {
    str_adds(
        out,
        "# bash completion for millet\n"
        "_millet() {\n"
        "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]}\n"
        "  COMPREPLY=()\n"
        "  if [ \"$COMP_CWORD\" = 1 ]; then COMPREPLY=($(compgen -W '");
    for (const cli_command *c = cli_commands; c->name; c++) str_printf(out, "%s ", c->name);
    str_adds(out, "--help --version' -- \"$word\")); return; fi\n"
                  "  case $command:$before in\n");
    for (const cli_option *o = cli_options; o->name; o++)
        if (o->kind != FLAG) completion_value(out, o);
    str_adds(out, "  esac\n  case $word in -*)\n    case $command in\n");
    for (int i = 0; cli_commands[i].name; i++) {
        str_printf(out, "      %s) COMPREPLY=($(compgen -W '--help", cli_commands[i].name);
        for (const cli_option *o = cli_options; o->name; o++)
            if (o->command == i) str_printf(out, " --%s", o->name);
        str_adds(out, "' -- \"$word\"));;\n");
    }
    str_adds(out, "    esac\n    return;;\n  esac\n"
                  "  compopt -o filenames\n  COMPREPLY=($(compgen -f -- \"$word\"))\n"
                  "}\ncomplete -F _millet millet\n");
}
