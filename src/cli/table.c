#include "cli/table.h"
#include "cli/output.h"
#include <math.h>
#include <string.h>

void table_text(table *t, const char *text) {
    t->cell = arena_grow(t->a, t->cell, t->n, &t->cap, t->n + 1, sizeof *t->cell);
    t->cell[t->n++] = text;
}

void table_number(table *t, const char *format, double v) {
    table_text(t, isfinite(v) ? arena_printf(t->a, format, v) : "-");
}

static void print_columns(const table *t) {
    int *width = ARENA_ARRAY(t->a, int, t->columns);
    for (size_t i = 0; i < t->n; i++) {
        int w = (int)strlen(t->cell[i]), *most = &width[i % t->columns];
        if (w > *most) *most = w;
    }
    for (size_t i = 0; i < t->n; i++) {
        size_t k = i % t->columns;
        cli_printf("%*s%s", k ? width[k] : -width[k], t->cell[i], k + 1 < t->columns ? "  " : "\n");
    }
}

static void print_markdown(const table *t) {
    for (size_t i = 0; i < t->n; i++) {
        size_t k = i % t->columns;
        cli_printf("%s%s%s", k ? "" : "| ", t->cell[i], k + 1 < t->columns ? " | " : " |\n");
        if (i + 1 == t->columns) /* below the head */
            for (size_t c = 0; c < t->columns; c++)
                cli_printf("%s%s", c ? "---:|" : "|---|", c + 1 < t->columns ? "" : "\n");
    }
}

void table_print(const table *t, bool markdown) {
    if (markdown)
        print_markdown(t);
    else
        print_columns(t);
}
