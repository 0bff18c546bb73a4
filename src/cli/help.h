/* Everything that is printed from the option table. */
#ifndef CLI_HELP_H
#define CLI_HELP_H
#include "base/str.h"

void help_overview(str *out);             /* millet --help */
void help_command(str *out, int command); /* millet COMMAND --help; index into cli_commands */
void help_man(str *out);                  /* millet --man: the manual page, in man(7) macros */
void help_bash_completion(str *out);      /* millet --bash-completion */
#endif
