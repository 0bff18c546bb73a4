#include "text/reply_call.h"
#include <string.h>

/* ---- JSON, byte by byte ---- */

bool is_json_space(unsigned char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static bool is_digit(unsigned char c) {
    return c >= '0' && c <= '9';
}

static bool is_hex(unsigned char c) {
    return is_digit(c) || ((c | 32) >= 'a' && (c | 32) <= 'f');
}

bool scan_in_number(const json_scan *s) {
    return s->state >= SCAN_MINUS;
}

static bool number_may_end(const json_scan *s) {
    return s->state == SCAN_ZERO || s->state == SCAN_INTEGER || s->state == SCAN_FRACTION ||
           s->state == SCAN_EXPONENT;
}

static bool begin_container(json_scan *s, unsigned char c) {
    if (s->depth == SCAN_DEPTH) return false;
    s->open[s->depth++] = (char)c;
    s->state = c == '{' ? SCAN_FIRST_KEY : SCAN_FIRST;
    return true;
}

static bool end_container(json_scan *s, unsigned char c) {
    if (!s->depth || s->open[s->depth - 1] != (c == '}' ? '{' : '[')) return false;
    s->depth--;
    s->state = SCAN_NEXT;
    return true;
}

static bool begin_string(json_scan *s, unsigned char resume) {
    s->state = SCAN_STRING;
    s->resume = resume;
    return true;
}

static bool begin_value(json_scan *s, unsigned char c) {
    if (c == '{' || c == '[') return begin_container(s, c);
    if (c == '"') return begin_string(s, SCAN_NEXT);
    s->literal = c == 't' ? "rue" : c == 'f' ? "alse" : c == 'n' ? "ull" : NULL;
    if (s->literal)
        s->state = SCAN_LITERAL;
    else if (c == '-' || is_digit(c))
        s->state = c == '-' ? SCAN_MINUS : c == '0' ? SCAN_ZERO : SCAN_INTEGER;
    else
        return false;
    return true;
}

static bool in_string(json_scan *s, unsigned char c) {
    if (s->state == SCAN_HEX) {
        if (!is_hex(c)) return false;
        if (!--s->left) s->state = SCAN_STRING;
    } else if (s->state == SCAN_ESCAPE) {
        if (!c || !strchr("\"\\/bfnrtu", c)) return false;
        s->state = c == 'u' ? SCAN_HEX : SCAN_STRING;
        s->left = 4;
    } else if (c == '\\') {
        s->state = SCAN_ESCAPE;
    } else if (c == '"') {
        s->state = s->resume;
    }
    return true;
}

/* The state after one more byte of a number; -1: it isn't part of it. */
static int number_byte(unsigned char state, unsigned char c) {
    bool digit = is_digit(c);
    switch (state) {
    case SCAN_MINUS: return !digit ? -1 : c == '0' ? SCAN_ZERO : SCAN_INTEGER;
    case SCAN_POINT: return digit ? SCAN_FRACTION : -1;
    case SCAN_SIGN: return digit ? SCAN_EXPONENT : -1;
    case SCAN_E: return digit ? SCAN_EXPONENT : c == '+' || c == '-' ? SCAN_SIGN : -1;
    case SCAN_EXPONENT: return digit ? SCAN_EXPONENT : -1;
    default:
        if (digit && state != SCAN_ZERO) return state;
        if (c == '.' && state != SCAN_FRACTION) return SCAN_POINT;
        return c == 'e' || c == 'E' ? SCAN_E : -1;
    }
}

/* Between values. */
static bool in_structure(json_scan *s, unsigned char c) {
    if (is_json_space(c)) return true;
    bool object = s->depth && s->open[s->depth - 1] == '{';
    switch (s->state) {
    case SCAN_VALUE: return begin_value(s, c);
    case SCAN_FIRST: return c == ']' ? end_container(s, c) : begin_value(s, c);
    case SCAN_FIRST_KEY:
        if (c == '}') return end_container(s, c);
        return c == '"' && begin_string(s, SCAN_COLON);
    case SCAN_KEY: return c == '"' && begin_string(s, SCAN_COLON);
    case SCAN_COLON: s->state = SCAN_VALUE; return c == ':';
    default:
        if (c == ',' && s->depth) {
            s->state = object ? SCAN_KEY : SCAN_VALUE;
            return true;
        }
        return (c == '}' || c == ']') && end_container(s, c);
    }
}

bool scan_byte(json_scan *s, unsigned char c) {
    if (s->state >= SCAN_STRING && s->state <= SCAN_HEX) return in_string(s, c);
    if (s->state == SCAN_LITERAL) {
        if (c != (unsigned char)*s->literal) return false;
        if (!*++s->literal) s->state = SCAN_NEXT;
        return true;
    }
    if (scan_in_number(s)) {
        int next = number_byte(s->state, c);
        if (next >= 0) {
            s->state = (unsigned char)next;
            return true;
        }
        if (!number_may_end(s)) return false;
        s->state = SCAN_NEXT;
    }
    return in_structure(s, c);
}

void scan_copy(str *out, const json_scan *before, unsigned char c) {
    if (c >= 32 || before->state != SCAN_STRING)
        str_addc(out, (char)c);
    else if (c == '\n' || c == '\t' || c == '\r')
        str_adds(out, c == '\n' ? "\\n" : c == '\t' ? "\\t" : "\\r");
    else
        str_printf(out, "\\u%04x", c);
}

/* ---- {"name": ..., "arguments": {...}} ---- */

enum { MEMBER_OTHER, MEMBER_NAME, MEMBER_ARGUMENTS };

/* The text of a JSON string; false when it isn't one. */
static bool string_value(const str *literal, str *out) {
    arena *a = arena_new();
    err e = {0};
    const json *v = json_parse(a, "", str_get(literal), literal->len, &e);
    bool ok = v && v->kind == JSON_STRING;
    str_clear(out);
    if (ok) str_add(out, v->s, v->len);
    arena_free(a);
    return ok;
}

/* Appends text if it is that of an object. */
static bool copy_object(str *out, const str *text) {
    json_scan s = {.state = SCAN_VALUE};
    size_t i = 0, start = out->len;
    while (i < text->len && is_json_space((unsigned char)text->s[i])) i++;
    bool ok = i < text->len && text->s[i] == '{';
    for (; ok && i < text->len; i++) {
        json_scan before = s;
        ok = scan_byte(&s, (unsigned char)text->s[i]);
        scan_copy(out, &before, (unsigned char)text->s[i]);
    }
    if (ok && s.state == SCAN_NEXT && !s.depth) return true;
    out->len = start;
    return false;
}

static bool choose_member(call_json *j) {
    str key = {0};
    bool ok = string_value(&j->key, &key);
    bool name = ok && !strcmp(str_get(&key), "name"), arguments = ok && !strcmp(str_get(&key), "arguments");
    j->member = name ? MEMBER_NAME : arguments ? MEMBER_ARGUMENTS : MEMBER_OTHER;
    str_free(&key);
    str_clear(&j->key);
    return ok && !(name && j->has_name) && !(arguments && j->has_arguments);
}

/* Arguments that are no object: one written in a string, or null. */
static bool other_arguments(call_json *j, call_found *f) {
    str text = {0};
    bool ok = !strcmp(str_get(&j->value), "null");
    if (ok)
        str_adds(&f->arguments, "{}");
    else
        ok = string_value(&j->value, &text) && copy_object(&f->arguments, &text);
    str_free(&text);
    return ok;
}

static bool end_value(call_json *j, call_found *f) {
    bool ok = true;
    if (j->member == MEMBER_NAME) {
        ok = string_value(&j->value, &f->name) && f->name.len;
        j->has_name = f->named = ok;
    } else if (j->member == MEMBER_ARGUMENTS) {
        j->has_arguments = true;
        if (!j->streaming) ok = other_arguments(j, f);
    }
    str_clear(&j->value);
    j->in_value = false;
    return ok;
}

/* One byte of the object's members, which the scanner took already. */
static bool member_byte(call_json *j, const json_scan *before, unsigned char c, call_found *f) {
    if (before->depth == 1 && before->state == SCAN_VALUE && !is_json_space(c)) {
        j->in_value = true;
        if (!choose_member(j)) return false;
        j->streaming = j->member == MEMBER_ARGUMENTS && c == '{';
    }
    if (!j->in_value) {
        bool key = j->scan.resume == SCAN_COLON && j->scan.depth == 1;
        bool string = before->state >= SCAN_STRING && before->state <= SCAN_HEX;
        if (key && (string || j->scan.state == SCAN_STRING)) scan_copy(&j->key, before, c);
        return true;
    }
    bool over = before->depth == 1 && scan_in_number(before) && !scan_in_number(&j->scan);
    if (!over) scan_copy(j->streaming ? &f->arguments : &j->value, before, c);
    if (over || (j->scan.state == SCAN_NEXT && j->scan.depth == 1)) return end_value(j, f);
    return true;
}

call_state call_json_byte(call_json *j, unsigned char c, call_found *f) {
    json_scan before = j->scan;
    f->unread = 1;
    if (!before.depth && !is_json_space(c) && c != '{') return CALL_BAD;
    if (!scan_byte(&j->scan, c)) return CALL_BAD;
    if (!before.depth) return CALL_MORE;
    if (!member_byte(j, &before, c, f)) return CALL_BAD;
    if (j->scan.depth) return CALL_MORE;
    if (!j->has_name) return CALL_BAD;
    if (!j->has_arguments) str_adds(&f->arguments, "{}");
    return CALL_DONE;
}

void call_json_free(call_json *j) {
    str_free(&j->key);
    str_free(&j->value);
}
