/* Unicode as the tokenizers library sees it: character classes, NFC, UTF-8. The tables are measured on that
 * library (tools/unicode_tables.py), since ids depend on them and its Unicode versions differ between parts.
 */
#ifndef TEXT_UNICODE_H
#define TEXT_UNICODE_H
#include "base/err.h"
#include "base/str.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* General categories, in the order of the table. */
typedef enum {
    UC_CN,
    UC_CC,
    UC_CF,
    UC_CO,
    UC_CS,
    UC_LU,
    UC_LL,
    UC_LT,
    UC_LM,
    UC_LO,
    UC_MN,
    UC_MC,
    UC_ME,
    UC_ND,
    UC_NL,
    UC_NO,
    UC_PC,
    UC_PD,
    UC_PS,
    UC_PE,
    UC_PI,
    UC_PF,
    UC_PO,
    UC_SM,
    UC_SC,
    UC_SK,
    UC_SO,
    UC_ZS,
    UC_ZL,
    UC_ZP
} unicode_category;
#define UC_COUNT (UC_ZP + 1)

/* One byte per code point: the category in the low 5 bits, then three flags. */
#define UC_CATEGORY 0x1Fu
#define UC_SPACE    0x20u /* \s */
#define UC_WORD     0x40u /* \w of the regex engine */
#define UC_NUMERIC  0x80u /* Rust's char::is_numeric: the Digits pre-tokenizer */

#define UC_BIT(category) (1u << (category))
#define UC_IS_L          (UC_BIT(UC_LU) | UC_BIT(UC_LL) | UC_BIT(UC_LT) | UC_BIT(UC_LM) | UC_BIT(UC_LO))
#define UC_IS_M          (UC_BIT(UC_MN) | UC_BIT(UC_MC) | UC_BIT(UC_ME))
#define UC_IS_N          (UC_BIT(UC_ND) | UC_BIT(UC_NL) | UC_BIT(UC_NO))

typedef struct {
    uint32_t a, b, c;
} unicode_triple;

extern const uint16_t unicode_class_index[];
extern const uint8_t unicode_class_block[];
extern const uint16_t unicode_nfc_index[];
extern const uint8_t
    unicode_nfc_block[]; /* 0: text may be cut before it; 1..254: combining class; 255: another starter */
extern const size_t unicode_decompose_count, unicode_compose_count;
extern const unicode_triple unicode_decompose[]; /* code point -> first, second (0: none); sorted */
extern const unicode_triple unicode_compose[];   /* first, second -> code point; sorted */

static inline unsigned unicode_class(uint32_t cp) {
    return unicode_class_block[(size_t)unicode_class_index[cp >> 7] * 128 + (cp & 127)];
}

/* The bit of a code point's category, to be tested against UC_IS_L and the like. */
static inline uint32_t unicode_bit(uint32_t cp) {
    return UC_BIT(unicode_class(cp) & UC_CATEGORY);
}

static inline bool unicode_is_space(uint32_t cp) {
    return unicode_class(cp) & UC_SPACE;
}

/* \w of Rust's regex crate, which guards single_word added tokens. */
bool unicode_is_rust_word(uint32_t cp);

/* Decodes the code point at s, which must be well-formed UTF-8; *len: its bytes. */
static inline uint32_t utf8_decode(const uint8_t *s, size_t *len) {
    if (s[0] < 0x80) return *len = 1, s[0];
    if (s[0] < 0xE0) return *len = 2, (s[0] & 0x1Fu) << 6 | (s[1] & 0x3Fu);
    if (s[0] < 0xF0) return *len = 3, (s[0] & 0x0Fu) << 12 | (s[1] & 0x3Fu) << 6 | (s[2] & 0x3Fu);
    return *len = 4, (s[0] & 7u) << 18 | (s[1] & 0x3Fu) << 12 | (s[2] & 0x3Fu) << 6 | (s[3] & 0x3Fu);
}

/* Start of the code point that ends at s[end); end > 0. */
static inline size_t utf8_before(const uint8_t *s, size_t end) {
    do end--;
    while (end && (s[end] & 0xC0) == 0x80);
    return end;
}

/* Writes cp (not a surrogate) and returns its 1..4 bytes. */
size_t utf8_encode(uint8_t out[4], uint32_t cp);

/* Looks at the first sequence of n > 0 bytes that may be ill-formed. Returns its length: a whole code point
 * (*ok), or the maximal ill-formed subpart, which decoders replace by one U+FFFD. 0: the bytes end inside a
 * sequence that may still become a code point. */
size_t utf8_scan(const uint8_t *s, size_t n, bool *ok);

/* NFC of well-formed UTF-8, appended to out. Linear for any text. False: no memory. */
bool unicode_nfc(str *out, const uint8_t *s, size_t n, err *e);
/* Whether the text is already NFC by a quick look (false may be wrong, true never is). */
bool unicode_is_nfc(const uint8_t *s, size_t n);
#endif
