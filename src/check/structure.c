#include "base/file.h"
#include "base/json.h"
#include "base/map.h"
#include "check/manifest.h"
#include "check/side.h"
#include "coreml/embedding.h"
#include "generate/artifact.h"
#include <stdlib.h>
#include <string.h>

const char *const check_class_name[CHECK_CLASSES] = {"attention", "deltanet", "mlp", "vocabulary", "other"};

static check_class class_of(const char *name) {
    if (strstr(name, "norm") || strstr(name, "rope")) return CHECK_OTHER;
    if (strstr(name, "lm_head") || strstr(name, "embed")) return CHECK_VOCABULARY;
    if (strstr(name, "linear_attn")) return CHECK_DELTANET;
    if (strstr(name, "self_attn")) return CHECK_ATTENTION;
    return strstr(name, "mlp") ? CHECK_MLP : CHECK_OTHER;
}

/* One package's weights, over its functions. */
typedef struct {
    check_structure *r;
    check_package *p;
    arena *a;
    map *places; /* where a constant lies -> index of its function, or SHARED */
    map *names;  /* weight -> place */
    const char **place;
    size_t cap;
    bool asset; /* names are none */
} counting;

#define SHARED 0xFFFF

/* Counts a stored constant; true when no function had it before. */
static bool count_constant(counting *c, const char *place, uint64_t bytes, uint32_t function,
                           map *seen_here) {
    if (!map_add(seen_here, place, strlen(place), 0)) return false;
    if (map_add(c->places, place, strlen(place), function)) {
        c->p->bytes += bytes;
        return true;
    }
    /* the second function that has it; a third doesn't count again */
    const char *key = arena_printf(c->a, "%s again", place);
    if (map_add(c->places, key, strlen(key), SHARED)) c->p->shared_bytes += bytes;
    return false;
}

/* Where a constant is stored; NULL: nowhere but in the program. An asset has all of them in one file. */
static const char *place_of(counting *c, const ir_const *k) {
    if (c->asset && k && ir_type_bytes(&k->type) >= CHECK_WEIGHT_MIN)
        return arena_printf(c->a, "%p", k->data ? k->data : (const void *)k);
    if (!k || !k->blob_file) return NULL;
    return arena_printf(c->a, "%llu %s", (unsigned long long)k->blob_offset, k->blob_file);
}

/* A weight: a constant of the weight file, or what a decompressing op makes of some. */
static void count_weight(counting *c, const ir_op *op, uint32_t function, map *seen) {
    const ir_value *v = op->out[0];
    const char *place = NULL;
    uint64_t bytes = 0;
    bool fresh = false;
    if ((place = place_of(c, v->konst))) {
        bytes = (uint64_t)ir_type_bytes(&v->konst->type);
        fresh = count_constant(c, place, bytes, function, seen);
    }
    bool constexpr = ir_info(op->code)->flags & OPF_CONSTEXPR;
    for (int s = 0; constexpr && s < ir_info(op->code)->n_slot; s++)
        for (uint32_t k = 0; k < op->arg[s].n; k++) {
            const ir_const *x = op->arg[s].v[k]->konst;
            const char *at = place_of(c, x);
            if (!at) continue;
            if (!place) place = at;
            bytes += (uint64_t)ir_type_bytes(&x->type);
            fresh |= count_constant(c, at, (uint64_t)ir_type_bytes(&x->type), function, seen);
        }
    if (!place || !v->name) return;
    if (fresh) {
        check_class class = class_of(v->name);
        c->r->values[class] += (uint64_t)ir_type_count(&v->type);
        c->r->bytes[class] += bytes;
    }
    if (c->asset) return;
    size_t n = map_count(c->names);
    c->place = arena_grow(c->a, c->place, n, &c->cap, n + 1, sizeof *c->place);
    if (map_add(c->names, v->name, strlen(v->name), (uint32_t)n)) {
        c->place[n] = place;
    } else if (fresh && strcmp(c->place[map_get(c->names, v->name, strlen(v->name))], place)) {
        c->p->double_bytes += bytes;
    }
}

static void count_package(check_structure *r, check_package *p, const coreml_model *m) {
    arena *a = arena_new();
    counting c = {.r = r, .p = p, .a = a, .places = map_new(a, 256), .names = map_new(a, 256)};
    c.asset = m->spec == IR_SPEC_COREAI;
    p->functions = m->n_func;
    for (size_t i = 0; m->program && i < m->program->n_func; i++) {
        const ir_function *f = m->program->func[i];
        map *seen = map_new(a, 256);
        const bool *part = side_parts(a, f); /* counted with what is made of them */
        for (size_t k = 0; k < f->body.n_op; k++) {
            const ir_op *op = f->body.op[k];
            if (op->n_out == 1 && !(c.asset && part[op->out[0]->id]) &&
                ir_info(op->code)->flags & (OPF_CONST | OPF_CONSTEXPR))
                count_weight(&c, op, (uint32_t)i, seen);
        }
    }
    r->states += m->n_func ? m->func[0].n_state : 0;
    arena_free(a);
}

static bool count_table(check_structure *r, const lm *m, err *e) {
    const embedding *t = m->table;
    file_map file;
    if (!t) return true;
    if (!file_open_map(&file, m->table_path, e)) return false;
    uint64_t bytes = file.size;
    file_unmap(&file);
    uint64_t values = (uint64_t)embedding_rows(t) * (uint64_t)embedding_width(t);
    r->values[CHECK_VOCABULARY] += values;
    r->bytes[CHECK_VOCABULARY] += bytes;
    r->file_bytes += bytes;
    return true;
}

static void judge_sharing(const check_package *p, str *failures) {
    if (p->double_bytes)
        str_printf(failures, "%s: %.1f MB of weights are stored once more for another function\n", p->name,
                   (double)p->double_bytes / 1e6);
}

/* What the file beside the packages states, made anew. No such file, or one of format 1: nothing. */
static bool compare_metadata(check_structure *r, str *failures, const char *path, check_watch *w, err *e) {
    arena *a = arena_new();
    artifact_paths p;
    check_manifest m = {0};
    bool ok = artifact_locate(&p, a, path, NULL, e);
    const json *j = ok && p.metadata ? json_object_file(a, p.metadata, e) : NULL;
    ok = ok && (j || !p.metadata);
    bool first =
        !strcmp(j ? artifact_name(p.metadata) : "", "metadata.json") && json_int(j, "format_version", 0) == 1;
    if (ok && j && !first) ok = check_manifest_run(&m, a, p.dir, NULL, check_go, w, e);
    r->checked_files = m.files;
    for (size_t i = 0; ok && i < m.n_bad; i++)
        str_printf(failures, "%s: %s: %s states %s, found %s\n", m.bad[i].file, m.bad[i].what, m.document,
                   m.bad[i].expected, m.bad[i].found);
    arena_free(a);
    return ok;
}

static bool judge_composites(check_structure *r, str *failures, const lm *artifact, err *e) {
    if (!check_is_asset(artifact)) return true;
    if (!check_composites_run(&r->composites, rt_model_path(artifact->model[0]), e)) return false;
    for (size_t i = 0; i < r->composites.n; i++) {
        if (check_composite_holds(&r->composites.kind[i])) continue;
        check_composite_text(&r->composites.kind[i], failures);
        str_addc(failures, '\n');
    }
    return true;
}

bool check_structure_run(check_structure *r, str *failures, const char *path, const lm *artifact,
                         check_watch *w, err *e) {
    *r = (check_structure){.n = artifact->n_model};
    check_phase(w, "structure", 0);
    r->package = mem_alloc(r->n * sizeof *r->package);
    for (size_t i = 0; i < r->n; i++) {
        r->package[i] = (check_package){.name = artifact->name[i]};
        count_package(r, &r->package[i], rt_model_coreml(artifact->model[i]));
        r->file_bytes += r->package[i].bytes;
        judge_sharing(&r->package[i], failures);
    }
    return (judge_composites(r, failures, artifact, e) && count_table(r, artifact, e) &&
            (!artifact->ours || compare_metadata(r, failures, path, w, e))) ||
           err_where(e, "structure");
}

void check_structure_free(check_structure *r) {
    mem_free(r->package);
    *r = (check_structure){0};
}
