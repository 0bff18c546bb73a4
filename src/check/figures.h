/* Figures that all forms of the report show, and the verdict. For this module only. */
#ifndef CHECK_FIGURES_H
#define CHECK_FIGURES_H
#include "check/report.h"

/* Fills in min_agreement, why and failures. min_agreement < 0: by the bits of the weights. */
void check_judge(check_report *r, double min_agreement);

double figure_percent(size_t part, size_t of); /* 100 of nothing */
double figure_perplexity(double nll, size_t n);
double figure_share(size_t part, size_t of);   /* 0 of nothing */
double figure_bits(const check_structure *s);  /* per stored weight; 0: nothing is known */
double figure_head_room(const check_range *r); /* CHECK_FP16_MAX / largest */
/* The values with the least head-room, each once although functions and casts repeat it; returns how many. */
size_t figure_closest(const check_ranges *r, const check_range **out, size_t most);
/* Calls fn for each line of s. */
void figure_lines(const str *s, void (*fn)(void *ctx, const char *line, size_t n), void *ctx);
/* The text of a token; empty without a tokenizer. Free it. */
str figure_token(const lm *m, int32_t id);

/* One row of the table that shows artifacts side by side. */
typedef struct {
    const char *label, *key;           /* for people; in JSON */
    double (*of)(const check_side *s); /* NAN: not measured */
    const char *unit;                  /* "%": of a share; "MB"; "" */
    int digits;                        /* behind the point; -1: as an exponent */
} figure_row;
enum { FIGURES = 13, FIGURE_TEXT = 32 };
extern const figure_row figure_rows[FIGURES];
/* "99.21 %", "-". */
void figure_print(char out[FIGURE_TEXT], const figure_row *row, const check_side *s);
/* What is compared: "phone: tiny-TopK64-W8.mlpackage", the package where the path leaves it open. Free it. */
str figure_subject(const check_side *s);
/* Name for a column of the table: the package or directory without what all of them begin or end with. Free
 * it. */
str figure_column(const check_report *r, size_t side);
/* The reference as a side: perplexity and repetition only. */
check_side figure_reference(const check_report *r);
#endif
