/* Pages of HTML that need nothing else: text, and plots as CSS and SVG. */
#ifndef BASE_HTML_H
#define BASE_HTML_H
#include "base/str.h"

/* Text with everything escaped that means something in HTML; ill-formed bytes and control characters come out
 * as U+FFFD. */
void html_text(str *s, const char *text, size_t n);
void html_str(str *s, const char *text);

/* Begins a page, its styles inline: title of the window is prefix and title, the heading title alone. */
void html_begin(str *s, const char *prefix, const char *title);
void html_end(str *s);

/* A list of horizontal bars, each with its label in front and a figure behind. share: length of the bar, 0 to
 * 1. warn: in the colour of what needs attention. */
void plot_bar(str *s, const char *label, double share, const char *figure, bool warn);

/* Columns over 0 .. n - 1, heights from 0 to the largest value (top when that is larger; 0: none). NAN: no
 * column. title: of the plot, for readers that can't see it; tip: what one column is, "layer". The first and
 * last x stand below. */
typedef struct {
    const char *title, *tip;
    const double *value;
    size_t n;
    long long first, last; /* what x stands for at both ends */
    double top;
    bool percent; /* values are shares */
} plot_data;
void plot_columns(str *s, const plot_data *p);

/* Lines through points over x from 0 on, y from 0 to the largest; names stand in a legend. */
typedef struct {
    const char *name;
    const double *x, *y; /* by ascending x; finite */
    size_t n;
    bool guide; /* dashed: what to hold the others against */
} plot_series;
void plot_lines(str *s, const char *title, const char *x_name, const plot_series *series, size_t n);
#endif
