#include "text/added.h"
#include "base/str.h"
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

/* ---- Index ---- */

typedef struct {
    const char *s;
    size_t n;
    const added_token *token;
} entry;

static int compare(const void *x, const void *y) {
    const entry *a = x, *b = y;
    size_t n = a->n < b->n ? a->n : b->n;
    int c = memcmp(a->s, b->s, n);
    if (c) return c;
    if (a->n != b->n) return a->n < b->n ? -1 : 1;
    return a->token < b->token ? -1 : a->token > b->token; /* equal texts: the first one wins */
}

bool added_index(added_set *set, arena *a, const added_token *tokens, size_t count, bool normalized, bool nfc,
                 err *e) {
    *set = (added_set){0};
    entry *list = ARENA_ARRAY(a, entry, count);
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        if (tokens[i].normalized != normalized) continue;
        entry *x = &list[n++];
        *x = (entry){tokens[i].s, tokens[i].n, &tokens[i]};
        if (!nfc || !normalized) continue;
        str b = {0};
        if (!unicode_nfc(&b, (const uint8_t *)x->s, x->n, e)) return false;
        x->s = arena_strn(a, b.s, b.len);
        x->n = b.len;
        str_free(&b);
    }
    qsort(list, n, sizeof *list, compare);
    set->token = ARENA_ARRAY(a, const added_token *, n);
    set->key = ARENA_ARRAY(a, const char *, n);
    set->key_len = ARENA_ARRAY(a, size_t, n);
    for (size_t i = 0; i < n; i++) {
        if (i && list[i].n == list[i - 1].n && !memcmp(list[i].s, list[i - 1].s, list[i].n)) continue;
        set->token[set->count] = list[i].token;
        set->key[set->count] = list[i].s;
        set->key_len[set->count++] = list[i].n;
        set->first[(uint8_t)list[i].s[0]] = true;
    }
    return true;
}

/* ---- Search ---- */

/* First of the keys [low, high), which agree in their first d bytes (all longer than d), whose byte d is at
 * least c. */
static size_t lower_bound(const added_set *set, size_t low, size_t high, size_t d, unsigned c) {
    while (low < high) {
        size_t mid = (low + high) / 2;
        if ((uint8_t)set->key[mid][d] < c)
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
        if (set->key_len[low] == d + 1) { /* the shortest of the range comes first */
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
