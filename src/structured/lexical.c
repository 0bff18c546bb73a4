#include "structured/lexical.h"
#include "text/unicode.h"

/* UTF-8 between lo and hi, of n bytes each. */
static const rx *utf8_range(arena *a, const uint8_t *lo, const uint8_t *hi, size_t n) {
    if (n == 1) return rx_bytes(a, *lo, *hi);
    if (*lo == *hi) return rx_cat(a, rx_bytes(a, *lo, *lo), utf8_range(a, lo + 1, hi + 1, n - 1));
    static const uint8_t least[3] = {0x80, 0x80, 0x80}, most[3] = {0xBF, 0xBF, 0xBF};
    const rx *x = rx_cat(a, rx_bytes(a, *lo, *lo), utf8_range(a, lo + 1, most, n - 1));
    if (*lo + 1 < *hi)
        x = rx_alt(a, x, rx_cat(a, rx_bytes(a, *lo + 1u, *hi - 1u), utf8_range(a, least, most, n - 1)));
    return rx_alt(a, x, rx_cat(a, rx_bytes(a, *hi, *hi), utf8_range(a, least, hi + 1, n - 1)));
}

static const rx *utf8_chars(arena *a, uint32_t lo, uint32_t hi) {
    static const uint32_t cut[][2] = {
        {0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, 0x10FFFF}};
    const rx *x = rx_none(a);
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++) {
        uint32_t from = lo > cut[i][0] ? lo : cut[i][0], to = hi < cut[i][1] ? hi : cut[i][1];
        if (from > to) continue;
        uint8_t first[4], last[4];
        size_t n = utf8_encode(first, from);
        utf8_encode(last, to);
        x = rx_alt(a, x, utf8_range(a, first, last, n));
    }
    return x;
}

static const rx *hex_digit(arena *a, unsigned v) {
    if (v < 10) return rx_bytes(a, '0' + v, '0' + v);
    return rx_alt(a, rx_bytes(a, 'a' + v - 10, 'a' + v - 10), rx_bytes(a, 'A' + v - 10, 'A' + v - 10));
}

/* A character that must be escaped. */
static const rx *escaped(arena *a, uint32_t c) {
    static const char short_form[] = "\bb\ff\nn\rr\tt\"\"\\\\";
    for (const char *p = short_form; *p; p += 2)
        if ((uint32_t)*p == c) return rx_cat(a, rx_text(a, "\\"), rx_literal(a, p + 1, 1));
    return rx_cat(a, rx_text(a, "\\u00"), rx_cat(a, hex_digit(a, c >> 4), hex_digit(a, c & 15)));
}

const rx *lex_chars(arena *a, uint32_t lo, uint32_t hi, writing w) {
    if (w == WRITE_PLAIN) return utf8_chars(a, lo, hi);
    const rx *x = rx_none(a);
    for (uint32_t c = lo; c <= hi && c < 0x20; c++) x = rx_alt(a, x, escaped(a, c));
    uint32_t from = lo > 0x20 ? lo : 0x20;
    static const uint32_t special[] = {'"', '\\', 0x110000};
    for (size_t i = 0; i < 3 && from <= hi; i++) {
        uint32_t c = special[i];
        if (c < from) continue;
        if (from < c) x = rx_alt(a, x, utf8_chars(a, from, hi < c ? hi : c - 1));
        if (c <= hi && c < 0x110000) x = rx_alt(a, x, escaped(a, c));
        from = c + 1;
    }
    return x;
}

static const rx *hex(arena *a, unsigned lo, unsigned hi) {
    const rx *x = rx_none(a);
    for (unsigned v = lo; v <= hi; v++) x = rx_alt(a, x, hex_digit(a, v));
    return x;
}

const rx *lex_any_char(arena *a) {
    const rx *any = hex(a, 0, 15), *two = rx_cat(a, any, any), *three = rx_cat(a, any, two);
    const rx *d = hex_digit(a, 13), *not_d = rx_alt(a, hex(a, 0, 12), hex(a, 14, 15));
    const rx *high = rx_cat(a, d, rx_cat(a, hex(a, 8, 11), two)),
             *low = rx_cat(a, d, rx_cat(a, hex(a, 12, 15), two));
    const rx *u = rx_alt(a, rx_cat(a, not_d, three), rx_cat(a, d, rx_cat(a, hex(a, 0, 7), two)));
    u = rx_alt(a, u, rx_cat(a, high, rx_cat(a, rx_text(a, "\\u"), low)));
    const rx *plain = rx_alt(a, rx_alt(a, utf8_chars(a, 0x20, 0x21), utf8_chars(a, 0x23, 0x5B)),
                             utf8_chars(a, 0x5D, 0x10FFFF));
    const rx *x = rx_cat(a, rx_bytes(a, 'u', 'u'), u);
    for (const char *p = "\"\\/bfnrt"; *p; p++) x = rx_alt(a, x, rx_literal(a, p, 1));
    return rx_alt(a, plain, rx_cat(a, rx_text(a, "\\"), x));
}

const rx *lex_written(arena *a, const char *s, size_t n, writing w) {
    if (!n) return rx_empty(a);
    if (w == WRITE_PLAIN) return rx_literal(a, s, n);
    size_t cut = n / 2, used;
    while (cut && ((uint8_t)s[cut] & 0xC0) == 0x80) cut--;
    if (cut) return rx_cat(a, lex_written(a, s, cut, w), lex_written(a, s + cut, n - cut, w));
    uint32_t c = utf8_decode((const uint8_t *)s, &used);
    const rx *x = lex_chars(a, c, c, w);
    return used < n ? rx_cat(a, x, lex_written(a, s + used, n - used, w)) : x;
}

const rx *lex_integer(arena *a) {
    const rx *digit = rx_bytes(a, '0', '9');
    const rx *x = rx_cat(a, rx_bytes(a, '1', '9'), rx_repeat(a, digit, 0, LEX_DIGITS - 1));
    return rx_cat(a, rx_optional(a, rx_bytes(a, '-', '-')), rx_alt(a, rx_bytes(a, '0', '0'), x));
}

const rx *lex_number(arena *a) {
    const rx *digit = rx_bytes(a, '0', '9');
    const rx *fraction = rx_cat(a, rx_bytes(a, '.', '.'), rx_repeat(a, digit, 1, LEX_DIGITS));
    const rx *sign = rx_optional(a, rx_alt(a, rx_bytes(a, '+', '+'), rx_bytes(a, '-', '-')));
    const rx *e = rx_alt(a, rx_bytes(a, 'e', 'e'), rx_bytes(a, 'E', 'E'));
    const rx *exponent = rx_cat(a, e, rx_cat(a, sign, rx_repeat(a, digit, 1, 2)));
    return rx_cat(a, lex_integer(a), rx_cat(a, rx_optional(a, fraction), rx_optional(a, exponent)));
}
