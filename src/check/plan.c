#include "base/file.h"
#include "base/map.h"
#include "check/check.h"
#include "convert/precision_plan.h"
#include "models/widen.h"
#include <math.h>

check_keep check_range_keep(const check_range *r) {
    bool reference = !isnan(r->reference); /* the artifact's own magnitudes end at what its type holds */
    double largest = reference ? r->reference : r->nonfinite ? INFINITY : r->largest;
    if (largest * CHECK_HEAD_ROOM > CHECK_FP16_MAX) return CHECK_KEEP_RANGE;
    return reference && r->loss > CHECK_SUBNORMAL_LOSS ? CHECK_KEEP_SUBNORMAL : CHECK_KEEP_NO;
}

static void add_entry(str *s, const check_range *r, size_t len, check_keep why) {
    str_adds(s, "{\"value\": ");
    str_json_string(s, r->name, len);
    str_printf(s, ", \"op\": \"%s\", \"reason\": \"%s\", \"largest\": ", r->op,
               why == CHECK_KEEP_RANGE ? "range" : "subnormal");
    str_json_double(s, isnan(r->reference) ? r->largest : r->reference);
    str_adds(s, ", \"loss\": ");
    str_json_double(s, r->loss);
    str_addc(s, '}');
}

bool check_plan_write(const check_ranges *r, const char *path, size_t *entries, err *e) {
    arena *a = arena_new();
    map *seen = map_new(a, r->n);
    str s = {0};
    str_printf(&s, "{\"format\": \"%s\", \"format_version\": %d, \"head_room\": ", PRECISION_PLAN_FORMAT,
               PRECISION_PLAN_VERSION);
    str_json_double(&s, CHECK_HEAD_ROOM);
    str_adds(&s, ", \"subnormal_loss\": ");
    str_json_double(&s, CHECK_SUBNORMAL_LOSS);
    str_adds(&s, ", \"fp32\": [");
    for (size_t i = 0; i < r->n; i++) {
        check_keep why = check_range_keep(&r->row[i]);
        size_t len = widen_entry(r->row[i].name);
        if (why == CHECK_KEEP_NO || !map_add(seen, r->row[i].name, len, 0)) continue;
        str_adds(&s, map_count(seen) > 1 ? ",\n  " : "\n  ");
        add_entry(&s, &r->row[i], len, why);
    }
    *entries = map_count(seen);
    str_adds(&s, *entries ? "\n]}\n" : "]}\n");
    bool ok = file_write(path, s.s, s.len, e);
    str_free(&s);
    arena_free(a);
    return ok;
}
