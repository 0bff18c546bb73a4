/* What the gate found, written into the manifest of the variants. */
#include "base/file.h"
#include "check/figures.h"
#include "check/report.h"
#include "convert/manifest.h"
#include "generate/artifact.h"
#include <math.h>

static void add_share(str *s, const char *key, size_t part, size_t of) {
    str_printf(s, ",\"%s\":", key);
    str_json_double(s, of ? figure_share(part, of) : NAN);
}

bool check_record(const check_report *r, err *e) {
    arena *a = arena_new();
    const check_parity *p = &r->side[0].parity;
    artifact_paths where;
    str gate = {0};
    str_printf(&gate, "{\"passed\":%s", check_passed(r) ? "true" : "false");
    add_share(&gate, "top1_agreement", p->agree, p->positions);
    add_share(&gate, "certain_agreement", p->certain_agree, p->certain);
    str_addc(&gate, '}');
    bool ok = artifact_locate(&where, a, r->side[0].path, NULL, e) &&
              manifest_record_gate(where.dir, artifact_name(where.package[0]), str_get(&gate), e);
    str_free(&gate);
    arena_free(a);
    return ok;
}
