/* HTML text and plots of the report: bars in CSS, columns in SVG, all inline. For this module only. */
#ifndef CHECK_PLOTS_H
#define CHECK_PLOTS_H
#include "base/str.h"

/* Text with everything escaped that means something in HTML; ill-formed bytes and control characters come out
 * as U+FFFD. */
void html_text(str *s, const char *text, size_t n);
void html_str(str *s, const char *text);

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
#endif
