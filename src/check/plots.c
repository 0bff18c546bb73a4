#include "check/plots.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

void html_text(str *s, const char *text, size_t n) {
    for (size_t i = 0; i < n;) {
        size_t valid = utf8_valid(text + i, n - i);
        if (!valid) {
            str_adds(s, "\xEF\xBF\xBD");
            i++;
        }
        for (size_t end = i + valid; i < end; i++) {
            char c = text[i];
            if (c == '&')
                str_adds(s, "&amp;");
            else if (c == '<')
                str_adds(s, "&lt;");
            else if (c == '>')
                str_adds(s, "&gt;");
            else if (c == '"')
                str_adds(s, "&quot;");
            else if (c == '\'')
                str_adds(s, "&#39;");
            else if ((unsigned char)c < 0x20 || c == 0x7F)
                str_adds(s, "\xEF\xBF\xBD");
            else
                str_addc(s, c);
        }
    }
}

void html_str(str *s, const char *text) {
    html_text(s, text, strlen(text));
}

void plot_bar(str *s, const char *label, double share, const char *figure, bool warn) {
    double length = fmin(fmax(share, warn ? 0.015 : 0), 1); /* what needs attention is seen */
    str_adds(s, "<div class=\"bar\"><span class=\"label\">");
    html_str(s, label);
    str_printf(s, "</span><span class=\"track\"><span class=\"%s\" style=\"width:%.2f%%\"></span></span>",
               warn ? "fill warn" : "fill", 100 * length);
    str_adds(s, "<span class=\"figure\">");
    html_str(s, figure);
    str_adds(s, "</span></div>\n");
}

/* --- columns --- */

enum { WIDTH = 360, HEIGHT = 150, LEFT = 54, RIGHT = 6, TOP = 8, BOTTOM = 20 };

static double top_of(const plot_data *p) {
    double top = p->top;
    for (size_t i = 0; i < p->n; i++)
        if (isfinite(p->value[i]) && p->value[i] > top) top = p->value[i];
    return top > 0 ? top : 1;
}

static void add_figure(str *s, const plot_data *p, double v) {
    if (p->percent)
        str_printf(s, "%.4g %%", 100 * v);
    else
        str_printf(s, v != 0 && v < 0.01 ? "%.2e" : "%.3g", v);
}

/* Horizontal lines at 0, half and the top, labelled. */
static void add_grid(str *s, const plot_data *p, double top) {
    for (int i = 0; i <= 2; i++) {
        double y = TOP + (HEIGHT - TOP - BOTTOM) * (1 - i / 2.0);
        str_printf(s, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>", LEFT,
                   WIDTH - RIGHT, y, y);
        str_printf(s, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">", LEFT - 4, y + 3.5);
        add_figure(s, p, top * i / 2);
        str_adds(s, "</text>");
    }
}

/* What column i stands for. */
static double x_of(const plot_data *p, size_t i) {
    return p->n > 1 ? (double)p->first + (double)(p->last - p->first) * (double)i / (double)(p->n - 1)
                    : (double)p->first;
}

void plot_columns(str *s, const plot_data *p) {
    double top = top_of(p), step = (double)(WIDTH - LEFT - RIGHT) / (double)(p->n ? p->n : 1);
    double gap = step > 4 ? 1.5 : 0, height = HEIGHT - TOP - BOTTOM;
    str_printf(s, "<svg viewBox=\"0 0 %d %d\" role=\"img\"><title>", WIDTH, HEIGHT);
    html_str(s, p->title);
    str_adds(s, "</title>");
    add_grid(s, p, top);
    for (size_t i = 0; i < p->n; i++) {
        if (isnan(p->value[i])) continue;
        double h = height * (isfinite(p->value[i]) ? p->value[i] / top : 1);
        str_printf(s, "<rect class=\"column\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"><title>",
                   LEFT + step * (double)i, TOP + height - h, step - gap, h);
        html_str(s, p->tip);
        str_printf(s, " %.0f: ", x_of(p, i));
        add_figure(s, p, p->value[i]);
        str_adds(s, "</title></rect>");
    }
    str_printf(s, "<text x=\"%d\" y=\"%d\">", LEFT, HEIGHT - 6);
    html_str(s, p->tip);
    str_printf(s, " %lld</text><text x=\"%d\" y=\"%d\" text-anchor=\"end\">%lld</text></svg>\n", p->first,
               WIDTH - RIGHT, HEIGHT - 6, p->last);
}
