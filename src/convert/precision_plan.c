#include "convert/precision_plan.h"
#include "base/json.h"
#include <string.h>

bool precision_plan_read(const char *const **entry, size_t *n, arena *a, const char *path, err *e) {
    const json *plan = json_object_file(a, path, e), *list = json_get_kind(plan, "fp32", JSON_ARRAY);
    if (!plan) return false;
    if (strcmp(json_str(plan, "format", ""), PRECISION_PLAN_FORMAT) ||
        json_int(plan, "format_version", 0) != PRECISION_PLAN_VERSION || !list)
        return err_set(
            e, ERR_FORMAT,
            "%s: expected a precision plan: \"format\": \"%s\", \"format_version\": %d and a list \"fp32\"",
            path, PRECISION_PLAN_FORMAT, PRECISION_PLAN_VERSION);
    const char **name = ARENA_ARRAY(a, const char *, list->len);
    *entry = name;
    *n = 0;
    JSON_EACH(v, list) {
        const json *value = json_get_kind(v, "value", JSON_STRING);
        if (!value || !value->len || strlen(value->s) != value->len)
            return err_set(e, ERR_FORMAT, "%s: entry %zu of fp32 has no \"value\", the name of a value", path,
                           *n);
        name[(*n)++] = value->s;
    }
    return true;
}
