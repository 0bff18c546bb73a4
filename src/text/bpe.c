#include "text/bpe.h"
#include "base/map.h"
#include "text/unicode.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define NO_RANK UINT32_MAX
#define SHORT   40u /* symbols up to which a plain scan beats a heap */

typedef struct {
    uint64_t pair; /* left << 32 | right; UINT64_MAX: empty slot */
    uint32_t rank;
    int32_t id;
} merge;

typedef struct {
    const uint8_t *s; /* its bytes; the spelling when odd; NULL: no such token */
    uint32_t n;
    bool odd; /* of a byte-level vocabulary: has characters that stand for no byte, so no text becomes it */
} token;

/* What is known of a token's own bytes: does BPE make them that token again? (A vocabulary may hold tokens
 * that no merge produces.) Found out at the first use; all threads find the same. */
enum { WHOLE_UNKNOWN, WHOLE_YES, WHOLE_NO };

struct bpe {
    bool byte_level, ignore_merges, fuse_unk;
    map *ids; /* bytes -> id, of spellings that stand for bytes */
    map *odd; /* spelling -> id, of the others */
    token *tokens;
    int32_t limit;
    int32_t byte_id[256]; /* byte-level: -1 when a byte has no token */
    int32_t unk;          /* -1: unknown characters vanish, as in the tokenizers library */
    merge *merges;
    size_t mask;
    _Atomic uint8_t *whole;
};

/* ---- Lists ---- */

bool token_list_add(token_list *l, int32_t id, err *e) {
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 64;
        int32_t *p = mem_try_realloc(l->ids, cap * sizeof *p);
        if (!p) return err_set(e, ERR_MEMORY, "no memory for %zu token ids", cap);
        l->ids = p;
        l->cap = cap;
    }
    l->ids[l->n++] = id;
    return true;
}

void token_list_free(token_list *l) {
    mem_free(l->ids);
    *l = (token_list){0};
}

/* ---- Byte characters ---- */

/* Printable bytes stand for themselves, the other 68 in order for U+0100, U+0101, ... */
static bool is_printable(unsigned b) {
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
}

static int byte_of(uint32_t cp) {
    if (cp < 256) return is_printable(cp) ? (int)cp : -1;
    if (cp < 256 + 33) return (int)(cp - 256);                 /* 0..32 */
    if (cp < 256 + 33 + 34) return (int)(cp - 256 - 33 + 127); /* 127..160 */
    return cp == 256 + 33 + 34 ? 173 : -1;
}

size_t byte_level_bytes(uint8_t *out, const char *spelling, size_t n) {
    size_t len, count = 0;
    for (size_t i = 0; i < n; i += len) {
        int b = byte_of(utf8_decode((const uint8_t *)spelling + i, &len));
        if (b < 0) return SIZE_MAX;
        out[count++] = (uint8_t)b;
    }
    return count;
}

/* ---- Reading ---- */

typedef struct {
    arena *a;
    bpe *b;
    uint8_t *buf;   /* room for two spellings */
    size_t longest; /* bytes of a spelling */
    uint32_t last;  /* the result of the last merge */
    err *e;
} reader;

/* In byte-level vocabularies a spelling is looked up by its bytes; buf: room for n bytes. */
static uint32_t find_spelling(const bpe *b, uint8_t *buf, const char *s, size_t n) {
    if (!b->byte_level) return map_get(b->ids, s, n);
    size_t count = byte_level_bytes(buf, s, n);
    return count == SIZE_MAX ? map_get(b->odd, s, n) : map_get(b->ids, (char *)buf, count);
}

static bool read_vocabulary(reader *r, const json *vocab) {
    bpe *b = r->b;
    size_t bytes = 0;
    uint32_t index = 0;
    JSON_EACH(v, vocab) {
        if (v->kind != JSON_INT || v->i < 0 || v->i >= TOKEN_LIMIT)
            return err_set(r->e, ERR_FORMAT, "vocab: entry %u has no id in 0..%d", index, TOKEN_LIMIT - 1);
        if (v->i >= b->limit) b->limit = (int32_t)v->i + 1;
        bytes += v->key_len;
        if (v->key_len > r->longest) r->longest = v->key_len;
        index++;
    }
    b->tokens = ARENA_ARRAY(r->a, token, (size_t)b->limit);
    b->whole = arena_array(r->a, (size_t)b->limit, sizeof *b->whole);
    b->ids = map_new(r->a, vocab->len);
    b->odd = map_new(r->a, 0);
    uint8_t *at = arena_alloc(r->a, bytes + 1);
    r->buf = arena_alloc(r->a, 2 * r->longest + 1);
    JSON_EACH(v, vocab) {
        token *t = &b->tokens[v->i];
        if (t->s) return err_set(r->e, ERR_FORMAT, "vocab: two entries have the id %d", (int)v->i);
        size_t n = b->byte_level ? byte_level_bytes(at, v->key, v->key_len) : v->key_len;
        bool odd = n == SIZE_MAX;
        if (odd || !b->byte_level) memcpy(at, v->key, n = v->key_len);
        *t = (token){at, (uint32_t)n, odd};
        map_add(odd ? b->odd : b->ids, (char *)at, n, (uint32_t)v->i);
        at += n;
    }
    return true;
}

static size_t slot_of(const bpe *b, uint64_t pair) {
    uint64_t h = pair * 0x9E3779B97F4A7C15u;
    return (size_t)(h ^ h >> 32) & b->mask;
}

/* The merge of two neighbours; NULL when there is none. */
static const merge *find_merge(const bpe *b, int32_t left, int32_t right) {
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    for (size_t i = slot_of(b, pair);; i = (i + 1) & b->mask) {
        if (b->merges[i].pair == pair) return &b->merges[i];
        if (b->merges[i].pair == UINT64_MAX) return NULL;
    }
}

static void add_merge(bpe *b, uint32_t left, uint32_t right, uint32_t rank, uint32_t id) {
    uint64_t pair = (uint64_t)left << 32 | right;
    size_t i = slot_of(b, pair);
    while (b->merges[i].pair != pair && b->merges[i].pair != UINT64_MAX) i = (i + 1) & b->mask;
    b->merges[i] =
        (merge){pair, rank, (int32_t)id}; /* a pair that occurs twice has its last rank, as in the library */
}

/* "a b" or ["a", "b"]. */
static bool merge_parts(const json *m, const char *s[2], size_t n[2]) {
    if (m->kind == JSON_ARRAY) {
        const json *a = m->child, *c = a ? a->next : NULL;
        if (m->len != 2 || a->kind != JSON_STRING || c->kind != JSON_STRING) return false;
        s[0] = a->s, n[0] = a->len, s[1] = c->s, n[1] = c->len;
        return true;
    }
    const char *space = m->kind == JSON_STRING ? memchr(m->s, ' ', m->len) : NULL;
    if (!space) return false;
    s[0] = m->s, n[0] = (size_t)(space - m->s);
    s[1] = space + 1, n[1] = m->len - n[0] - 1;
    return !memchr(s[1], ' ', n[1]);
}

/* The token that two parts become. Most vocabularies number these in the order of the merges: the guess saves
 * a search in a cold table. */
static uint32_t find_result(const reader *r, const uint8_t *s, size_t n, bool odd) {
    const bpe *b = r->b;
    uint32_t guess = r->last + 1;
    if (!odd && guess < (uint32_t)b->limit) {
        const token *t = &b->tokens[guess];
        if (t->s && !t->odd && t->n == n && !memcmp(t->s, s, n)) return guess;
    }
    return map_get(odd ? b->odd : b->ids, (const char *)s, n);
}

static bool read_merge(reader *r, const json *m, uint32_t rank) {
    bpe *b = r->b;
    const char *s[2];
    size_t n[2];
    uint32_t id[3];
    if (!merge_parts(m, s, n))
        return err_set(r->e, ERR_FORMAT, "merges: entry %u is neither \"a b\" nor [\"a\", \"b\"]", rank);
    for (int k = 0; k < 2; k++) {
        id[k] = n[k] <= r->longest ? find_spelling(b, r->buf, s[k], n[k]) : MAP_NONE;
        if (id[k] == MAP_NONE)
            return err_set(r->e, ERR_FORMAT, "merges: a part of entry %u is not in the vocabulary", rank);
    }
    const token *x = &b->tokens[id[0]], *y = &b->tokens[id[1]];
    bool odd = x->odd || y->odd;
    if (!odd) s[0] = (const char *)x->s, n[0] = x->n, s[1] = (const char *)y->s, n[1] = y->n;
    memcpy(r->buf, s[0], n[0]);
    memcpy(r->buf + n[0], s[1], n[1]);
    id[2] = r->last = find_result(r, r->buf, n[0] + n[1], odd);
    if (id[2] == MAP_NONE)
        return err_set(r->e, ERR_FORMAT, "merges: the result of entry %u is not in the vocabulary", rank);
    add_merge(b, id[0], id[1], rank, id[2]);
    return true;
}

static bool read_merges(reader *r, const json *merges) {
    bpe *b = r->b;
    size_t cap = 16;
    while (cap < (size_t)merges->len * 2) cap *= 2;
    b->mask = cap - 1;
    b->merges = ARENA_ARRAY(r->a, merge, cap);
    for (size_t i = 0; i < cap; i++) b->merges[i].pair = UINT64_MAX;
    uint32_t rank = 0;
    JSON_EACH(m, merges) {
        if (m->kind == JSON_STRING && m->len >= 8 && !memcmp(m->s, "#version", 8)) continue;
        if (!read_merge(r, m, rank++)) return false;
    }
    return true;
}

/* The tokens that a piece begins with, and what becomes of characters that have none. */
static bool read_symbols(reader *r, const json *model) {
    bpe *b = r->b;
    bool complete = b->byte_level;
    for (int c = 0; c < 256 && b->byte_level; c++) {
        char byte = (char)c;
        uint32_t id = map_get(b->ids, &byte, 1);
        b->byte_id[c] = id == MAP_NONE ? -1 : (int32_t)id;
        if (id == MAP_NONE) complete = false;
    }
    b->unk = -1;
    if (complete) return true;
    if (json_bool(model, "byte_fallback", false))
        return err_set(r->e, ERR_UNSUPPORTED, "byte_fallback is not supported");
    const json *unk = json_get_kind(model, "unk_token", JSON_STRING);
    if (!unk) return true;
    uint8_t *buf = arena_alloc(r->a, unk->len + 1);
    uint32_t id = find_spelling(b, buf, unk->s, unk->len);
    if (id == MAP_NONE) return err_set(r->e, ERR_FORMAT, "unk_token is not in the vocabulary");
    b->unk = (int32_t)id;
    return true;
}

static bool check_options(const json *model, err *e) {
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    const char *type = json_str(model, "type", "BPE");
    if (strcmp(type, "BPE") != 0)
        return err_set(e, ERR_UNSUPPORTED, "type \"%.40s\" is not supported (BPE is)", type);
    if (json_double(model, "dropout", 0) != 0) return err_set(e, ERR_UNSUPPORTED, "dropout is not supported");
    for (size_t i = 0; i < 2; i++)
        if (*json_str(model, affixes[i], ""))
            return err_set(e, ERR_UNSUPPORTED, "%s is not supported", affixes[i]);
    return true;
}

static bool read_model(reader *r, const json *model) {
    const json *vocab = json_get_kind(model, "vocab", JSON_OBJECT);
    const json *merges = json_get_kind(model, "merges", JSON_ARRAY);
    if (!check_options(model, r->e)) return false;
    if (!vocab || !merges)
        return err_set(r->e, ERR_FORMAT, "expected an object \"vocab\" and an array \"merges\"");
    r->b->ignore_merges = json_bool(model, "ignore_merges", false);
    r->b->fuse_unk = json_bool(model, "fuse_unk", false);
    return read_vocabulary(r, vocab) && read_merges(r, merges) && read_symbols(r, model);
}

bpe *bpe_read(arena *a, const json *model, bool byte_level, err *e) {
    reader r = {.a = a, .b = ARENA_NEW(a, bpe), .e = e};
    r.b->byte_level = byte_level;
    if (read_model(&r, model)) return r.b;
    err_where(e, "model");
    return NULL;
}

void bpe_decode_as_bytes(arena *a, bpe *b) {
    for (int32_t i = 0; i < b->limit && !b->byte_level; i++) {
        token *t = &b->tokens[i];
        if (!t->s) continue;
        uint8_t *bytes = arena_alloc(a, t->n);
        size_t n = byte_level_bytes(bytes, (const char *)t->s, t->n);
        if (n != SIZE_MAX) *t = (token){bytes, (uint32_t)n, t->odd};
    }
}

int32_t bpe_find(const bpe *b, const char *spelling, size_t n) {
    uint8_t small[256], *buf = n <= sizeof small ? small : mem_alloc(n);
    uint32_t id = find_spelling(b, buf, spelling, n);
    if (buf != small) mem_free(buf);
    return id == MAP_NONE ? -1 : (int32_t)id;
}

const uint8_t *bpe_bytes(const bpe *b, int32_t id, size_t *n) {
    if (id < 0 || id >= b->limit || !b->tokens[id].s) return NULL;
    *n = b->tokens[id].n;
    return b->tokens[id].s;
}

int32_t bpe_limit(const bpe *b) {
    return b->limit;
}

/* ---- Encoding ---- */

/* A piece as a list of symbols. rank and merged tell of the pair that begins here. */
typedef struct {
    int32_t id; /* -1: merged into the symbol before it */
    uint32_t prev, next;
    uint32_t rank;  /* NO_RANK: the pair doesn't merge */
    int32_t merged; /* what it becomes */
} symbol;

#define NO_SYMBOL UINT32_MAX

struct bpe_scratch {
    symbol *symbols;
    size_t cap;
    uint64_t *heap; /* rank << 32 | position: the lowest rank first, among equals the leftmost */
    size_t heap_n, heap_cap;
};

bpe_scratch *bpe_scratch_new(void) {
    bpe_scratch *s = mem_alloc(sizeof *s);
    *s = (bpe_scratch){0};
    return s;
}

void bpe_scratch_free(bpe_scratch *s) {
    if (!s) return;
    mem_free(s->symbols);
    mem_free(s->heap);
    mem_free(s);
}

/* The symbols that the piece begins with; returns how many (never more than bytes). */
static size_t first_symbols(const bpe *b, const uint8_t *piece, size_t n, symbol *out) {
    size_t count = 0, len = 1;
    bool after_unk = false;
    for (size_t i = 0; i < n; i += len) {
        int32_t id;
        if (b->byte_level) {
            id = b->byte_id[piece[i]];
        } else {
            utf8_decode(piece + i, &len);
            id = (int32_t)map_get(b->ids, (const char *)piece + i, len); /* MAP_NONE becomes -1 */
        }
        bool unk = id < 0;
        if (unk && (b->unk < 0 || (after_unk && b->fuse_unk))) continue;
        out[count++].id = unk ? b->unk : id;
        after_unk = unk;
    }
    return count;
}

static void look_up_pair(const bpe *b, symbol *left, const symbol *right) {
    const merge *m = find_merge(b, left->id, right->id);
    left->rank = m ? m->rank : NO_RANK;
    if (m) left->merged = m->id;
}

/* A short piece: scans for the lowest rank and closes the gap; returns the number of symbols left. */
static size_t merge_short(const bpe *b, symbol *s, size_t n) {
    for (size_t i = 0; i + 1 < n; i++) look_up_pair(b, &s[i], &s[i + 1]);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (s[i].rank < s[best].rank) best = i;
        if (s[best].rank == NO_RANK) break;
        s[best].id = s[best].merged;
        memmove(s + best + 1, s + best + 2, (n - best - 2) * sizeof *s);
        n--;
        if (best + 1 < n) look_up_pair(b, &s[best], &s[best + 1]);
        if (best) look_up_pair(b, &s[best - 1], &s[best]);
    }
    return n;
}

static bool push(bpe_scratch *h, uint32_t rank, size_t position, err *e) {
    if (rank == NO_RANK) return true;
    if (h->heap_n == h->heap_cap) {
        size_t cap = h->heap_cap ? h->heap_cap * 2 : 256;
        uint64_t *p = mem_try_realloc(h->heap, cap * sizeof *p);
        if (!p) return err_set(e, ERR_MEMORY, "no memory to encode a long piece of text");
        h->heap = p;
        h->heap_cap = cap;
    }
    uint64_t key = (uint64_t)rank << 32 | position;
    size_t i = h->heap_n++;
    for (; i && h->heap[(i - 1) / 2] > key; i = (i - 1) / 2) h->heap[i] = h->heap[(i - 1) / 2];
    h->heap[i] = key;
    return true;
}

static uint64_t pop(bpe_scratch *h) {
    uint64_t *a = h->heap, top = a[0], key = a[--h->heap_n];
    size_t n = h->heap_n, i = 0;
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && a[child + 1] < a[child]) child++;
        if (a[child] >= key) break;
        a[i] = a[child];
    }
    a[i] = key;
    return top;
}

/* A long piece: a heap over a linked list, n log n. Stale heap entries are known by their rank. */
static bool merge_long(const bpe *b, bpe_scratch *h, size_t n, err *e) {
    symbol *s = h->symbols;
    h->heap_n = 0;
    for (size_t i = 0; i < n; i++) {
        s[i].prev = i ? (uint32_t)i - 1 : NO_SYMBOL;
        s[i].next = i + 1 < n ? (uint32_t)i + 1 : NO_SYMBOL;
        s[i].rank = NO_RANK;
        if (i + 1 < n) look_up_pair(b, &s[i], &s[i + 1]);
        if (!push(h, s[i].rank, i, e)) return false;
    }
    while (h->heap_n) {
        uint64_t key = pop(h);
        uint32_t i = (uint32_t)key;
        if (s[i].id < 0 || s[i].rank != key >> 32) continue;
        uint32_t gone = s[i].next, next = s[gone].next, prev = s[i].prev;
        s[i].id = s[i].merged;
        s[i].rank = NO_RANK;
        s[i].next = next;
        s[gone].id = -1;
        if (next != NO_SYMBOL) {
            s[next].prev = i;
            look_up_pair(b, &s[i], &s[next]);
        }
        if (prev != NO_SYMBOL) look_up_pair(b, &s[prev], &s[i]);
        if (!push(h, s[i].rank, i, e) || (prev != NO_SYMBOL && !push(h, s[prev].rank, prev, e))) return false;
    }
    return true;
}

static bool encode_long(const bpe *b, const uint8_t *piece, size_t n, bpe_scratch *h, token_list *out,
                        err *e) {
    if (n >= UINT32_MAX / 2) return err_set(e, ERR_LIMIT, "a piece of %zu bytes of text is too long", n);
    if (h->cap < n) {
        mem_free(h->symbols);
        h->cap = 0;
        h->symbols = mem_try(n, sizeof *h->symbols);
        if (!h->symbols) return err_set(e, ERR_MEMORY, "no memory to encode a piece of %zu bytes of text", n);
        h->cap = n;
    }
    size_t count = first_symbols(b, piece, n, h->symbols);
    if (!merge_long(b, h, count, e)) return false;
    for (size_t i = 0; i < count; i++)
        if (h->symbols[i].id >= 0 && !token_list_add(out, h->symbols[i].id, e)) return false;
    return true;
}

static bool encode_short(const bpe *b, const uint8_t *piece, size_t n, token_list *out, err *e) {
    symbol s[SHORT];
    size_t count = merge_short(b, s, first_symbols(b, piece, n, s));
    for (size_t i = 0; i < count; i++)
        if (!token_list_add(out, s[i].id, e)) return false;
    return true;
}

bool bpe_encode(const bpe *b, const uint8_t *piece, size_t n, bpe_scratch *scratch, token_list *out, err *e) {
    uint32_t id = map_get(b->ids, (const char *)piece, n);
    unsigned char whole = WHOLE_NO;
    if (id != MAP_NONE) {
        whole = b->ignore_merges ? WHOLE_YES : atomic_load_explicit(&b->whole[id], memory_order_relaxed);
        if (whole == WHOLE_YES) return token_list_add(out, (int32_t)id, e);
    }
    size_t before = out->n;
    bool ok = n <= SHORT ? encode_short(b, piece, n, out, e) : encode_long(b, piece, n, scratch, out, e);
    if (ok && id != MAP_NONE && whole == WHOLE_UNKNOWN) {
        bool yes = out->n == before + 1 && out->ids[before] == (int32_t)id;
        atomic_store_explicit(&b->whole[id], yes ? WHOLE_YES : WHOLE_NO, memory_order_relaxed);
    }
    return ok;
}
