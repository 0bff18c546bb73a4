#include "check/check.h"
#include "cli/inspect_asset.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/summary.h"
#include "coreml/embedding.h"
#include "coreml/files.h"
#include "generate/artifact.h"
#include "generate/find.h"
#include "ir/print.h"
#include "runtime/engine.h"
#include "runtime/probe.h"
#include <stdio.h>
#include <string.h>

/* ---- For people ---- */

static void add_size(str *out, uint64_t bytes) {
    if (bytes < 10240)
        str_printf(out, "%llu B", (unsigned long long)bytes);
    else if (bytes < 10u << 20)
        str_printf(out, "%.1f KiB", (double)bytes / 1024);
    else
        str_printf(out, "%.1f MiB", (double)bytes / 1048576);
}

/* "int32[1,1..128]" for ranges, the plain type otherwise. */
static void add_feature_type(str *out, arena *a, const coreml_feature *f) {
    if (f->other)
        str_adds(out, f->other);
    else if (f->no_shape)
        str_printf(out, "%s, shape not declared", dtype_name(f->type.dtype));
    else if (!f->range)
        str_adds(out, ir_type_text(a, &f->type));
    else {
        str_printf(out, "%s[", dtype_name(f->type.dtype));
        for (int i = 0; i < f->type.rank; i++) {
            str_printf(out, "%s%lld", i ? "," : "", (long long)f->range[i].lower);
            if (f->range[i].upper < 0)
                str_adds(out, "..");
            else if (f->range[i].upper != f->range[i].lower)
                str_printf(out, "..%lld", (long long)f->range[i].upper);
        }
        str_addc(out, ']');
    }
}

static void add_shapes(str *out, const coreml_feature *f) {
    for (size_t i = 0; i < f->n_shapes; i++) {
        str_adds(out, i ? " or [" : "  shapes [");
        for (int d = 0; d < f->type.rank; d++)
            str_printf(out, "%s%lld", d ? "," : "", (long long)f->shapes[i][d]);
        str_addc(out, ']');
    }
}

/* Returns the bytes of all features of known size. */
static uint64_t add_features(str *out, arena *a, const char *title, const coreml_feature *f, size_t n) {
    uint64_t total = 0;
    int width = 0;
    for (size_t i = 0; i < n; i++)
        if ((int)strlen(f[i].name) > width) width = (int)strlen(f[i].name);
    if (n) str_printf(out, "  %s\n", title);
    for (size_t i = 0; i < n; i++) {
        int64_t bytes = f[i].no_shape || f[i].other ? -1 : ir_type_bytes(&f[i].type);
        str_printf(out, "    %-*s  ", width, f[i].name);
        add_feature_type(out, a, &f[i]);
        if (bytes > 0) {
            total += (uint64_t)bytes;
            str_adds(out, "  ");
            add_size(out, (uint64_t)bytes);
        }
        add_shapes(out, &f[i]);
        if (f[i].optional) str_adds(out, "  optional");
        if (f[i].has_default) str_printf(out, "  default %g", f[i].default_value);
        str_addc(out, '\n');
    }
    return total;
}

static void add_ops(str *out, const ir_function *f) {
    summary_op ops[OP_COUNT];
    size_t n = summary_of_ops(ops, f), column = 4;
    uint64_t total = 0;
    for (size_t i = 0; i < n; i++) total += ops[i].count;
    str_printf(out, "  ops, %llu\n   ", (unsigned long long)total);
    for (size_t i = 0; i < n; i++) {
        char text[100];
        int len = snprintf(text, sizeof text, " %s %llu%s", ir_info(ops[i].code)->name,
                           (unsigned long long)ops[i].count, i + 1 < n ? "," : "");
        if (column + (size_t)len > 100) {
            str_adds(out, "\n   ");
            column = 4;
        }
        str_adds(out, text);
        column += (size_t)len;
    }
    str_addc(out, '\n');
}

static void add_function(str *out, arena *a, const coreml_model *m, const coreml_function *f) {
    const ir_function *body = m->program ? ir_function_find(m->program, f->name) : NULL;
    str_printf(out, "\nfunction %s", f->name);
    if (body) str_printf(out, ", opset %s", ir_opset_name(body->spec));
    if (m->n_func > 1 && !strcmp(f->name, m->default_function)) str_adds(out, ", default");
    str_addc(out, '\n');
    add_features(out, a, "inputs", f->in, f->n_in);
    add_features(out, a, "outputs", f->out, f->n_out);
    uint64_t bytes = add_features(out, a, "states", f->state, f->n_state);
    if (f->n_state > 1) {
        str_printf(out, "    %zu states, ", f->n_state);
        add_size(out, bytes);
        str_addc(out, '\n');
    }
    if (body) add_ops(out, body);
}

static void add_kind(str *out, const char *name, uint64_t tensors, uint64_t values, uint64_t bytes) {
    str_printf(out, "  %-28s %6llu  %12llu %8.2f %10.2f\n", name, (unsigned long long)tensors,
               (unsigned long long)values, summary_bits(bytes, values), (double)bytes / 1048576);
}

static void add_weights(str *out, arena *a, const ir_program *p) {
    summary_weights w;
    summary_of_weights(&w, a, p);
    if (!w.n_kind) return;
    str_printf(out, "\n%-28s %8s  %12s %8s %10s\n", "weights", "tensors", "values", "bits", "MiB");
    uint64_t tensors = 0;
    for (size_t i = 0; i < w.n_kind; i++) {
        add_kind(out, w.kind[i].name, w.kind[i].tensors, w.kind[i].values, w.kind[i].bytes);
        tensors += w.kind[i].tensors;
    }
    if (w.n_kind > 1) add_kind(out, "all", tensors, w.values, w.bytes);
}

static void add_metadata(str *out, const coreml_model *m) {
    const char *fields[][2] = {{"description", m->short_description},
                               {"author", m->author},
                               {"license", m->license},
                               {"version", m->version}};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (fields[i][1] && *fields[i][1]) str_printf(out, "  %s: %s\n", fields[i][0], fields[i][1]);
    for (size_t i = 0; i < m->n_user; i++) str_printf(out, "  %s = %s\n", m->user[i].key, m->user[i].value);
}

static void add_model(str *out, arena *a, const coreml_model *m) {
    if (m->n_part) str_printf(out, "  pipeline of %zu models\n", m->n_part);
    add_metadata(out, m);
    for (size_t i = 0; i < m->n_func; i++) add_function(out, a, m, &m->func[i]);
    if (m->program) add_weights(out, a, m->program);
    for (size_t i = 0; i < m->n_part; i++) {
        const char *name = m->part_name[i];
        str_printf(out, "\npart %zu of %zu%s%s\n", i + 1, m->n_part, *name ? ": " : "", name);
        add_model(out, a, m->part[i]);
    }
}

/* The packages of an artifact, and what they are together. */
typedef struct {
    arena *a;
    artifact_paths where;
    coreml_package **p; /* where.n_package of them */
    lm others;          /* a set of another converter: its models, which c borrows from */
    contract c;
    err why; /* set: c is not found, because */
} artifact;

static void add_stage(str *out, const artifact *x, size_t i, int width) {
    const contract_stage *g = &x->c.func->stage[i];
    const coreml_function *f = coreml_function_find(x->p[i]->model, g->function);
    const char *in = "hidden", *made = g->logits ? "logits" : "hidden_out";
    if (x->c.form == CONTRACT_OTHER) in = g->n_input ? g->input[0].name : "", made = f->out[g->at].name;
    str_printf(out, "  %-*s %s %s -> %s %s", width, artifact_name(x->where.package[i]), in,
               ir_type_text(x->a, &g->in), made, ir_type_text(x->a, &g->out));
    if (f->n_state == 1) str_printf(out, "  state %s", f->state[0].name);
    if (f->n_state > 1)
        str_printf(out, "  %zu states, %s to %s", f->n_state, f->state[0].name,
                   f->state[f->n_state - 1].name);
    str_addc(out, '\n');
}

/* A set as one: what goes from package to package. */
static void add_set(str *out, const artifact *x) {
    str_printf(out, "%s: %zu package%s\n", x->where.dir, x->where.n_package, str_plural(x->where.n_package));
    if (x->why.code) {
        str_printf(out, "  they do not run as a set: %s\n\n", x->why.msg);
        return;
    }
    if (x->c.form == CONTRACT_OTHER) str_printf(out, "  contract %s\n", x->c.d->name);
    size_t width = 26;
    for (size_t i = 0; i < x->c.n_package; i++)
        if (strlen(artifact_name(x->where.package[i])) > width)
            width = strlen(artifact_name(x->where.package[i]));
    for (size_t i = 0; i < x->c.n_package; i++) add_stage(out, x, i, (int)width);
    str_printf(out, "  functions");
    for (size_t i = 0; i < x->c.n_func; i++)
        str_printf(out, "%s %s (%lld token%s)", i ? "," : "", x->c.func[i].name,
                   (long long)x->c.func[i].tokens, str_plural(x->c.func[i].tokens));
    const struct {
        const char *name;
        int64_t n; /* 0: not known */
    } sizes[] = {{"width", x->c.hidden},
                 {"vocabulary", x->c.vocab},
                 {"context", x->c.context < INT32_MAX ? x->c.context : 0}};
    const char *before = "\n  ";
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (!sizes[i].n) continue;
        str_printf(out, "%s%s %lld", before, sizes[i].name, (long long)sizes[i].n);
        before = ", ";
    }
    str_adds(out, "\n\n");
}

static void add_package(str *out, const coreml_package *p) {
    str_printf(out, "%s\n  Core ML specification %d\n", p->path, p->model->spec);
    for (size_t i = 0; i < p->files->n_file; i++) {
        str_printf(out, "  %s, ", p->files->file[i].name);
        add_size(out, p->files->file[i].map.size);
        str_addc(out, '\n');
    }
    add_model(out, p->a, p->model);
}

static void add_artifact(str *out, const artifact *x) {
    if (x->where.n_package > 1) add_set(out, x);
    for (size_t i = 0; i < x->where.n_package; i++) {
        if (i) str_addc(out, '\n');
        add_package(out, x->p[i]);
    }
}

/* ---- For programs ---- */

static void json_key(str *out, const char *key) {
    if (out->len && out->s[out->len - 1] != '{' && out->s[out->len - 1] != '[') str_addc(out, ',');
    str_json_string(out, key, strlen(key));
    str_addc(out, ':');
}

static void json_text(str *out, const char *key, const char *value) {
    json_key(out, key);
    str_json_string(out, value, strlen(value));
}

static void json_number(str *out, const char *key, uint64_t value) {
    json_key(out, key);
    str_printf(out, "%llu", (unsigned long long)value);
}

/* One element more: a comma unless it is the first. */
static void json_next(str *out) {
    if (out->s[out->len - 1] != '[') str_addc(out, ',');
}

static void json_dims(str *out, const int64_t *dim, int rank) {
    str_addc(out, '[');
    for (int i = 0; i < rank; i++) str_printf(out, "%s%lld", i ? "," : "", (long long)dim[i]);
    str_addc(out, ']');
}

static void json_feature(str *out, const coreml_feature *f) {
    json_next(out);
    str_addc(out, '{');
    json_text(out, "name", f->name);
    json_text(out, "type", f->other ? f->other : dtype_name(f->type.dtype));
    if (!f->other && !f->no_shape) {
        json_key(out, "shape");
        json_dims(out, f->type.dim, f->type.rank);
        int64_t bytes = ir_type_bytes(&f->type);
        if (bytes >= 0) json_number(out, "bytes", (uint64_t)bytes);
    }
    if (f->n_shapes) {
        json_key(out, "shapes");
        str_addc(out, '[');
        for (size_t i = 0; i < f->n_shapes; i++) {
            json_next(out);
            json_dims(out, f->shapes[i], f->type.rank);
        }
        str_addc(out, ']');
    }
    if (f->range) {
        json_key(out, "range");
        str_addc(out, '[');
        for (int i = 0; i < f->type.rank; i++) {
            json_next(out);
            json_dims(out, (int64_t[]){f->range[i].lower, f->range[i].upper}, 2);
        }
        str_addc(out, ']');
    }
    if (f->optional) {
        json_key(out, "optional");
        str_adds(out, "true");
    }
    str_addc(out, '}');
}

static void json_features(str *out, const char *key, const coreml_feature *f, size_t n) {
    json_key(out, key);
    str_addc(out, '[');
    for (size_t i = 0; i < n; i++) json_feature(out, &f[i]);
    str_addc(out, ']');
}

static void json_function(str *out, const coreml_model *m, const coreml_function *f) {
    const ir_function *body = m->program ? ir_function_find(m->program, f->name) : NULL;
    json_next(out);
    str_addc(out, '{');
    json_text(out, "name", f->name);
    if (body) json_text(out, "opset", ir_opset_name(body->spec));
    json_features(out, "inputs", f->in, f->n_in);
    json_features(out, "outputs", f->out, f->n_out);
    json_features(out, "states", f->state, f->n_state);
    if (body) {
        summary_op ops[OP_COUNT];
        size_t n = summary_of_ops(ops, body);
        json_key(out, "ops");
        str_addc(out, '{');
        for (size_t i = 0; i < n; i++) json_number(out, ir_info(ops[i].code)->name, ops[i].count);
        str_addc(out, '}');
    }
    str_addc(out, '}');
}

static void json_weights(str *out, arena *a, const ir_program *p) {
    summary_weights w;
    summary_of_weights(&w, a, p);
    json_key(out, "weights");
    str_addc(out, '[');
    for (size_t i = 0; i < w.n_kind; i++) {
        const summary_kind *k = &w.kind[i];
        json_next(out);
        str_addc(out, '{');
        json_text(out, "kind", k->name);
        json_number(out, "tensors", k->tensors);
        json_number(out, "values", k->values);
        json_number(out, "bytes", k->bytes);
        json_key(out, "bits_per_weight");
        str_json_double(out, summary_bits(k->bytes, k->values));
        str_addc(out, '}');
    }
    str_addc(out, ']');
}

/* The members of a model's object. */
static void json_model(str *out, arena *a, const coreml_model *m) {
    json_number(out, "specification", (uint64_t)m->spec);
    if (m->default_function) json_text(out, "default_function", m->default_function);
    if (m->short_description) json_text(out, "description", m->short_description);
    if (m->author) json_text(out, "author", m->author);
    if (m->license) json_text(out, "license", m->license);
    if (m->version) json_text(out, "version", m->version);
    json_key(out, "metadata");
    str_addc(out, '{');
    for (size_t i = 0; i < m->n_user; i++) json_text(out, m->user[i].key, m->user[i].value);
    str_addc(out, '}');
    json_key(out, "functions");
    str_addc(out, '[');
    for (size_t i = 0; i < m->n_func; i++) json_function(out, m, &m->func[i]);
    str_addc(out, ']');
    if (m->program) json_weights(out, a, m->program);
    if (!m->n_part) return;
    json_key(out, "parts");
    str_addc(out, '[');
    for (size_t i = 0; i < m->n_part; i++) {
        json_next(out);
        str_addc(out, '{');
        json_text(out, "name", m->part_name[i]);
        json_model(out, a, m->part[i]);
        str_addc(out, '}');
    }
    str_addc(out, ']');
}

static void json_package(str *out, const coreml_package *p) {
    str_addc(out, '{');
    json_text(out, "package", p->path);
    json_model(out, p->a, p->model);
    json_key(out, "files");
    str_addc(out, '{');
    for (size_t i = 0; i < p->files->n_file; i++)
        json_number(out, p->files->file[i].name, p->files->file[i].map.size);
    str_adds(out, "}}");
}

/* The members that say what a set is; null when it is none. */
static void json_set(str *out, const artifact *x) {
    const contract *c = &x->c;
    json_key(out, "set");
    if (x->why.code) {
        str_adds(out, "null");
        json_text(out, "why_not", x->why.msg);
        return;
    }
    str_addc(out, '{');
    json_text(out, "contract", c->d->name);
    str_adds(out, ",\"functions\":[");
    for (size_t i = 0; i < c->n_func; i++) {
        str_adds(out, i ? ",{" : "{");
        json_text(out, "name", c->func[i].name);
        json_number(out, "tokens", (uint64_t)c->func[i].tokens);
        str_addc(out, '}');
    }
    str_addc(out, ']');
    json_number(out, "layer_packages", c->n_layers);
    if (c->hidden) json_number(out, "hidden_size", (uint64_t)c->hidden);
    json_number(out, "vocab_size", (uint64_t)c->vocab);
    if (c->context < INT32_MAX) json_number(out, "context", (uint64_t)c->context);
    str_addc(out, '}');
}

/* One package as its object, several in an array beside what they are together. */
static void json_artifact(str *out, const artifact *x) {
    if (x->where.n_package == 1) {
        json_package(out, x->p[0]);
    } else {
        str_addc(out, '{');
        json_set(out, x);
        json_key(out, "packages");
        str_addc(out, '[');
        for (size_t i = 0; i < x->where.n_package; i++) {
            json_next(out);
            json_package(out, x->p[i]);
        }
        str_adds(out, "]}");
    }
    str_addc(out, '\n');
}

/* ---- The command ---- */

typedef struct {
    str *out;
    const char *package; /* in front of messages; NULL: there is only one */
    bool json;
    size_t count;
} violations;

static bool add_violation(void *ctx, const char *rule, const char *message) {
    violations *v = ctx;
    v->count++;
    str text = {0};
    str_printf(&text, "%s%s%s", v->package ? v->package : "", v->package ? ": " : "", message);
    if (!v->json) {
        str_printf(v->out, "%s: %s\n", rule, text.s);
    } else {
        json_next(v->out);
        str_addc(v->out, '{');
        json_text(v->out, "rule", rule);
        json_text(v->out, "message", text.s);
        str_addc(v->out, '}');
    }
    str_free(&text);
    return true;
}

/* The embedding table beside the packages, with the checksum of its rows. */
static void verify_table(violations *v, const artifact *x) {
    err e = {0};
    const char *path;
    embedding *t = NULL;
    if (!x->why.code && x->c.form != CONTRACT_CHUNKS) return;
    if (artifact_table(&x->where, x->a, &path, &e) && path && (t = embedding_open(path, &e)))
        embedding_verify(t, &e);
    if (e.code) add_violation(v, "embedding-table", e.msg);
    embedding_close(t);
}

static int verify(str *out, const artifact *x, bool as_json) {
    violations v = {.out = out, .json = as_json};
    if (as_json) str_adds(out, "{\"violations\":[");
    for (size_t i = 0; i < x->where.n_package; i++) {
        err e = {0};
        if (x->where.n_package > 1) v.package = artifact_name(x->where.package[i]);
        coreml_verify(x->p[i]->model, add_violation, &v, &e);
    }
    v.package = NULL;
    if (x->where.n_package > 1 && x->why.code) add_violation(&v, "package-set", x->why.msg);
    verify_table(&v, x);
    if (as_json)
        str_adds(out, "]}\n");
    else
        str_printf(out, v.count ? "%zu violation%s\n" : "every rule is kept\n", v.count, str_plural(v.count));
    return v.count ? CLI_FAILED : CLI_OK;
}

static void list_ops(str *out, const coreml_model *m) {
    if (m->program) ir_print_program(out, m->program);
    for (size_t i = 0; i < m->n_part; i++) {
        const char *name = m->part_name[i];
        str_printf(out, "// part %zu%s%s\n", i + 1, *name ? ": " : "", name);
        list_ops(out, m->part[i]);
    }
}

static void list_all_ops(str *out, const artifact *x) {
    for (size_t i = 0; i < x->where.n_package; i++) {
        if (x->where.n_package > 1) str_printf(out, "// package %s\n", artifact_name(x->where.package[i]));
        list_ops(out, x->p[i]->model);
    }
}

static void list_plans(str *out, const artifact *x) {
    for (size_t i = 0; i < x->where.n_package; i++) {
        if (x->where.n_package > 1) str_printf(out, "// package %s\n", artifact_name(x->where.package[i]));
        rt_print_plans(out, x->p[i]->model);
    }
}

static bool list_profiles(str *out, const artifact *x, int64_t position, err *e) {
    for (size_t i = 0; i < x->where.n_package; i++) {
        if (x->where.n_package > 1) str_printf(out, "// package %s\n", artifact_name(x->where.package[i]));
        rt_model *m = rt_model_open(x->where.package[i], e);
        bool ok = m && rt_probe(out, m, position, e);
        if (m) rt_model_close(m);
        if (!ok) return err_where(e, "%s", artifact_name(x->where.package[i]));
    }
    return true;
}

/* The packages of our own artifact, or those of a set that a contract of others fits. */
static bool locate(artifact *x, const char *path, err *e) {
    artifact_paths none;
    err ignored = {0};
    if (artifact_locate(&x->where, x->a, path, NULL, e)) return true;
    x->others.a = x->a;
    if (x->where.metadata || !find_packages(&x->others, &none, path, NULL, &ignored)) return false;
    const lm *m = &x->others;
    const char **package = ARENA_ARRAY(x->a, const char *, m->n_model);
    for (size_t i = 0; i < m->n_model; i++) package[i] = arena_str(x->a, rt_model_path(m->model[i]));
    x->where = (artifact_paths){.dir = m->dir, .package = package, .n_package = m->n_model};
    x->c = m->form;
    *e = (err){0};
    return true;
}

static bool open_artifact(artifact *x, const char *path, err *e) {
    if (!locate(x, path, e)) return false;
    size_t n = x->where.n_package;
    x->p = ARENA_ARRAY(x->a, coreml_package *, n);
    contract_package *all = ARENA_ARRAY(x->a, contract_package, n);
    for (size_t i = 0; i < n; i++) {
        x->p[i] = rt_package_open(x->where.package[i], e);
        if (!x->p[i]) return false;
        all[i] = (contract_package){artifact_name(x->where.package[i]), x->p[i]->model};
    }
    if (!x->others.n_model) contract_find(&x->c, x->a, all, n, &x->why);
    return true;
}

/* One line for each kind of composite; those that don't do what they declare are violations. */
static void verify_composites(violations *v, const char *path) {
    check_composites r;
    err e = {0};
    if (!check_composites_run(&r, path, &e)) {
        if (!v->json) str_printf(v->out, "composites are not compared: %s\n", e.msg);
        return;
    }
    for (size_t i = 0; i < r.n; i++) {
        const check_composite *c = &r.kind[i];
        str text = {0};
        check_composite_text(c, &text);
        if (!check_composite_holds(c))
            add_violation(v, "composite", text.s);
        else if (!v->json)
            str_printf(v->out, "%s\n", text.s);
        str_free(&text);
    }
}

/* The program as it is opened for running: what stops that is a violation. Returns whether nothing does. */
static bool verify_program(violations *v, const char *path) {
    err e = {0};
    size_t before = v->count;
    coreml_package *p = rt_package_open(path, &e);
    if (p && !coreml_verify(p->model, add_violation, v, &e)) {
        coreml_close(p);
        return false;
    }
    rt_model *m = rt_model_of(p, &e);
    if (!m) add_violation(v, "program", e.msg);
    rt_model_close(m);
    return v->count == before;
}

static bool verify_asset(str *out, const ai_asset *x, bool as_json, err *e) {
    violations v = {.out = out, .json = as_json};
    bool absent;
    if (!ai_asset_check_hash(x, &absent, e)) return false;
    if (as_json) str_adds(out, "{\"violations\":[");
    if (absent && !as_json) str_adds(out, "main.hash is absent\n");
    if (verify_program(&v, x->path)) verify_composites(&v, x->path);
    if (as_json)
        str_adds(out, "]}\n");
    else
        str_printf(out, v.count ? "%zu violation%s\n" : "every rule is kept\n", v.count, str_plural(v.count));
    return !v.count;
}

/* A Core AI asset is shown as it is: its ops are other ones. */
static void show_asset(const cli_args *a, const char *path, int *code) {
    err e = {0};
    ai_asset *x = ai_asset_open(path, &e);
    str out = {0};
    bool kept = true;
    if (x && cli_flag(a, "verify")) {
        kept = verify_asset(&out, x, cli_flag(a, "json"), &e);
    } else if (x && cli_flag(a, "json")) {
        inspect_asset_json(&out, x);
    } else if (x) {
        inspect_asset(&out, x, cli_flag(a, "ops"));
    }
    cli_out(str_get(&out), out.len);
    str_free(&out);
    ai_asset_close(x);
    *code = e.code ? cli_fail(&e) : kept ? CLI_OK : CLI_FAILED;
}

static bool is_asset(const cli_args *a, int *code) {
    if (cli_flag(a, "plan") || cli_flag(a, "profile")) return false;
    artifact_paths where;
    err ignored = {0};
    arena *names = arena_new();
    bool is = artifact_locate(&where, names, cli_arg(a, "PACKAGE"), NULL, &ignored) && where.n_package == 1 &&
              ai_asset_is(where.package[0]);
    if (is) show_asset(a, where.package[0], code);
    arena_free(names);
    return is;
}

int cmd_inspect(const cli_args *a) {
    bool as_json = cli_flag(a, "json");
    if (as_json && cli_flag(a, "ops")) return cli_usage(a, "--ops and --json exclude each other");
    if (cli_flag(a, "plan") && (as_json || cli_flag(a, "ops")))
        return cli_usage(a, "--plan excludes --ops and --json");
    if (cli_flag(a, "profile") && (as_json || cli_flag(a, "ops") || cli_flag(a, "plan")))
        return cli_usage(a, "--profile excludes --ops, --plan and --json");
    err e = {0};
    int code = CLI_OK;
    if (is_asset(a, &code)) return code;
    artifact x = {.a = arena_new()};
    if (open_artifact(&x, cli_arg(a, "PACKAGE"), &e)) {
        str out = {0};
        if (cli_flag(a, "ops"))
            list_all_ops(&out, &x);
        else if (cli_flag(a, "plan"))
            list_plans(&out, &x);
        else if (cli_flag(a, "profile") && !list_profiles(&out, &x, cli_int(a, "position"), &e))
            code = cli_fail(&e);
        else if (!cli_flag(a, "profile") && !cli_flag(a, "verify"))
            (as_json ? json_artifact : add_artifact)(&out, &x);
        if (cli_flag(a, "verify")) code = verify(&out, &x, as_json);
        cli_out(out.s, out.len);
        str_free(&out);
    } else {
        code = cli_fail(&e);
    }
    for (size_t i = 0; x.p && i < x.where.n_package; i++) coreml_close(x.p[i]);
    for (size_t i = 0; i < x.others.n_model; i++) rt_model_close(x.others.model[i]);
    arena_free(x.a);
    return code;
}
