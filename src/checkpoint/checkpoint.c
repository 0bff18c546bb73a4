#include "checkpoint/checkpoint.h"
#include "base/file.h"
#include "base/json.h"
#include "checkpoint/gguf_set.h"
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

struct checkpoint {
    arena *a;
    const char *dir;
    ckpt_config config;
    gguf_set *gguf; /* NULL: safetensors */
    st_file **shard;
    const char **shard_name;
    size_t n_shard;
    const st_tensor **tensor; /* sorted by name */
    size_t n_tensor;
};

/* Opens a shard that is not open yet; the number of shards has room for it. */
static st_file *open_shard(checkpoint *c, const char *name, err *e) {
    for (size_t i = c->n_shard; i-- > 0;)
        if (!strcmp(c->shard_name[i], name)) return c->shard[i];
    st_file *f = st_open(arena_printf(c->a, "%s/%s", c->dir, name), e);
    if (!f) return NULL;
    c->shard_name[c->n_shard] = name;
    c->shard[c->n_shard++] = f;
    return f;
}

static bool plain_name(const json *v) {
    return v->kind == JSON_STRING && v->len && strlen(v->s) == v->len && !strchr(v->s, '/') &&
           strcmp(v->s, "..");
}

/* Takes exactly the tensors that the index lists, each from the shard it names. */
static bool open_index(checkpoint *c, const char *path, err *e) {
    const json *index = json_parse_file(c->a, path, e),
               *list = json_get_kind(index, "weight_map", JSON_OBJECT);
    if (!index) return false;
    if (!list) return err_set(e, ERR_FORMAT, "%s: \"weight_map\" is missing or no object", path);
    c->shard = ARENA_ARRAY(c->a, st_file *, list->len);
    c->shard_name = ARENA_ARRAY(c->a, const char *, list->len);
    c->tensor = ARENA_ARRAY(c->a, const st_tensor *, list->len);
    JSON_EACH(v, list) {
        if (!plain_name(v)) return err_set(e, ERR_FORMAT, "%s: tensor %s: bad shard file name", path, v->key);
        st_file *f = open_shard(c, v->s, e);
        if (!f) return err_where(e, "%s: tensor %s", path, v->key);
        const st_tensor *t = st_find(f, v->key);
        if (!t) return err_set(e, ERR_FORMAT, "%s: tensor %s is not in %s", path, v->key, v->s);
        c->tensor[c->n_tensor++] = t;
    }
    return true;
}

static bool is_safetensors(const char *name) {
    size_t n = strlen(name), k = strlen(".safetensors");
    return n > k && !strcmp(name + n - k, ".safetensors") && name[0] != '.';
}

/* The only *.safetensors file of the directory. */
static const char *only_file(const checkpoint *c, err *e) {
    DIR *d = opendir(c->dir);
    if (!d) {
        err_errno(e, "%s", c->dir);
        return NULL;
    }
    const char *found = NULL;
    bool several = false;
    for (const struct dirent *entry; (entry = readdir(d));) {
        if (!is_safetensors(entry->d_name)) continue;
        several = found != NULL;
        if (several) break;
        found = arena_str(c->a, entry->d_name);
    }
    closedir(d);
    if (several)
        err_set(e, ERR_FORMAT, "%s: several *.safetensors files but no model.safetensors.index.json", c->dir);
    else if (!found)
        err_set(e, ERR_IO, "%s: no model.safetensors", c->dir);
    return several ? NULL : found;
}

static bool open_single(checkpoint *c, err *e) {
    const char *name = "model.safetensors";
    if (!file_exists(arena_printf(c->a, "%s/%s", c->dir, name)) && !(name = only_file(c, e))) return false;
    c->shard = ARENA_NEW(c->a, st_file *);
    c->shard_name = ARENA_NEW(c->a, const char *);
    st_file *f = open_shard(c, name, e);
    if (!f) return false;
    c->tensor = ARENA_ARRAY(c->a, const st_tensor *, st_count(f));
    while (c->n_tensor < st_count(f)) {
        c->tensor[c->n_tensor] = st_at(f, c->n_tensor);
        c->n_tensor++;
    }
    return true;
}

static int by_name(const void *x, const void *y) {
    return strcmp((*(const st_tensor *const *)x)->name, (*(const st_tensor *const *)y)->name);
}

/* "dir/Name-Q8_0-00001-of-00003.gguf" -> "Name-Q8_0" */
static const char *name_of_file(arena *a, const char *path) {
    const char *slash = strrchr(path, '/');
    char *name = arena_str(a, slash ? slash + 1 : path);
    size_t n = strlen(name), end = strlen(".gguf"), part = strlen("-00001-of-00001");
    if (n > end && !strcmp(name + n - end, ".gguf")) name[n -= end] = 0;
    const char *tail = name + n - part;
    if (n > part && !strncmp(tail, "-00001-of-", 10) && strspn(tail + 10, "0123456789") == 5)
        name[n - part] = 0;
    return name;
}

static bool open_gguf(checkpoint *c, const ckpt_family *const *families, err *e) {
    c->gguf = gguf_set_open(c->dir, e);
    if (!c->gguf || !gguf_config(&c->config, c->a, c->gguf, families, e)) return false;
    c->config.name = name_of_file(c->a, c->dir);
    const st_tensor *t = gguf_tensors(c->a, c->gguf, &c->config);
    c->tensor = ARENA_ARRAY(c->a, const st_tensor *, c->gguf->n_tensor);
    for (; c->n_tensor < c->gguf->n_tensor; c->n_tensor++) c->tensor[c->n_tensor] = &t[c->n_tensor];
    return true;
}

static bool has(const checkpoint *c, const char *name) {
    return file_exists(arena_printf(c->a, "%s/%s", c->dir, name));
}

/* Says what else the directory is. */
static bool no_config(const checkpoint *c, err *e) {
    bool converted = has(c, "metadata.json") || has(c, "conversion_manifest.json") ||
                     has(c, "Manifest.json") || has(c, "main.mlirb");
    return err_set(
        e, ERR_IO, "%s: %s; expected a checkpoint directory (config.json, *.safetensors) or a GGUF file",
        c->dir,
        converted ? "is a converted model already, not a checkpoint" : "there is no config.json in it");
}

static bool open_directory(checkpoint *c, const ckpt_family *const *families, err *e) {
    if (!has(c, "config.json")) return no_config(c, e);
    const char *index = arena_printf(c->a, "%s/model.safetensors.index.json", c->dir);
    return config_read(&c->config, c->a, c->dir, families, e) &&
           (file_exists(index) ? open_index(c, index, e) : open_single(c, e));
}

checkpoint *checkpoint_open(const char *dir, const ckpt_family *const *families, err *e) {
    arena *a = arena_new();
    checkpoint *c = ARENA_NEW(a, checkpoint);
    c->a = a;
    c->dir = arena_str(a, dir);
    bool is_dir = file_is_dir(dir), ok = file_exists(dir) || err_set(e, ERR_IO, "%s: no such directory", dir);
    ok = ok && (is_dir ? open_directory : open_gguf)(c, families, e);
    if (!ok) {
        checkpoint_close(c);
        return NULL;
    }
    if (c->n_tensor) qsort(c->tensor, c->n_tensor, sizeof *c->tensor, by_name);
    return c;
}

void checkpoint_close(checkpoint *c) {
    if (!c) return;
    for (size_t i = 0; i < c->n_shard; i++) st_close(c->shard[i]);
    gguf_set_close(c->gguf);
    arena_free(c->a);
}

const char *checkpoint_dir(const checkpoint *c) {
    return c->dir;
}

const ckpt_config *checkpoint_config(const checkpoint *c) {
    return &c->config;
}

bool checkpoint_is_gguf(const checkpoint *c) {
    return c->gguf != NULL;
}

bool checkpoint_tokenizer(const checkpoint *c, str *tokenizer, str *config, err *e) {
    return gguf_tokenizer(tokenizer, config, c->gguf, e);
}

size_t checkpoint_count(const checkpoint *c) {
    return c->n_tensor;
}

const st_tensor *checkpoint_at(const checkpoint *c, size_t i) {
    return c->tensor[i];
}

const st_tensor *checkpoint_find(const checkpoint *c, const char *name) {
    size_t lo = 0, hi = c->n_tensor;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        int order = strcmp(c->tensor[mid]->name, name);
        if (!order) return c->tensor[mid];
        if (order < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}
