/* Tables on standard output: columns side by side, or Markdown. */
#ifndef CLI_TABLE_H
#define CLI_TABLE_H
#include "base/arena.h"
#include <stdbool.h>

/* Cells row by row; the first row heads. Zero-initialise but for a and columns. */
typedef struct {
    arena *a;
    size_t columns;
    const char **cell;
    size_t n, cap;
} table;

void table_text(table *t, const char *text); /* kept as it is */
/* "-" for what is no finite number. */
void table_number(table *t, const char *format, double v) __attribute__((format(printf, 2, 0)));
/* The first column to the left, the others to the right. */
void table_print(const table *t, bool markdown);
#endif
