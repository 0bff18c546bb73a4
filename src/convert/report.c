/* What became of every weight, as JSON for machines; docs/formats.md describes it. */
#include "base/file.h"
#include "convert/job.h"
#include <inttypes.h>
#include <string.h>

static void add_text(str *s, const char *key, const char *value) {
    str_printf(s, "\"%s\": ", key);
    str_json_string(s, value, strlen(value));
}

static void add_number(str *s, const char *key, double value) {
    str_printf(s, ", \"%s\": ", key);
    str_json_double(s, value);
}

static void add_tensor(str *s, const quant_result *r) {
    str_adds(s, "    {");
    add_text(s, "name", r->name);
    str_adds(s, ", \"shape\": [");
    for (int d = 0; d < r->type.rank; d++) str_printf(s, "%s%" PRId64, d ? ", " : "", r->type.dim[d]);
    str_adds(s, "], ");
    add_text(s, "dtype", dtype_name(r->type.dtype));
    str_adds(s, ", ");
    add_text(s, "scheme", r->why ? "none" : r->scheme.name);
    if (!r->why && r->scheme.group) str_printf(s, ", \"group_size\": %" PRId64, r->scheme.group);
    str_printf(s, ", \"bytes\": %" PRIu64, r->bytes);
    double count = (double)ir_type_count(&r->type);
    if (count > 0) add_number(s, "bits_per_weight", (double)r->bytes * 8 / count);
    if (r->why) {
        str_adds(s, ", ");
        add_text(s, "why", *r->why ? r->why : "asked for");
    } else {
        add_number(s, "relative_error", r->error);
        add_number(s, "largest_error", r->largest);
    }
    str_addc(s, '}');
}

bool job_write_report(const job *j, err *e) {
    if (!j->o->report) return true;
    str s = {0};
    str_adds(&s,
             "{\n  \"format\": \"millet-conversion-report\",\n  \"format_version\": 1,\n  \"tensors\": [\n");
    for (size_t i = 0; i < j->compressed.n; i++) {
        add_tensor(&s, j->compressed.weight[i]);
        str_adds(&s, i + 1 < j->compressed.n ? ",\n" : "\n");
    }
    str_adds(&s, "  ]\n}\n");
    bool ok = file_write(j->o->report, s.s, s.len, e);
    str_free(&s);
    return ok;
}
