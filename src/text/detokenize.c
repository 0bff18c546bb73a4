#include "text/detokenize.h"
#include "text/unicode.h"
#include <string.h>

#define REPLACEMENT "\xEF\xBF\xBD"

void detokenizer_begin(detokenizer *d, const tokenizer *t, bool skip_special) {
    *d = (detokenizer){.t = t, .skip_special = skip_special};
}

/* Half of a surrogate at the end: never a character, yet Python's incremental decoder waits for its third
 * byte, and so do those who compare pieces. */
static bool is_half_surrogate(const uint8_t *s, size_t n) {
    return n == 2 && s[0] == 0xED && s[1] >= 0xA0 && s[1] <= 0xBF;
}

/* Appends all of s that is certain; returns how many bytes it took. */
static size_t emit(str *out, const uint8_t *s, size_t n) {
    size_t i = 0, len;
    for (bool ok; i < n && !is_half_surrogate(s + i, n - i) && (len = utf8_scan(s + i, n - i, &ok));
         i += len) {
        if (ok)
            str_add(out, s + i, len);
        else
            str_adds(out, REPLACEMENT);
    }
    return i;
}

void detokenizer_push(detokenizer *d, int32_t id, str *out) {
    size_t n;
    const uint8_t *s = tokenizer_bytes(d->t, id, &n);
    if (!s || (d->skip_special && tokenizer_is_special(d->t, id))) return;
    while (d->tail_n && n) { /* byte by byte until the held-back character is decided */
        d->tail[d->tail_n++] = *s++;
        n--;
        size_t taken = emit(out, d->tail, d->tail_n);
        d->tail_n -= taken;
        memmove(d->tail, d->tail + taken, d->tail_n);
    }
    size_t taken = emit(out, s, n);
    if (taken < n) {
        memcpy(d->tail, s + taken, n - taken);
        d->tail_n = n - taken;
    }
}

void detokenizer_flush(detokenizer *d, str *out) {
    /* a beginning of a character is one maximal part; half of a surrogate is two */
    if (d->tail_n) str_adds(out, REPLACEMENT);
    if (is_half_surrogate(d->tail, d->tail_n)) str_adds(out, REPLACEMENT);
    d->tail_n = 0;
}
