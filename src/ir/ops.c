#include "ir/ops.h"
#include "base/map.h"
#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    uint8_t spec, flags;
    const char *operands;
} rows[OP_COUNT] = {
#define OP(name, spec, flags, operands) [OP_##name] = {#name, spec, flags, operands},
#include "ir/ops.def"
#undef OP
};

static const char *const operand_names[A_COUNT] = {
#define OPERAND(name) [A_##name] = #name,
#include "ir/operands.def"
#undef OPERAND
};

static ir_op_info infos[OP_COUNT];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static ir_operand operand_by_name(const char *s, size_t n) {
    for (int i = 1; i < A_COUNT; i++)
        if (strlen(operand_names[i]) == n && !memcmp(operand_names[i], s, n)) return (ir_operand)i;
    assert(!"operand missing in operands.def");
    return A_NONE;
}

static uint32_t dtype_mask(const char **s) {
    static const char letters[] = "hfibscCwWun12346";
    static const uint8_t dtypes[] = {DT_FP16,  DT_FP32,  DT_INT32,  DT_BOOL,   DT_STRING, DT_INT8,
                                     DT_UINT8, DT_INT16, DT_UINT16, DT_UINT32, DT_INT4,   DT_UINT1,
                                     DT_UINT2, DT_UINT3, DT_UINT4,  DT_UINT6};
    uint32_t mask = 0;
    const char *at;
    for (; **s && (at = strchr(letters, **s)); ++*s) mask |= 1u << dtypes[at - letters];
    return mask;
}

static uint8_t number(const char **s) {
    uint8_t v = 0;
    for (; **s >= '0' && **s <= '9'; ++*s) v = (uint8_t)(v * 10 + (**s - '0'));
    return v;
}

static void parse_slot(ir_slot *slot, const char **s) {
    size_t n = strcspn(*s, "*!?@:/ ");
    slot->name = operand_by_name(*s, n);
    *s += n;
    for (;; ++*s) {
        if (**s == '*')
            slot->variadic = true;
        else if (**s == '!')
            slot->is_const = true;
        else if (**s == '?')
            slot->optional = true;
        else
            break;
    }
    if (**s == '@') ++*s, slot->since = number(s);
    for (int i = 0; **s == ':' || **s == '/'; i++) {
        bool versioned = *(*s)++ == '/';
        if (versioned) slot->types[i].since = (uint8_t)(*(*s)++ - '0'); /* one digit: 7, 8 or 9 */
        slot->types[i].mask = dtype_mask(s);
    }
}

static void parse_rows(void) {
    for (int i = 1; i < OP_COUNT; i++) {
        ir_op_info *info = &infos[i];
        *info = (ir_op_info){.name = rows[i].name, .spec = rows[i].spec, .flags = rows[i].flags};
        for (const char *s = rows[i].operands; *s;) {
            assert(info->n_slot < IR_MAX_SLOTS);
            parse_slot(&info->slot[info->n_slot++], &s);
            if (*s == ' ') s++;
        }
    }
}

const ir_op_info *ir_info(ir_opcode code) {
    pthread_once(&once, parse_rows);
    return &infos[code];
}

ir_opcode ir_opcode_by_name(const char *name) {
    for (int i = 1; i < OP_COUNT; i++)
        if (!strcmp(rows[i].name, name)) return (ir_opcode)i;
    return OP_NONE;
}

const char *ir_operand_name(ir_operand name) {
    return operand_names[name];
}

int ir_slot_of(ir_opcode code, ir_operand name) {
    const ir_op_info *info = ir_info(code);
    for (int i = 0; i < info->n_slot; i++)
        if (info->slot[i].name == name) return i;
    return -1;
}

int ir_slot_by_text(ir_opcode code, const char *name) {
    const ir_op_info *info = ir_info(code);
    for (int i = 0; i < info->n_slot; i++)
        if (!strcmp(operand_names[info->slot[i].name], name)) return i;
    return -1;
}

uint32_t ir_slot_dtypes(const ir_slot *s, int spec) {
    uint32_t mask = 0;
    for (int i = 0; i < 3; i++)
        if (s->types[i].mask && s->types[i].since <= spec) mask = s->types[i].mask;
    return mask;
}
