#include "text/reply_call.h"
#include <string.h>

#define NAME_LIMIT  256 /* bytes of the name of a tool or parameter */
#define SPACE_LIMIT 256 /* white space between two tags that close a value */

enum { XML_BEGIN, XML_NAME, XML_BODY, XML_KEY, XML_VALUE };

static const char FUNCTION[] = "<function=", END_FUNCTION[] = "</function>",
                  PARAMETER[] = "<parameter=", END_PARAMETER[] = "</parameter>";

/* How far text goes with tag: its whole length, or where it ends or differs. */
static size_t common(const char *text, size_t n, const char *tag) {
    size_t i = 0;
    while (i < n && tag[i] && text[i] == tag[i]) i++;
    return i;
}

/* text is the beginning of tag, or all of it. */
static bool begins(const char *text, size_t n, const char *tag) {
    return common(text, n, tag) == n;
}

static bool is(const str *text, const char *tag) {
    return text->len == strlen(tag) && !memcmp(text->s, tag, text->len);
}

/* One more byte of a tag that must come, white space in front of it passed over. 1: it is whole (the first or
 * the second, by *which); 0: not yet; -1: something else came. */
static int tag_byte(call_xml *x, unsigned char c, const char *first, const char *second, int *which) {
    if (!x->held.len && is_json_space(c)) return 0;
    str_addc(&x->held, (char)c);
    const char *tags[] = {first, second};
    bool possible = false;
    for (int i = 0; i < 2; i++) {
        if (!tags[i]) continue;
        if (is(&x->held, tags[i])) {
            str_clear(&x->held);
            *which = i;
            return 1;
        }
        possible |= begins(x->held.s, x->held.len, tags[i]);
    }
    return possible ? 0 : -1;
}

/* One more byte of a name, which '>' ends. As tag_byte(). */
static int name_byte(str *name, unsigned char c) {
    if (c == '>') return name->len ? 1 : -1;
    if (c == '<' || c < 32 || name->len == NAME_LIMIT) return -1;
    str_addc(name, (char)c);
    return 0;
}

static void comma(call_xml *x, call_found *f) {
    str_adds(&f->arguments, x->count ? ", " : "{");
}

static call_state end_function(call_xml *x, call_found *f) {
    str_adds(&f->arguments, x->count ? "}" : "{}");
    return CALL_DONE;
}

static bool streams(const call_xml *x) {
    return x->types == TYPE_STRING;
}

/* The key is complete. False: it occurs a second time. */
static bool begin_value(call_xml *x, const json *tools, call_found *f) {
    if (!x->a) x->a = arena_new();
    for (size_t i = 0; i < x->count; i++)
        if (is(&x->key, x->keys[i])) return false;
    x->types = tool_parameter_types(tools, &f->name, &x->key);
    comma(x, f);
    str_json_string(&f->arguments, x->key.s, x->key.len);
    str_adds(&f->arguments, ": ");
    if (streams(x)) str_addc(&f->arguments, '"');
    x->keys = arena_grow(x->a, x->keys, x->count, &x->cap, x->count + 1, sizeof *x->keys);
    x->keys[x->count++] = arena_strn(x->a, x->key.s, x->key.len);
    str_clear(&x->key);
    x->begun = false;
    x->state = XML_VALUE;
    return true;
}

static void value_byte(call_xml *x, unsigned char c, call_found *f) {
    static const json_scan inside = {.state = SCAN_STRING};
    if (!x->begun) {
        x->begun = true;
        if (c == '\n') return; /* the one behind the tag */
    }
    if (!streams(x)) {
        str_addc(&x->value, (char)c);
        return;
    }
    if (c == '"' || c == '\\') str_addc(&f->arguments, '\\');
    scan_copy(&f->arguments, &inside, c);
}

static void end_value(call_xml *x, call_found *f) {
    if (streams(x))
        str_addc(&f->arguments, '"');
    else
        typed_value(&f->arguments, str_get(&x->value), x->value.len, x->types);
    str_clear(&x->value);
}

/* What the held bytes are: 1 the end of the value and the tag that comes then (*which: PARAMETER or
 * END_FUNCTION), 0 perhaps the beginning of that, -1 part of the value. A closing tag counts only where one
 * of the two follows, so that values may speak of such tags. */
static int closing(const str *held, int *which) {
    const char *s = held->s;
    size_t n = held->len;
    if (n && *s == '\n') s++, n--;
    size_t tag = common(s, n, END_PARAMETER);
    if (tag == n) return 0;
    if (END_PARAMETER[tag]) return -1;
    s += tag;
    n -= tag;
    size_t space = 0;
    while (space < n && is_json_space((unsigned char)s[space])) space++;
    if (space > SPACE_LIMIT) return -1;
    s += space;
    n -= space;
    const char *tags[] = {PARAMETER, END_FUNCTION};
    for (int i = 0; i < 2; i++) {
        if (n == strlen(tags[i]) && begins(s, n, tags[i])) return *which = i, 1;
        if (begins(s, n, tags[i])) return 0;
    }
    return -1;
}

static call_state in_value(call_xml *x, unsigned char c, call_found *f) {
    int which, what;
    str_addc(&x->held, (char)c);
    /* A newline right behind the tag that opened the value is no value, but may be the one in front of the
     * tag that closes it. */
    while ((what = closing(&x->held, &which)) < 0) {
        value_byte(x, (unsigned char)x->held.s[0], f);
        memmove(x->held.s, x->held.s + 1, --x->held.len);
    }
    if (!what) return CALL_MORE;
    str_clear(&x->held);
    end_value(x, f);
    if (which) return end_function(x, f);
    x->state = XML_KEY;
    return CALL_MORE;
}

call_state call_xml_byte(call_xml *x, unsigned char c, const json *tools, call_found *f) {
    int which = 0, what = -1;
    switch (x->state) {
    case XML_BEGIN:
        what = tag_byte(x, c, FUNCTION, NULL, &which);
        if (what > 0) x->state = XML_NAME;
        break;
    case XML_NAME:
        what = name_byte(&f->name, c);
        f->named = what > 0;
        if (what > 0) x->state = XML_BODY;
        break;
    case XML_BODY:
        what = tag_byte(x, c, PARAMETER, END_FUNCTION, &which);
        if (what > 0 && which) return end_function(x, f);
        if (what > 0) x->state = XML_KEY;
        break;
    case XML_KEY:
        what = name_byte(&x->key, c);
        if (what > 0 && !begin_value(x, tools, f)) what = -1;
        break;
    default: return in_value(x, c, f);
    }
    if (what >= 0) return CALL_MORE;
    f->unread = x->held.len ? x->held.len : 1;
    return CALL_BAD;
}

void call_xml_free(call_xml *x) {
    str_free(&x->held);
    str_free(&x->key);
    str_free(&x->value);
    arena_free(x->a);
}
