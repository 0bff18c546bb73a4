#include "base/html.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char style[] =
    ":root{color-scheme:light dark;--page:#fff;--ink:#1c2026;--soft:#5b6470;--line:#d9dee5;--card:#f5f7fa;"
    "--bar:#2f6fd0;--warn:#c2410c;--good:#15803d;--bad:#b91c1c}\n"
    "@media(prefers-color-scheme:dark){:root{--page:#14171c;--ink:#e6e9ee;--soft:#9aa4b2;--line:#333a44;"
    "--card:#1d2229;--bar:#6ea4f4;--warn:#fb923c;--good:#4ade80;--bad:#f87171}}\n"
    "*{box-sizing:border-box}body{margin:0 auto;padding:16px;max-width:60rem;background:var(--page);"
    "color:var(--ink);font:15px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}\n"
    "h1{font-size:1.35rem;margin:.2rem 0}h2{font-size:1.1rem;margin:1.8rem 0 .4rem}p{margin:.3rem 0}\n"
    ".soft{color:var(--soft);font-size:.9rem}.verdict{border-left:6px solid;padding:.5rem .9rem;margin:1rem "
    "0;"
    "background:var(--card)}.passed{border-color:var(--good)}.failed{border-color:var(--bad)}\n"
    ".verdict strong{font-size:1.2rem}.passed strong{color:var(--good)}.failed strong{color:var(--bad)}\n"
    "ul{margin:.3rem 0;padding-left:1.2rem}"
    ".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:10px}\n"
    ".tile{background:var(--card);padding:.6rem .8rem}.tile b{display:block;font-size:1.3rem;"
    "font-variant-numeric:tabular-nums}\n"
    ".scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.88rem;font-variant-numeric:tabular-"
    "nums}"
    "th,td{padding:.25rem .6rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}"
    "th:first-child,td:first-child{text-align:left}td.text{text-align:left}th{color:var(--soft);font-weight:"
    "600}\n"
    "pre{background:var(--card);padding:.6rem .8rem;font-size:.8rem;white-space:pre-wrap}\n"
    "svg{display:block;width:100%;max-width:36rem}svg text{font-size:10px;fill:var(--soft)}"
    ".grid{stroke:var(--line)}.column{fill:var(--bar)}.lines{fill:none;stroke-width:2}.guide{stroke-"
    "dasharray:"
    "5 4}\n"
    ".series0{stroke:var(--bar);color:var(--bar)}.series1{stroke:var(--warn);color:var(--warn)}"
    ".series2{stroke:var(--good);color:var(--good)}.series3{stroke:var(--soft);color:var(--soft)}\n"
    ".bar{display:grid;grid-template-columns:minmax(7rem,16rem) 1fr 8rem;gap:8px;align-items:center;"
    "font-size:.85rem;margin:2px "
    "0}.track{background:var(--card);height:.85rem}.fill{display:block;height:100%;"
    "background:var(--bar)}.fill.warn{background:var(--warn)}.figure{text-align:right;"
    "font-variant-numeric:tabular-nums;color:var(--soft)}\n"
    "@media(max-width:34rem){.bar{grid-template-columns:1fr 7.5rem}.bar "
    ".label{grid-column:1/-1;margin-top:4px}}\n";

void html_begin(str *s, const char *prefix, const char *title) {
    str_adds(s, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>");
    html_str(s, prefix);
    html_str(s, title);
    str_printf(s, "</title>\n<style>\n%s</style>\n</head>\n<body>\n<h1>", style);
    html_str(s, title);
    str_adds(s, "</h1>\n");
}

void html_end(str *s) {
    str_adds(s, "</body>\n</html>\n");
}

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

/* --- lines --- */

enum { COLOURS = 4, LINES_HEIGHT = 220, LEGEND = 14 };

/* Values in the plot's place. */
typedef struct {
    double x_top, y_top, height;
} scale;

static double x_at(const scale *a, double x) {
    return LEFT + (WIDTH - LEFT - RIGHT) * x / a->x_top;
}

static double y_at(const scale *a, double y) {
    return TOP + a->height * (1 - y / a->y_top);
}

static scale scale_of(const plot_series *series, size_t n) {
    scale a = {0, 0, LINES_HEIGHT - TOP - BOTTOM};
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < series[i].n; k++) {
            a.x_top = fmax(a.x_top, series[i].x[k]);
            a.y_top = fmax(a.y_top, series[i].y[k]);
        }
    if (!(a.x_top > 0)) a.x_top = 1;
    if (!(a.y_top > 0)) a.y_top = 1;
    return a;
}

static void add_axes(str *s, const scale *a, const char *x_name) {
    for (int i = 0; i <= 4; i++) {
        double y = y_at(a, a->y_top * i / 4);
        str_printf(s, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>", LEFT,
                   WIDTH - RIGHT, y, y);
        str_printf(s, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.3g</text>", LEFT - 4, y + 3.5,
                   a->y_top * i / 4);
    }
    str_printf(s, "<text x=\"%d\" y=\"%d\">", LEFT, LINES_HEIGHT - 6);
    html_str(s, x_name);
    str_printf(s, " 0</text><text x=\"%d\" y=\"%d\" text-anchor=\"end\">%.0f</text>", WIDTH - RIGHT,
               LINES_HEIGHT - 6, a->x_top);
}

static void add_series(str *s, const scale *a, const plot_series *p, size_t colour) {
    str_printf(s, "<polyline class=\"lines series%zu%s\" points=\"", colour, p->guide ? " guide" : "");
    for (size_t i = 0; i < p->n; i++) str_printf(s, "%.1f,%.1f ", x_at(a, p->x[i]), y_at(a, p->y[i]));
    str_adds(s, "\"/>");
    for (size_t i = 0; i < p->n; i++) {
        str_printf(
            s, "<circle class=\"series%zu\" fill=\"currentColor\" cx=\"%.1f\" cy=\"%.1f\" r=\"%s\"><title>",
            colour, x_at(a, p->x[i]), y_at(a, p->y[i]), p->guide ? "1" : "2.5");
        html_str(s, p->name);
        str_printf(s, ", %.0f: %.4g</title></circle>", p->x[i], p->y[i]);
    }
}

void plot_lines(str *s, const char *title, const char *x_name, const plot_series *series, size_t n) {
    scale a = scale_of(series, n);
    str_printf(s, "<svg viewBox=\"0 0 %d %zu\" role=\"img\"><title>", WIDTH, LINES_HEIGHT + LEGEND * n);
    html_str(s, title);
    str_adds(s, "</title>");
    add_axes(s, &a, x_name);
    for (size_t i = 0; i < n; i++) {
        double y = LINES_HEIGHT + LEGEND * (double)i + 4;
        add_series(s, &a, &series[i], i % COLOURS);
        str_printf(s, "<line class=\"lines series%zu%s\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>",
                   i % COLOURS, series[i].guide ? " guide" : "", LEFT, LEFT + 24, y, y);
        str_printf(s, "<text x=\"%d\" y=\"%.1f\">", LEFT + 30, y + 3.5);
        html_str(s, series[i].name);
        str_adds(s, "</text>");
    }
    str_adds(s, "</svg>\n");
}
