/* Growable byte string. Zero-initialise, free with str_free(). s is NUL-terminated once anything was added.
 */
#ifndef BASE_STR_H
#define BASE_STR_H
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    char *s;
    size_t len, cap;
} str;

void str_free(str *b);
void str_clear(str *b);
void str_add(str *b, const void *data, size_t n);
void str_adds(str *b, const char *s);
void str_addc(str *b, char c);
void str_printf(str *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The text, "" when nothing was added. */
const char *str_get(const str *b);

/* "s" behind the word for n things, "" for one. */
static inline const char *str_plural(uint64_t n) {
    return n == 1 ? "" : "s";
}

/* JSON output. Strings must be UTF-8; ill-formed bytes come out as U+FFFD. Numbers never depend on the
 * locale. */
void str_json_string(str *b, const char *s, size_t n);
void str_json_double(str *b,
                     double v); /* shortest text that reads back the same; NaN and infinities as null */

/* Locale-independent strtod over the whole of s; false when s is not a number. */
bool str_to_double(const char *s, double *v);
bool str_to_int64(const char *s, int64_t *v);
/* Length of the longest prefix of s[0..n) that is well-formed UTF-8. */
size_t utf8_valid(const char *s, size_t n);
#endif
