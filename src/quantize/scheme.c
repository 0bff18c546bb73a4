#include "quantize/scheme.h"
#include "base/json.h"
#include <string.h>

static const quant_scheme schemes[] = {
    {"fp16", QUANT_NONE, 16, 0},     {"lut4", QUANT_LUT, 4, 32},       {"lut6", QUANT_LUT, 6, 32},
    {"lut8", QUANT_LUT, 8, 32},      {"w8", QUANT_INT8_CHANNEL, 8, 0}, {"w8b32", QUANT_INT8_BLOCK, 8, 32},
    {"w4", QUANT_INT4_BLOCK, 4, 32}, {"keep", QUANT_KEEP, 8, 0},
};

bool quant_scheme_by_name(quant_scheme *s, const char *name, err *e) {
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
        if (!strcmp(schemes[i].name, name)) {
            *s = schemes[i];
            return true;
        }
    return err_set(e, ERR_USAGE, "scheme %.50s: expected fp16, lut4, lut6, lut8, w8, w8b32, w4 or keep",
                   name);
}

const quant_scheme *quant_scheme_kept(bool four_bits) {
    const quant_scheme *s = schemes;
    while (s->kind != (four_bits ? QUANT_INT4_BLOCK : QUANT_INT8_BLOCK)) s++;
    return s;
}

static bool read_rule(quant_rule *r, arena *a, const json *j, size_t number, quant_scheme_fn *by_name,
                      err *e) {
    const json *match = json_get_kind(j, "match", JSON_STRING),
               *scheme = json_get_kind(j, "scheme", JSON_STRING);
    if (!match || !scheme)
        return err_set(e, ERR_FORMAT, "rule %zu: expected {\"match\": PATTERN, \"scheme\": NAME}", number);
    JSON_EACH(m, j) {
        if (strcmp(m->key, "match") && strcmp(m->key, "scheme") && strcmp(m->key, "group_size"))
            return err_set(e, ERR_FORMAT, "rule %zu: unknown key \"%.50s\"", number, m->key);
    }
    r->pattern = arena_str(a, match->s);
    if (!by_name(&r->scheme, scheme->s, e)) return err_where(e, "rule %zu", number);
    if (!json_get(j, "group_size")) return true;
    int64_t group = json_int(j, "group_size", 0);
    if (group < 1 || r->scheme.kind != QUANT_LUT)
        return err_set(e, ERR_FORMAT, "rule %zu: group_size is a whole number from 1, for lut schemes",
                       number);
    r->scheme.group = group;
    return true;
}

bool quant_recipe_read(quant_recipe *r, arena *a, const char *path, quant_scheme_fn *by_name, err *e) {
    const json *j = json_parse_file(a, path, e), *rules = json_get_kind(j, "rules", JSON_ARRAY);
    if (!j) return false;
    if (!rules) return err_set(e, ERR_FORMAT, "%s: expected {\"rules\": [...]}", path);
    JSON_EACH(m, j) {
        if (m != rules) return err_set(e, ERR_FORMAT, "%s: unknown key \"%.50s\"", path, m->key);
    }
    quant_rule *rule = ARENA_ARRAY(a, quant_rule, rules->len);
    size_t n = 0;
    JSON_EACH(item, rules) {
        if (!read_rule(&rule[n], a, item, n + 1, by_name, e)) return err_where(e, "%s", path);
        n++;
    }
    r->rule = rule;
    r->n_rule = n;
    return true;
}
