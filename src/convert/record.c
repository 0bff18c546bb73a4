/* What metadata.json and conversion_manifest.json both state. */
#define _GNU_SOURCE
#include "base/file.h"
#include "convert/job.h"
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

void record_string(str *s, const char *key, const char *value) {
    str_printf(s, "\"%s\":", key);
    if (value)
        str_json_string(s, value, strlen(value));
    else
        str_adds(s, "null");
}

static bool is_commit(const char *s, size_t n) {
    return n == 40 && strspn(s, "0123456789abcdef") >= n;
}

/* The commit that a download tool noted: in the name of a snapshot directory, or beside the files. NULL:
 * none. */
static const char *revision(const job *j) {
    char real[PATH_MAX];
    const char *slash = realpath(j->dir, real) ? strrchr(real, '/') : NULL, *found = NULL;
    if (slash && is_commit(slash + 1, strlen(slash + 1))) found = arena_str(j->a, slash + 1);
    const char *note = arena_printf(j->a, "%s/.cache/huggingface/download/config.json.metadata", j->dir);
    file_map m;
    err none = {0};
    if (found || !file_exists(note) || !file_open_map(&m, note, &none)) return found;
    const uint8_t *end = memchr(m.data, '\n', m.size);
    if (end && is_commit((const char *)m.data, (size_t)(end - m.data)))
        found = arena_strn(j->a, (const char *)m.data, 40);
    file_unmap(&m);
    return found;
}

void record_model(str *s, const job *j) {
    const ckpt_config *c = checkpoint_config(j->c);
    record_string(s, "name", j->model_name);
    str_addc(s, ',');
    record_string(s, "family", c->family->name);
    str_addc(s, ',');
    record_string(s, "model_type", c->model_type);
    str_addc(s, ',');
    record_string(s, "revision", revision(j));
    str_printf(s,
               ",\"vocab_size\":%" PRId64 ",\"hidden_size\":%" PRId64 ",\"layers\":%" PRId64
               ",\"max_position\":%" PRId64,
               c->vocab, c->hidden, c->layers, c->max_position);
}

bool record_tokenizer(str *s, const job *j, err *e) {
    listing l;
    if (!*j->tokenizer_files) {
        str_adds(s, "null");
        return true;
    }
    const char *name = job_tokenizer_name(j);
    if (!listing_make(&l, j->a, stage_path(j->st), name, e)) return false;
    str_printf(s, "{\"path\":\"%s\",\"files\":", name);
    listing_json(s, &l);
    str_addc(s, '}');
    return true;
}

void record_stop_ids(str *s, const job *j) {
    const ckpt_config *c = checkpoint_config(j->c);
    str_addc(s, '[');
    for (size_t i = 0; i < c->n_eos; i++) str_printf(s, "%s%" PRId64, i ? "," : "", c->eos[i]);
    str_addc(s, ']');
}
