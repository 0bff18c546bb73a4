/* Files that several commands take: text, token ids. The path "-" is standard input. */
#ifndef CLI_INPUT_H
#define CLI_INPUT_H
#include "base/err.h"
#include "base/str.h"

/* How messages call the file: "standard input" for "-". */
const char *cli_input_name(const char *path);
/* A whole file, which must be UTF-8; str_free() it. On failure *out is empty and owns nothing. */
bool cli_read_text(str *out, const char *path, err *e);
/* The next line of standard input, its newline included. False: there is none, or an error. */
bool cli_read_line(str *line, err *e);
/* A JSON array of token ids, or ids separated by white space. *ids: mem_free() it. */
bool cli_read_ids(const char *path, int32_t **ids, size_t *n, err *e);
#endif
