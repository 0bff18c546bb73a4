#include "generate/find.h"
#include "base/file.h"
#include "base/str.h"
#include "generate/sets.h"
#include "runtime/interface.h"
#include <string.h>

#define ASSET "coreai.json"

/* How far a contract is from what is there: its packages are there; its metadata are; neither. Less each of
 * its packages that was found. */
enum { NEAR = 0, FAR = 1000, FARTHEST = 2000 };

/* The search; packages are opened once, whoever asks for them. */
typedef struct {
    lm *m;
    rt_model **opened;
    size_t n_opened, cap;
    set_directory s;
    const char *nearest; /* of the contracts that were tried, the one with the fewest differences */
    size_t differences;  /* how many, and how far away it is besides */
    str lacks;           /* what it lacks, "input a, input b" */
    bool final;          /* the error is about packages whose contract is known */
} search;

static rt_model *open_once(search *s, const char *path, err *e) {
    for (size_t i = 0; i < s->n_opened; i++)
        if (!strcmp(rt_model_path(s->opened[i]), path)) return s->opened[i];
    rt_model *m = rt_model_open(path, e);
    if (!m) return NULL;
    s->opened = arena_grow(s->m->a, s->opened, s->n_opened, &s->cap, s->n_opened + 1, sizeof *s->opened);
    return s->opened[s->n_opened++] = m;
}

/* Opens packages in order, as a set. */
static contract_package *open_all(search *s, const char *const *path, size_t n, err *e) {
    lm *m = s->m;
    contract_package *all = ARENA_ARRAY(m->a, contract_package, n);
    const char **name = ARENA_ARRAY(m->a, const char *, n);
    m->model = ARENA_ARRAY(m->a, rt_model *, n);
    m->name = name;
    m->n_model = 0;
    for (size_t i = 0; i < n; i++) {
        m->model[i] = open_once(s, path[i], e);
        if (!m->model[i]) return NULL;
        name[m->n_model++] = artifact_name(path[i]);
        all[i] = (contract_package){name[i], rt_model_coreml(m->model[i])};
    }
    return all;
}

/* Keeps what this contract lacks if no other was nearer. */
static void add_lacks(search *s, const char *name, const char *what, size_t away) {
    size_t n = away + 1;
    for (const char *p = what; (p = strstr(p, ", ")); p += 2) n++;
    if (s->nearest && n >= s->differences) return;
    s->nearest = name;
    s->differences = n;
    str_free(&s->lacks);
    s->lacks = (str){0};
    str_adds(&s->lacks, what);
}

/* What millet makes: the packages that the directory names. */
static bool open_own(search *s, const artifact_paths *p, err *e) {
    if (p->member)
        return err_set(e, ERR_USAGE, "%s: one package of a set, which runs as a whole: give the directory %s",
                       p->package[0], p->dir);
    const contract_package *all = open_all(s, p->package, p->n_package, e);
    if (!all) return false;
    s->m->dir = p->dir;
    str lacks[CONTRACT_OWN] = {{0}};
    bool ok = contract_find_own(&s->m->form, s->m->a, all, p->n_package, lacks, e);
    for (size_t i = 0; i < CONTRACT_OWN; i++) {
        if (!ok && lacks[i].len) add_lacks(s, i ? "single" : "chunks", str_get(&lacks[i]), NEAR);
        str_free(&lacks[i]);
    }
    return ok || err_where(e, "%s", p->n_package > 1 ? p->dir : p->package[0]);
}

/* A Core AI asset, alone or of a bundle: there is one convention. */
static bool open_asset(search *s, const artifact_paths *p, err *e) {
    const describe_builtin *b = describe_builtins;
    while (strcmp(b->name, ASSET) && b + 1 < describe_builtins + describe_n_builtin) b++;
    const description *d = describe_parse(s->m->a, b->name, (const char *)b->text, b->n, e);
    const contract_package *all = d ? open_all(s, p->package, p->n_package, e) : NULL;
    s->m->dir = p->dir;
    return all && (contract_match(&s->m->form, s->m->a, d, p->dir, all, NULL, p->n_package, NULL, e) ||
                   err_where(e, "%s: contract %s", p->package[0], d->name));
}

static bool try_description(search *s, const description *d, err *e) {
    set_parts p;
    str lacks = {0}, alone = {0};
    err why = {0};
    bool ok = set_arrange(&p, s->m->a, &s->s, d, &lacks);
    bool arranged = ok;
    const contract_package *all = ok ? open_all(s, p.path, p.n, e) : NULL;
    if (ok && !all) s->final = true; /* it is these packages, and one can't be run */
    if (all) {
        ok = contract_match(&s->m->form, s->m->a, d, s->s.dir, all, p.role, p.n, &alone, &why);
        if (ok) s->m->dir = s->s.dir;
        if (!ok && p.certain) {
            s->final = true;
            err_set(e, why.code, "%s: contract %s, as %s says: %s", s->s.dir, d->name, d->metadata, why.msg);
        }
        if (!ok) str_adds(&lacks, alone.len ? str_get(&alone) : why.msg);
    }
    if (!ok || !all)
        add_lacks(s, d->name, str_get(&lacks),
                  arranged ? NEAR : (p.certain ? FAR : FARTHEST) - (p.n < FAR ? p.n : FAR));
    str_free(&lacks);
    str_free(&alone);
    return ok && all;
}

/* "a.mlpackage, b.mlpackage; beside it meta.yaml; function main of a.mlpackage has inputs ...". */
static void add_found(search *s, str *out) {
    const set_directory *d = &s->s;
    size_t compiled = 0;
    for (size_t i = 0; i < d->n_name && i < 6; i++) str_printf(out, "%s%s", i ? ", " : "", d->name[i]);
    if (d->n_name > 6) str_printf(out, " and %zu more", d->n_name - 6);
    if (!d->n_name) str_adds(out, "no .mlpackage");
    for (size_t i = 0, n = 0; i < d->n_other && n < 5; i++) {
        const char *dot = strrchr(d->other[i], '.');
        compiled += dot && !strcmp(dot, ".mlmodelc");
        if (dot && strcmp(dot, ".md") != 0) str_printf(out, "%s%s", n++ ? ", " : "; beside it ", d->other[i]);
    }
    if (!d->n_name && compiled)
        str_adds(out, " (compiled models can't be read: the .mlpackage that they were made of is needed)");
    err ignored = {0};
    rt_model *m =
        d->n_name ? open_once(s, arena_printf(s->m->a, "%s/%s", d->dir, d->name[0]), &ignored) : NULL;
    const coreml_model *c = m ? rt_model_coreml(m) : NULL;
    const coreml_function *f = c ? coreml_function_find(c, c->default_function) : NULL;
    str has = {0};
    if (f) contract_list(&has, f);
    if (f) str_printf(out, "; function %s of %s has %s", f->name, d->name[0], str_get(&has));
    str_free(&has);
}

/* A package that nothing could run, whatever the contract; false. */
static bool can_run(search *s, err *e) {
    err ignored = {0};
    for (size_t i = 0; i < s->s.n_name; i++) {
        const char *path = arena_printf(s->m->a, "%s/%s", s->s.dir, s->s.name[i]);
        const rt_model *m = open_once(s, path, &ignored);
        const coreml_model *c = m ? rt_model_coreml(m) : NULL;
        for (size_t k = 0; c && k < c->n_func; k++)
            if (!rt_only_tensors(&c->func[k], e)) return err_where(e, "%s", path);
    }
    return true;
}

static bool named(const coreml_feature *list, size_t n, const char *word) {
    for (size_t i = 0; i < n; i++)
        if (strstr(list[i].name, word)) return true;
    return false;
}

enum { BYTES = 256 }; /* no vocabulary is smaller */

/* Token ids or rows of embeddings go in, scores come out, or something is kept between calls. */
static bool speaks(const coreml_function *f) {
    bool ids = false, scores = false;
    for (size_t i = 0; i < f->n_in; i++) ids |= dtype_class(f->in[i].type.dtype) == DTC_INT;
    for (size_t i = 0; i < f->n_out; i++) {
        const ir_type *t = &f->out[i].type;
        scores |= t->rank > 0 && (t->dim[t->rank - 1] >= BYTES || t->dim[t->rank - 1] == IR_DIM_UNKNOWN);
    }
    return (ids && scores) || f->n_state || named(f->in, f->n_in, "hidden") ||
           named(f->out, f->n_out, "logits");
}

/* One package that has nothing of a language model: what it is is worth more than what each contract lacks.
 */
static bool no_language_model(search *s, const char *path, err *e) {
    err ignored = {0};
    if (s->s.n_name != 1) return false;
    rt_model *m = open_once(s, arena_printf(s->m->a, "%s/%s", s->s.dir, s->s.name[0]), &ignored);
    const coreml_model *c = m ? rt_model_coreml(m) : NULL;
    bool speaking = !c;
    for (size_t i = 0; c && i < c->n_func; i++) speaking |= speaks(&c->func[i]);
    const coreml_function *f = speaking ? NULL : coreml_function_find(c, c->default_function);
    if (!f) return false;
    str has = {0};
    contract_list(&has, f);
    err_set(e, ERR_UNSUPPORTED,
            "%s: not a language model: function %.40s has %.120s%s; expected token ids or rows of embeddings "
            "as input and scores of a vocabulary as output (docs/contracts.md)",
            path, f->name, str_get(&has), has.len > 120 ? "..." : "");
    str_free(&has);
    return true;
}

/* What was found and the first difference from the nearest contract; all of one that was asked for. */
static void nothing_fits(search *s, const char *path, bool asked, const err *own, err *e) {
    enum { FOUND = 200, LACKS = 600 };
    str found = {0}, all = {0};
    const char *lacks = str_get(&s->lacks), *more = asked ? NULL : strstr(lacks, ", ");
    add_found(s, &found);
    size_t prefix = strlen(path);
    bool placed = !strncmp(own->msg, path, prefix) && own->msg[prefix] == ':';
    if (own->code && own->code != ERR_UNSUPPORTED)
        str_printf(&all, "%.150s. ", placed ? own->msg + prefix + 2 : own->msg);
    if (s->nearest)
        str_printf(&all, "%s%s%s lacks %.*s%s", asked ? "" : "The nearest contract, ", s->nearest,
                   asked ? "" : ",", (int)(more ? (size_t)(more - lacks) : s->lacks.len), lacks,
                   more ? " and more" : "");
    err_set(e, ERR_UNSUPPORTED, "%s: no contract fits (docs/contracts.md). Found %.*s%s. %.*s%s", path, FOUND,
            str_get(&found), found.len > FOUND ? "..." : "", LACKS, str_get(&all),
            all.len > LACKS ? "..." : "");
    str_free(&found);
    str_free(&all);
}

static bool try_known(search *s, err *e) {
    for (size_t i = CONTRACT_OWN; i < describe_n_builtin && !s->final; i++) {
        const describe_builtin *b = &describe_builtins[i];
        if (!strcmp(b->name, ASSET)) continue;
        const description *d = describe_parse(s->m->a, b->name, (const char *)b->text, b->n, e);
        if (!d) s->final = true; /* one that is shipped: a test would have told */
        if (d && try_description(s, d, e)) return true;
    }
    return false;
}

static bool try_file(search *s, const char *path, err *e) {
    const description *d = describe_file(s->m->a, path, e);
    s->final = !d || !d->package->files.n;
    if (!d) return false;
    if (s->final)
        return err_set(e, ERR_FORMAT,
                       "%s: packages[0].files: expected patterns: nothing else names the packages", path);
    return try_description(s, d, e);
}

/* Whether a path that is not understood as our own is meant as such, so that the error is about that. */
static bool is_own(const artifact_paths *p, const char *path, bool located, const err *why) {
    bool unsupported = why->code == ERR_UNSUPPORTED; /* when located: no form of ours; else: can't be read */
    return !file_is_dir(path) || p->metadata || (located ? p->member || !unsupported : unsupported);
}

static bool holds_no_model(const set_directory *d) {
    for (size_t i = 0; i < d->n_other; i++)
        if (strstr(d->other[i], ".mlmodelc")) return false;
    return !d->n_name;
}

static bool find(search *s, artifact_paths *p, const char *path, const char *contract_file, err *e) {
    err why = {0};
    if (contract_file && !file_is_dir(path))
        return err_set(e, ERR_IO, "%s: no such package or directory", path);
    if (!contract_file) {
        bool located = artifact_locate(p, s->m->a, path, NULL, &why);
        if (located && p->asset) return open_asset(s, p, e);
        if (located && open_own(s, p, &why)) return true;
        if (is_own(p, path, located, &why)) {
            *e = why;
            return false;
        }
    }
    *p = (artifact_paths){0};
    set_scan(&s->s, s->m->a, path, file_exists(arena_printf(s->m->a, "%s/Manifest.json", path)));
    if (!contract_file && why.code && holds_no_model(&s->s)) { /* no word about contracts, then */
        *e = why;
        return false;
    }
    if (contract_file ? try_file(s, contract_file, e) : try_known(s, e)) return true;
    if (s->final || !can_run(s, e)) return false;
    if (contract_file || !no_language_model(s, path, e)) nothing_fits(s, path, contract_file, &why, e);
    return false;
}

bool find_packages(lm *m, artifact_paths *p, const char *path, const char *contract_file, err *e) {
    search s = {.m = m};
    *p = (artifact_paths){0};
    bool ok = find(&s, p, path, contract_file, e);
    if (!ok) m->n_model = 0;
    for (size_t i = 0; i < s.n_opened; i++) {
        bool used = false;
        for (size_t k = 0; k < m->n_model; k++) used |= m->model[k] == s.opened[i];
        if (!used) rt_model_close(s.opened[i]);
    }
    str_free(&s.lacks);
    return ok;
}
