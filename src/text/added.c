#include "text/added.h"
#include "base/str.h"
#include "text/bpe.h"
#include "text/unicode.h"
#include <stdlib.h>
#include <string.h>

bool added_read(added_token *t, const json *entry, err *e) {
    const json *content = json_get_kind(entry, "content", JSON_STRING);
    if (!content || !content->len) return err_set(e, ERR_FORMAT, "an added token has no content");
    t->s = content->s;
    t->n = content->len;
    t->special = json_bool(entry, "special", false);
    t->lstrip = json_bool(entry, "lstrip", false);
    t->rstrip = json_bool(entry, "rstrip", false);
    t->single_word = json_bool(entry, "single_word", false);
    t->normalized = json_bool(entry, "normalized", !t->special);
    return true;
}

bool added_finish(added_token *t, arena *a, bool nfc, err *e) {
    t->key = t->s;
    t->key_len = t->n;
    if (t->normalized && nfc) {
        str b = {0};
        if (!unicode_nfc(&b, (const uint8_t *)t->s, t->n, e)) return false;
        t->key = arena_strn(a, b.s, b.len);
        t->key_len = b.len;
        str_free(&b);
    }
    /* as the ByteLevel decoder of the tokenizers library sees it: byte characters are bytes if there are no
     * others */
    uint8_t *bytes = arena_alloc(a, t->key_len);
    t->byte_count = byte_level_bytes(bytes, t->key, t->key_len);
    if (t->byte_count == SIZE_MAX) memcpy(bytes, t->key, t->byte_count = t->key_len);
    t->bytes = bytes;
    return true;
}

/* ---- Index ---- */

static bool same_key(const added_token *a, const added_token *b) {
    return a->key_len == b->key_len && !memcmp(a->key, b->key, a->key_len);
}

static int compare(const void *x, const void *y) {
    const added_token *a = *(const added_token *const *)x, *b = *(const added_token *const *)y;
    int c = memcmp(a->key, b->key, a->key_len < b->key_len ? a->key_len : b->key_len);
    if (c) return c;
    if (a->key_len != b->key_len) return a->key_len < b->key_len ? -1 : 1;
    return a < b ? -1 : a > b; /* of equal keys, the first token wins */
}

void added_index(added_set *set, arena *a, const added_token *tokens, size_t count, bool normalized) {
    *set = (added_set){.token = ARENA_ARRAY(a, const added_token *, count)};
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        if (tokens[i].normalized == normalized) set->token[n++] = &tokens[i];
    if (n) qsort(set->token, n, sizeof *set->token, compare);
    for (size_t i = 0; i < n; i++) {
        if (i && same_key(set->token[i], set->token[i - 1])) continue;
        set->token[set->count++] = set->token[i];
        set->first[(uint8_t)set->token[i]->key[0]] = true;
    }
}

/* ---- Search ---- */

/* First of the keys [low, high), which agree in their first d bytes (all longer than d), whose byte d is at
 * least c. */
static size_t lower_bound(const added_set *set, size_t low, size_t high, size_t d, unsigned c) {
    while (low < high) {
        size_t mid = (low + high) / 2;
        if ((uint8_t)set->token[mid]->key[d] < c)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* The longest key that s[0..n) begins with. */
static const added_token *longest_at(const added_set *set, const uint8_t *s, size_t n, size_t *len) {
    const added_token *found = NULL;
    size_t low = 0, high = set->count;
    for (size_t d = 0; d < n; d++) {
        high = lower_bound(set, low, high, d, s[d] + 1u);
        low = lower_bound(set, low, high, d, s[d]);
        if (low == high) break;
        if (set->token[low]->key_len == d + 1) { /* the shortest of the range comes first */
            found = set->token[low++];
            *len = d + 1;
        }
    }
    return found;
}

static bool touches_word(const uint8_t *s, size_t n, size_t start, size_t end) {
    size_t len;
    return (start && unicode_is_rust_word(utf8_decode(s + utf8_before(s, start), &len))) ||
           (end < n && unicode_is_rust_word(utf8_decode(s + end, &len)));
}

const added_token *added_next(const added_set *set, const uint8_t *s, size_t n, size_t from, size_t *resume,
                              size_t *start, size_t *end) {
    if (!set->count) return NULL;
    size_t len, step;
    for (size_t i = *resume; i < n; i += step) {
        step = 1;
        if (!set->first[s[i]]) continue;
        const added_token *t = longest_at(set, s + i, n - i, &len);
        if (!t) continue;
        step = len; /* a match that is not taken hides others inside it */
        if (t->single_word && touches_word(s, n, i, i + len)) continue;
        *start = i;
        *resume = *end = i + len;
        while (t->lstrip && *start > from) {
            size_t before = utf8_before(s, *start), k;
            if (!unicode_is_space(utf8_decode(s + before, &k))) break;
            *start = before;
        }
        if (*start < from) *start = from;
        while (t->rstrip && *end < n) {
            size_t k;
            if (!unicode_is_space(utf8_decode(s + *end, &k))) break;
            *end += k;
        }
        return t;
    }
    return NULL;
}
