#include "base/file.h"
#include "base/json.h"
#include "server/request.h"

bool served_defaults(const lm *m, sampler_options *o, err *e) {
    *o = m->defaults;
    o->temperature = 1; /* as the API has it */
    if (m->form.best) o->temperature = 0;
    if (m->form.best || !m->text_path) return true;
    arena *a = arena_new();
    const char *path = arena_printf(a, "%s/generation_config.json", m->text_path);
    const json *config = file_exists(path) ? json_object_file(a, path, e) : NULL;
    bool ok = !e->code && (!config || sampler_from_config(o, config, e));
    if (ok && !json_bool(config, "do_sample", false)) o->temperature = 1;
    arena_free(a);
    return ok;
}
