#include "text/unicode.h"
#include "base/arena.h"
#include <stdlib.h>
#include <string.h>

bool unicode_is_rust_word(uint32_t cp) {
    switch (cp) {
    case 0xB2:
    case 0xB3:
    case 0xB9:
    case 0xBC:
    case 0xBD:
    case 0xBE: return false;
    case 0x200C:
    case 0x200D: return true;
    default: return unicode_class(cp) & UC_WORD;
    }
}

size_t utf8_encode(uint8_t out[4], uint32_t cp) {
    if (cp < 0x80) return out[0] = (uint8_t)cp, 1;
    size_t n = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; cp >>= 6) out[i] = (uint8_t)(0x80 | (cp & 0x3F));
    out[0] = (uint8_t)(0xF00u >> n | cp);
    return n;
}

size_t utf8_scan(const uint8_t *s, size_t n, bool *ok) {
    uint8_t c = s[0], low = 0x80, high = 0xBF; /* bounds of the second byte */
    *ok = c < 0x80;
    if (c < 0xC2 || c > 0xF4) return 1;
    size_t want = c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    if (c == 0xE0) low = 0xA0;
    if (c == 0xED) high = 0x9F;
    if (c == 0xF0) low = 0x90;
    if (c == 0xF4) high = 0x8F;
    for (size_t i = 1; i < want; i++, low = 0x80, high = 0xBF) {
        if (i == n) return 0;
        if (s[i] < low || s[i] > high) return i;
    }
    *ok = true;
    return want;
}

/* ---- NFC ---- */

#define STARTER 255u /* class 0, but it may change or compose with what is before it */
enum {
    S_BASE = 0xAC00,
    L_BASE = 0x1100,
    V_BASE = 0x1161,
    T_BASE = 0x11A7,
    L_COUNT = 19,
    V_COUNT = 21,
    T_COUNT = 28,
    S_COUNT = L_COUNT * V_COUNT * T_COUNT
};

static unsigned nfc_class(uint32_t cp) {
    return unicode_nfc_block[(size_t)unicode_nfc_index[cp >> 7] * 128 + (cp & 127)];
}

static unsigned combining_class(uint32_t cp) {
    unsigned c = nfc_class(cp);
    return c == STARTER ? 0 : c;
}

/* Code points of one segment: a starter and all that may combine with it. */
typedef struct {
    uint32_t *cp, *tmp;
    size_t n, cap;
} segment;

static bool segment_add(segment *g, uint32_t cp) {
    if (g->n == g->cap) {
        size_t cap = g->cap ? g->cap * 2 : 64;
        uint32_t *p = mem_try_realloc(g->cp, cap * sizeof *p);
        if (p) g->cp = p;
        uint32_t *q = mem_try_realloc(g->tmp, cap * sizeof *q);
        if (q) g->tmp = q;
        if (!p || !q) return false;
        g->cap = cap;
    }
    g->cp[g->n++] = cp;
    return true;
}

static bool decompose(segment *g, uint32_t cp) {
    if (cp - S_BASE < S_COUNT) {
        uint32_t s = cp - S_BASE, t = s % T_COUNT;
        return segment_add(g, L_BASE + s / (V_COUNT * T_COUNT)) &&
               segment_add(g, V_BASE + s / T_COUNT % V_COUNT) && (!t || segment_add(g, T_BASE + t));
    }
    size_t low = 0, high = unicode_decompose_count;
    while (low < high) {
        size_t mid = (low + high) / 2;
        const unicode_triple *t = &unicode_decompose[mid];
        if (t->a == cp) return decompose(g, t->b) && (!t->c || decompose(g, t->c));
        if (t->a < cp)
            low = mid + 1;
        else
            high = mid;
    }
    return segment_add(g, cp);
}

/* The composite of two code points; 0 when there is none. */
static uint32_t compose(uint32_t a, uint32_t b) {
    if (a - L_BASE < L_COUNT && b - V_BASE < V_COUNT)
        return S_BASE + ((a - L_BASE) * V_COUNT + (b - V_BASE)) * T_COUNT;
    if (a - S_BASE < S_COUNT && (a - S_BASE) % T_COUNT == 0 && b - T_BASE - 1 < T_COUNT - 1)
        return a + (b - T_BASE);
    size_t low = 0, high = unicode_compose_count;
    while (low < high) {
        size_t mid = (low + high) / 2;
        const unicode_triple *t = &unicode_compose[mid];
        if (t->a == a && t->b == b) return t->c;
        if (t->a < a || (t->a == a && t->b < b))
            low = mid + 1;
        else
            high = mid;
    }
    return 0;
}

/* Stable sort of cp[from..end) by class. Counting, so that a run of a million marks stays linear. */
static void sort_run(segment *g, size_t from, size_t end) {
    size_t at[256] = {0}, sum = from;
    for (size_t k = from; k < end; k++) at[combining_class(g->cp[k])]++;
    for (unsigned c = 0; c < 256; c++) {
        size_t count = at[c];
        at[c] = sum;
        sum += count;
    }
    for (size_t k = from; k < end; k++) g->tmp[at[combining_class(g->cp[k])]++] = g->cp[k];
    memcpy(g->cp + from, g->tmp + from, (end - from) * sizeof *g->cp);
}

/* Canonical order: each run of non-starters, sorted by class. */
static void reorder(segment *g) {
    for (size_t i = 0, end; i < g->n; i = end) {
        bool sorted = true;
        unsigned last = combining_class(g->cp[i]);
        for (end = i + 1; last && end < g->n; end++) {
            unsigned c = combining_class(g->cp[end]);
            if (!c) break;
            if (c < last) sorted = false;
            last = c;
        }
        if (!sorted) sort_run(g, i, end);
    }
}

/* Canonical composition in place: a character joins the last starter unless something of its class or higher
 * (or an unjoined starter) is between. */
static void recompose(segment *g) {
    size_t out = 0, starter = SIZE_MAX;
    unsigned last = 0; /* class of the last character kept after the starter */
    for (size_t i = 0; i < g->n; i++) {
        uint32_t cp = g->cp[i];
        unsigned c = combining_class(cp);
        bool open = starter != SIZE_MAX && (out == starter + 1 || (last && last < c));
        uint32_t joined = open ? compose(g->cp[starter], cp) : 0;
        if (joined) {
            g->cp[starter] = joined;
            continue;
        }
        if (!c) starter = out;
        last = c;
        g->cp[out++] = cp;
    }
    g->n = out;
}

static void flush(segment *g, str *out) {
    reorder(g);
    recompose(g);
    for (size_t i = 0; i < g->n; i++) {
        uint8_t b[4];
        str_add(out, b, utf8_encode(b, g->cp[i]));
    }
    g->n = 0;
}

/* First byte of the first code point from i on that may change; n when there is none. All below U+0300 are
 * stable. */
static size_t find_unstable(const uint8_t *s, size_t i, size_t n) {
    while (i < n) {
        size_t len;
        if (s[i] < 0xCC) {
            i += s[i] < 0x80 ? 1 : 2;
            continue;
        }
        if (nfc_class(utf8_decode(s + i, &len))) return i;
        i += len;
    }
    return n;
}

bool unicode_is_nfc(const uint8_t *s, size_t n) {
    return find_unstable(s, 0, n) == n;
}

bool unicode_nfc(str *out, const uint8_t *s, size_t n, err *e) {
    segment g = {0};
    bool ok = true;
    for (size_t i = 0, len; i < n && ok;) {
        size_t u = find_unstable(s, i, n), from = u < n && u > i ? utf8_before(s, u) : u;
        str_add(out, s + i, from - i);
        for (i = from; ok && i < n; i += len) { /* the starter before it, and all unstable ones behind */
            uint32_t cp = utf8_decode(s + i, &len);
            if (i >= u && !nfc_class(cp)) break;
            ok = decompose(&g, cp);
        }
        if (ok) flush(&g, out);
    }
    mem_free(g.cp);
    mem_free(g.tmp);
    return ok || err_set(e, ERR_MEMORY, "no memory to normalise %zu bytes of text", n);
}
