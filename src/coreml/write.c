/* Models, descriptions, the manifest; the order in which a package's files are written. */
#include "coreml/write.h"
#include "base/file.h"
#include "base/map.h"
#include "base/num.h"
#include "base/str.h"
#include "coreml/schema.h"
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define DATA_DIR "Data/com.apple.CoreML"

static void put_text(wire_out *o, uint32_t field, const char *s) {
    if (s && *s) wire_string(o, field, s, strlen(s));
}

static void put_sizes(wire_out *o, uint32_t field, const int64_t *dim, int rank) {
    if (!rank) return;
    size_t packed = wire_begin(o);
    for (int i = rank; i-- > 0;) wire_put_varint(o, (uint64_t)dim[i]);
    wire_end(o, field, packed);
}

static void put_default(wire_out *o, const coreml_feature *f) {
    ir_dtype d = f->default_dtype ? f->default_dtype : f->type.dtype;
    if (d == DT_INT32 || d == DT_INT8) {
        wire_int(o, ARRAY_DEFAULT_INT, (int64_t)f->default_value);
    } else if (d == DT_FP64) {
        wire_put_bytes(o, &f->default_value, sizeof f->default_value);
        wire_put_tag(o, ARRAY_DEFAULT_DOUBLE, WIRE_FIXED64);
    } else {
        float v = (float)f->default_value;
        wire_put_bytes(o, &v, sizeof v);
        wire_put_tag(o, ARRAY_DEFAULT_FLOAT, WIRE_FIXED32);
    }
}

static void put_flexibility(wire_out *o, const coreml_feature *f) {
    size_t whole = wire_begin(o);
    if (f->range) {
        for (int i = f->type.rank; i-- > 0;) {
            size_t range = wire_begin(o);
            if (f->range[i].upper) wire_int(o, 2, f->range[i].upper);
            if (f->range[i].lower) wire_int(o, 1, f->range[i].lower);
            wire_end(o, 1, range);
        }
        wire_end(o, ARRAY_RANGE, whole);
    } else if (f->n_shapes) {
        for (size_t i = f->n_shapes; i-- > 0;) {
            size_t shape = wire_begin(o);
            put_sizes(o, 1, f->shapes[i], f->type.rank);
            wire_end(o, 1, shape);
        }
        wire_end(o, ARRAY_ENUMERATED, whole);
    }
}

/* The feature's ArrayFeatureType. */
static void put_array(wire_out *o, uint32_t field, const coreml_feature *f) {
    size_t whole = wire_begin(o);
    if (f->has_default) put_default(o, f);
    put_flexibility(o, f);
    wire_int(o, ARRAY_DTYPE, schema_array_code(f->type.dtype));
    if (!f->no_shape) put_sizes(o, ARRAY_SHAPE, f->type.dim, f->type.rank);
    wire_end(o, field, whole);
}

static void put_feature(wire_out *o, uint32_t field, const coreml_feature *f) {
    size_t whole = wire_begin(o), type = wire_begin(o);
    if (f->other) {
        wire_put_bytes(o, f->other_type.s, f->other_type.len);
    } else {
        if (f->optional) wire_int(o, TYPE_OPTIONAL, 1);
        size_t state = wire_begin(o);
        put_array(o, f->type.kind == IR_STATE ? 1 : TYPE_MULTI_ARRAY, f);
        if (f->type.kind == IR_STATE) wire_end(o, TYPE_STATE, state);
    }
    wire_end(o, FEATURE_TYPE, type);
    put_text(o, FEATURE_DESCRIPTION, f->description);
    put_text(o, FEATURE_NAME, f->name);
    wire_end(o, field, whole);
}

static void put_features(wire_out *o, uint32_t field, const coreml_feature *f, size_t n) {
    while (n-- > 0) put_feature(o, field, &f[n]);
}

static int by_key(const void *a, const void *b) {
    const coreml_pair *x = a, *y = b;
    int c = strcmp(x->key, y->key);
    return c ? c : strcmp(x->value, y->value);
}

static void put_metadata(wire_out *o, const coreml_model *m) {
    size_t whole = wire_begin(o);
    coreml_pair *sorted = mem_alloc(m->n_user * sizeof *sorted);
    if (m->n_user) memcpy(sorted, m->user, m->n_user * sizeof *sorted);
    qsort(sorted, m->n_user, sizeof *sorted, by_key);
    for (size_t i = m->n_user; i-- > 0;) {
        size_t entry = wire_begin(o);
        wire_string(o, ENTRY_VALUE, sorted[i].value, strlen(sorted[i].value));
        wire_string(o, ENTRY_KEY, sorted[i].key, strlen(sorted[i].key));
        wire_end(o, META_USER, entry);
    }
    mem_free(sorted);
    put_text(o, META_LICENSE, m->license);
    put_text(o, META_AUTHOR, m->author);
    put_text(o, META_VERSION, m->version);
    put_text(o, META_DESCRIPTION, m->short_description);
    if (wire_size(o) > whole) wire_end(o, DESC_METADATA, whole);
}

static void put_description(wire_out *o, const coreml_model *m) {
    size_t whole = wire_begin(o);
    put_metadata(o, m);
    if (m->multifunction) {
        put_text(o, DESC_DEFAULT_FUNCTION, m->default_function);
        for (size_t i = m->n_func; i-- > 0;) {
            const coreml_function *f = &m->func[i];
            size_t one = wire_begin(o);
            put_features(o, FUNC_DESC_STATE, f->state, f->n_state);
            put_text(o, FUNC_DESC_PROBABILITIES, f->probabilities);
            put_text(o, FUNC_DESC_PREDICTED, f->predicted);
            put_features(o, FUNC_DESC_OUTPUT, f->out, f->n_out);
            put_features(o, FUNC_DESC_INPUT, f->in, f->n_in);
            put_text(o, FUNC_DESC_NAME, f->name);
            wire_end(o, DESC_FUNCTION, one);
        }
    } else {
        const coreml_function *f = &m->func[0];
        put_features(o, DESC_STATE, f->state, f->n_state);
        put_text(o, DESC_PROBABILITIES, f->probabilities);
        put_text(o, DESC_PREDICTED, f->predicted);
        put_features(o, DESC_OUTPUT, f->out, f->n_out);
        put_features(o, DESC_INPUT, f->in, f->n_in);
    }
    wire_end(o, MODEL_DESCRIPTION, whole);
}

/* The weight files of a package: one for each model that has a program, in order. */
typedef struct {
    arena *a;
    blob_plan **plan;
    size_t n, cap;
    size_t at; /* serializing: the next one counted from the end */
    bool several;
} weight_files;

static bool plan_const(void *ctx, const ir_const *c, err *e) {
    return blob_plan_add(ctx, c, e);
}

static bool plan_weights(weight_files *w, const coreml_model *m, err *e) {
    if (m->program) {
        const char *name =
            w->several ? arena_printf(w->a, "weights/%zu-weight.bin", w->n) : "weights/weight.bin";
        w->plan = arena_grow(w->a, w->plan, w->n, &w->cap, w->n + 1, sizeof *w->plan);
        w->plan[w->n] = blob_plan_new(w->a, name);
        return write_each_blob(m->program, plan_const, w->plan[w->n++], e);
    }
    for (size_t i = 0; i < m->n_part; i++)
        if (!plan_weights(w, m->part[i], e)) return err_where(e, "model %zu of the pipeline", i);
    return true;
}

bool coreml_weight_bytes(const ir_program *p, uint64_t *bytes, err *e) {
    arena *a = arena_new();
    blob_plan *plan = blob_plan_new(a, "weights/weight.bin");
    bool ok = write_each_blob(p, plan_const, plan, e);
    *bytes = blob_plan_size(plan);
    arena_free(a);
    return ok;
}

/* The fields of a Model message. */
static bool put_model(wire_out *o, const coreml_model *m, weight_files *files, err *e) {
    if (m->program) {
        writer w = {o, files->plan[--files->at], e};
        if (!write_program(&w, m->program)) return false;
    } else {
        size_t pipeline = wire_begin(o);
        bool named = false;
        for (size_t i = 0; i < m->n_part; i++) named |= *m->part_name[i] != 0;
        for (size_t i = m->n_part; named && i-- > 0;)
            wire_string(o, PIPELINE_NAME, m->part_name[i], strlen(m->part_name[i]));
        for (size_t i = m->n_part; i-- > 0;) {
            size_t one = wire_begin(o);
            if (!put_model(o, m->part[i], files, e)) return false;
            wire_end(o, PIPELINE_MODEL, one);
        }
        wire_end(o, MODEL_PIPELINE, pipeline);
    }
    put_description(o, m);
    wire_int(o, MODEL_SPEC, m->spec);
    return true;
}

typedef struct {
    coreml_write_options *o;
    uint64_t done, total;
} write_progress;

static bool on_progress(void *ctx, uint64_t bytes) {
    write_progress *p = ctx;
    p->done += bytes;
    return !p->o->progress || p->o->progress(p->o->ctx, p->done, p->total);
}

static bool write_weights(const char *dir, const weight_files *files, coreml_write_options *o, err *e) {
    write_progress progress = {o, 0, 0};
    bool ok = true;
    for (size_t i = 0; i < files->n; i++) {
        uint64_t size = blob_plan_size(files->plan[i]);
        if (o->max_weight_bytes && size > o->max_weight_bytes)
            return err_set(e, ERR_LIMIT,
                           "%s/%s: it would have %" PRIu64 " bytes, more than the limit of %" PRIu64, dir,
                           blob_plan_name(files->plan[i]), size, o->max_weight_bytes);
        progress.total += size;
    }
    o->weight_bytes = progress.total;
    if (progress.total) ok = file_make_dirs(arena_printf(files->a, "%s/weights", dir), e);
    for (size_t i = 0; ok && i < files->n; i++) {
        const blob_plan *p = files->plan[i];
        const char *path = arena_printf(files->a, "%s/%s", dir, blob_plan_name(p));
        if (blob_plan_size(p)) ok = blob_write(p, path, on_progress, &progress, e);
    }
    return ok;
}

/* An identifier in the shape of a UUID, made from what it stands for, so that equal models get equal
 * packages. */
static const char *identifier(arena *a, const void *data, size_t n, uint64_t seed) {
    uint64_t x = hash_bytes(data, n, seed), y = hash_bytes(&x, sizeof x, x ^ n);
    return arena_printf(a, "%08x-%04x-%04x-%04x-%012" PRIx64, (unsigned)(x >> 32),
                        (unsigned)(x >> 16 & 0xFFFF), (unsigned)(x & 0xFFF) | 0x8000u,
                        (unsigned)(y >> 48 & 0x3FFF) | 0x8000u, y & 0xFFFFFFFFFFFFu);
}

static void manifest_item(str *s, const char *id, const char *what, const char *name, const char *end) {
    str_printf(s,
               "        \"%s\": {\n            \"author\": \"com.apple.CoreML\",\n"
               "            \"description\": \"CoreML Model %s\",\n            \"name\": \"%s\",\n"
               "            \"path\": \"com.apple.CoreML/%s\"\n        }%s\n",
               id, what, name, name, end);
}

static bool write_manifest(arena *a, const char *path, const wire_out *model, bool weights, err *e) {
    str s = {0};
    const char *id = identifier(a, wire_data(model), wire_size(model), 0);
    str_adds(&s, "{\n    \"fileFormatVersion\": \"1.0.0\",\n    \"itemInfoEntries\": {\n");
    manifest_item(&s, id, "Specification", "model.mlmodel", weights ? "," : "");
    if (weights) manifest_item(&s, identifier(a, id, strlen(id), 0), "Weights", "weights", "");
    str_printf(&s, "    },\n    \"rootModelIdentifier\": \"%s\"\n}\n", id);
    bool ok = file_write(arena_printf(a, "%s/Manifest.json", path), s.s, s.len, e);
    str_free(&s);
    return ok;
}

/* An empty directory at path: made, found, or (overwrite) emptied. */
static bool clear_place(const char *path, bool overwrite, err *e) {
    DIR *d = opendir(path);
    if (!d && errno == ENOENT) return file_make_dirs(path, e);
    if (!d && !overwrite) return err_errno(e, "%s", path);
    bool empty = d != NULL;
    for (struct dirent *f; d && (f = readdir(d));)
        empty &= !strcmp(f->d_name, ".") || !strcmp(f->d_name, "..");
    if (d) closedir(d);
    if (empty) return true;
    if (!overwrite) return err_set(e, ERR_IO, "%s: exists and is not empty", path);
    return file_remove_tree(path, e) && file_make_dirs(path, e);
}

static bool serialize(wire_out *o, const coreml_model *m, weight_files *files, err *e) {
    if (!plan_weights(files, m, e)) return false;
    files->at = files->n;
    if (!put_model(o, m, files, e)) return false;
    if (wire_size(o) < INT_MAX) return true;
    return err_set(e, ERR_LIMIT,
                   "the program takes %zu bytes without its weight file; the format allows less than 2 GiB",
                   wire_size(o));
}

bool write_model(wire_out *o, const coreml_model *m, err *e) {
    weight_files files = {.a = arena_new(), .several = m->n_part > 0};
    bool ok = serialize(o, m, &files, e);
    arena_free(files.a);
    return ok;
}

static bool write_files(arena *a, const char *path, const coreml_model *m, coreml_write_options *o, err *e) {
    weight_files files = {.a = a, .several = m->n_part > 0};
    const char *dir = arena_printf(a, "%s/" DATA_DIR, path);
    wire_out out = {0};
    bool ok = serialize(&out, m, &files, e) && clear_place(path, o->overwrite, e) && file_make_dirs(dir, e) &&
              write_weights(dir, &files, o, e) &&
              file_write(arena_printf(a, "%s/model.mlmodel", dir), wire_data(&out), wire_size(&out), e) &&
              write_manifest(a, path, &out, o->weight_bytes > 0, e);
    wire_free(&out);
    return ok;
}

bool coreml_write(const char *path, const coreml_model *m, coreml_write_options *o, err *e) {
    arena *a = arena_new();
    coreml_write_options none = {0};
    bool ok = write_files(a, path, m, o ? o : &none, e);
    arena_free(a);
    return ok;
}
