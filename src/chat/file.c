/* A conversation on disk: the file of generate/prefix.h, whose note is
 *
 *     {"format": "millet conversation", "version": 1, "template": ..., "messages": [{"role", "content",
 *      "reasoning_content"}, ...], "fed": {"text": ..., "more": [ids]}}
 *
 * fed: the text that the ids in the file make, and ids behind them that were not fed. */
#include "chat/parts.h"
#include <string.h>

#define FORMAT  "millet conversation"
#define VERSION 1

static void write_note(const talk *t, str *b) {
    size_t fed = (size_t)decoder_position(t->d);
    str_printf(b, "{\"format\":\"" FORMAT "\",\"version\":%d,\"template\":", VERSION);
    str_json_string(b, chat_name(t->chat), strlen(chat_name(t->chat)));
    str_adds(b, ",\"messages\":");
    talk_write_messages(t, b);
    if (t->fed.n && fed <= t->fed.n && !memcmp(decoder_fed(t->d), t->fed.ids, fed * sizeof *t->fed.ids)) {
        str_adds(b, ",\"fed\":{\"text\":");
        str_json_string(b, str_get(&t->fed_text), t->fed_text.len);
        str_adds(b, ",\"more\":[");
        for (size_t i = fed; i < t->fed.n; i++) str_printf(b, "%s%d", i > fed ? "," : "", (int)t->fed.ids[i]);
        str_adds(b, "]}");
    }
    str_addc(b, '}');
}

bool talk_save(talk *t, const char *path, err *e) {
    str note = {0};
    if (!decoder_intact(t->d)) decoder_restart(t->d);
    write_note(t, &note);
    bool ok = prefix_save(t->prefix, t->d, path, note.s, note.len, e);
    str_free(&note);
    return ok;
}

/* ---- reading ---- */

static bool role_of(const json *m, talk_role *role) {
    const char *name = json_str(m, "role", "");
    *role = !strcmp(name, "system") ? TALK_SYSTEM : !strcmp(name, "user") ? TALK_USER : TALK_ASSISTANT;
    return *role != TALK_ASSISTANT || !strcmp(name, "assistant");
}

static bool check_note(const json *j, const char *path, err *e) {
    const json *messages = json_get_kind(j, "messages", JSON_ARRAY);
    if (!j || strcmp(json_str(j, "format", ""), FORMAT) || !messages)
        return err_set(e, ERR_FORMAT, "%s: no conversation in it", path);
    if (json_int(j, "version", 0) != VERSION)
        return err_set(e, ERR_UNSUPPORTED, "%s: a conversation of version %lld, expected %d", path,
                       (long long)json_int(j, "version", 0), VERSION);
    size_t i = 0;
    JSON_EACH(m, messages) {
        talk_role role;
        if (!role_of(m, &role) || !json_get_kind(m, "content", JSON_STRING) || (role == TALK_SYSTEM && i))
            return err_set(e, ERR_FORMAT, "%s: message %zu is none", path, i);
        i++;
    }
    return true;
}

static void take_messages(talk *t, const json *j) {
    talk_clear(t);
    JSON_EACH(m, json_get(j, "messages")) {
        const json *text = json_get(m, "content"),
                   *thought = json_get_kind(m, "reasoning_content", JSON_STRING);
        talk_role role;
        role_of(m, &role);
        talk_add(t, role, text->s, text->len, thought ? thought->s : NULL, thought ? thought->len : 0);
    }
}

/* Which text belongs to what the decoder has been fed now. */
static void take_fed(talk *t, const json *j) {
    const json *fed = json_get_kind(j, "fed", JSON_OBJECT), *text = json_get_kind(fed, "text", JSON_STRING);
    size_t n = (size_t)decoder_position(t->d);
    err none = {0};
    bool ok = text;
    talk_forget(t);
    for (size_t i = 0; ok && i < n; i++) ok = token_list_add(&t->fed, decoder_fed(t->d)[i], &none);
    JSON_EACH(id, json_get_kind(fed, "more", JSON_ARRAY))
    ok = ok && id->kind == JSON_INT && id->i >= 0 && id->i < t->m->vocab &&
         token_list_add(&t->fed, (int32_t)id->i, &none);
    if (ok) str_add(&t->fed_text, text->s, text->len);
    if (!ok) talk_forget(t);
}

bool talk_load(talk *t, const char *path, bool *reread, err *e) {
    str note = {0}, again = {0};
    arena *a = arena_new();
    err other = {0};
    *reread = false;
    bool ok = prefix_read_note(path, &note, e);
    const json *j = ok ? json_parse(a, path, str_get(&note), note.len, e) : NULL;
    ok = j && check_note(j, path, e);
    if (ok && !prefix_load(t->prefix, t->d, path, &again, &other)) {
        *reread = other.code == ERR_INVALID;
        ok = *reread || err_set(e, other.code, "%s", other.msg);
    }
    if (ok) take_messages(t, j);
    if (ok && !*reread) take_fed(t, j);
    if (ok) t->replies = 0;
    arena_free(a);
    str_free(&note);
    str_free(&again);
    return ok;
}
