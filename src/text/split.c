#include "text/split.h"
#include "base/str.h"
#include "text/pattern.h"
#include <string.h>

/* ---- Reading ---- */

static bool add_step(split *p, split_behaviour behaviour, bool invert, pattern *q, err *e) {
    if (p->count == SPLIT_MAX_STEPS) {
        pattern_free(q);
        return err_set(e, ERR_LIMIT, "more than %d pre-tokenizer steps", SPLIT_MAX_STEPS);
    }
    p->steps[p->count++] = (split_step){behaviour, invert, q};
    return true;
}

static bool read_split(split *p, const json *o, err *e) {
    static const char *const behaviours[] = {"Isolated", "Removed", "Contiguous", "MergedWithPrevious",
                                             "MergedWithNext"};
    const json *spec = json_get(o, "pattern");
    const json *regex = json_get_kind(spec, "Regex", JSON_STRING),
               *text = json_get_kind(spec, "String", JSON_STRING);
    const char *behaviour = json_str(o, "behavior", "");
    size_t b = 0, count = sizeof behaviours / sizeof *behaviours;
    while (b < count && strcmp(behaviours[b], behaviour) != 0) b++;
    if (b == count) return err_set(e, ERR_FORMAT, "Split has no known behavior: \"%.40s\"", behaviour);
    if (!regex && (!text || !text->len))
        return err_set(e, ERR_FORMAT, "Split needs a pattern with a Regex or a non-empty String");
    pattern *q = regex ? pattern_regex(regex->s, regex->len, true, e) : pattern_literal(text->s, text->len);
    return q && add_step(p, (split_behaviour)b, json_bool(o, "invert", false), q, e);
}

static bool read_byte_level(split *p, const json *o, err *e) {
    if (json_bool(o, "add_prefix_space", true) && !add_step(p, SPLIT_PREFIX, false, NULL, e)) return false;
    p->byte_level = true;
    if (!json_bool(o, "use_regex", true)) return true;
    pattern *q = pattern_regex(PATTERN_GPT2, strlen(PATTERN_GPT2), true, e);
    return q && add_step(p, SPLIT_ISOLATED, false, q, e);
}

static bool read_any(split *p, const json *o, err *e) {
    if (!o || o->kind == JSON_NULL) return true;
    const char *type = json_str(o, "type", "");
    if (p->byte_level)
        return err_set(e, ERR_UNSUPPORTED, "a pre-tokenizer (\"%.40s\") behind ByteLevel is not supported",
                       type);
    if (!strcmp(type, "Sequence")) {
        JSON_EACH(c, json_get_kind(o, "pretokenizers", JSON_ARRAY)) {
            if (!read_any(p, c, e)) return false;
        }
        return true;
    }
    if (!strcmp(type, "Split")) return read_split(p, o, e);
    if (!strcmp(type, "ByteLevel")) return read_byte_level(p, o, e);
    if (!strcmp(type, "Digits"))
        return add_step(p, json_bool(o, "individual_digits", false) ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS,
                        false, pattern_digit(), e);
    return err_set(e, ERR_UNSUPPORTED,
                   "pre-tokenizer \"%.40s\" is not supported (Sequence, Split, ByteLevel, Digits are)", type);
}

bool split_read(split *p, const json *pre_tokenizer, err *e) {
    *p = (split){0};
    return read_any(p, pre_tokenizer, e) || err_where(e, "pre_tokenizer");
}

void split_free(split *p) {
    for (size_t i = 0; i < p->count; i++) pattern_free(p->steps[i].pattern);
    p->count = 0;
}

/* ---- Splitting ---- */

typedef struct {
    const split *p;
    split_fn *fn;
    void *ctx;
    err *e;
} walk;

static bool from_step(walk *w, size_t k, const uint8_t *s, size_t n);

/* Segments (matches and gaps, in order) become pieces: one is held back until it is known what joins it. */
typedef struct {
    walk *w;
    size_t step;
    const uint8_t *s;
    size_t start, end; /* the piece held back; empty at first */
    bool match, last_match, any;
} joiner;

static bool give(joiner *j) {
    return j->end == j->start || from_step(j->w, j->step + 1, j->s + j->start, j->end - j->start);
}

static bool segment(joiner *j, size_t start, size_t end, bool match) {
    const split_step *step = &j->w->p->steps[j->step];
    if (step->invert) match = !match;
    if (step->behaviour == SPLIT_REMOVED && match) return true;
    bool join = false;
    if (j->any) {
        if (step->behaviour == SPLIT_CONTIGUOUS) join = match == j->last_match;
        if (step->behaviour == SPLIT_PREVIOUS) join = match && !j->last_match;
        if (step->behaviour == SPLIT_NEXT) join = j->match && !match;
    }
    j->last_match = match;
    if (join) {
        j->end = end;
        j->match = false;
        return true;
    }
    if (!give(j)) return false;
    j->start = start;
    j->end = end;
    j->match = match;
    j->any = true;
    return true;
}

static bool cut(walk *w, size_t k, const uint8_t *s, size_t n) {
    joiner j = {.w = w, .step = k, .s = s};
    matcher m;
    matcher_begin(&m, w->p->steps[k].pattern, s, n);
    size_t done = 0, start = 0, end = 0;
    int r;
    bool ok = true;
    while (ok && (r = matcher_next(&m, &start, &end, w->e)) != 0) {
        if (r < 0) ok = false;
        if (ok && start > done) ok = segment(&j, done, start, false);
        if (ok) ok = segment(&j, start, end, true);
        done = end;
    }
    matcher_end(&m);
    if (ok && done < n) ok = segment(&j, done, n, false);
    return ok && give(&j);
}

static bool from_step(walk *w, size_t k, const uint8_t *s, size_t n) {
    if (k == w->p->count) return w->fn(w->ctx, s, n, w->e);
    if (w->p->steps[k].behaviour != SPLIT_PREFIX) return cut(w, k, s, n);
    if (s[0] == ' ') return from_step(w, k + 1, s, n);
    str b = {0};
    str_addc(&b, ' ');
    str_add(&b, s, n);
    bool ok = from_step(w, k + 1, (const uint8_t *)b.s, b.len);
    str_free(&b);
    return ok;
}

bool split_text(const split *p, const uint8_t *s, size_t n, split_fn *fn, void *ctx, err *e) {
    walk w = {p, fn, ctx, e};
    return !n || from_step(&w, 0, s, n);
}
