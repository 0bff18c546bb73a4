/* The rules of single ops. */
#include "ir/verify_rules.h"
#include <string.h>

/* Operands that are scalars, and operands that are vectors, in every op that has them. What is not listed is
 * free, or checked by inference. */
static const uint8_t scalars[] = {A_axis,
                                  A_batch_dims,
                                  A_validate_indices,
                                  A_transpose_x,
                                  A_transpose_y,
                                  A_equation,
                                  A_groups,
                                  A_pad_type,
                                  A_mode,
                                  A_epsilon,
                                  A_keep_dims,
                                  A_output_dtype,
                                  A_num_splits,
                                  A_interleave,
                                  A_exclusive,
                                  A_k,
                                  A_ascending,
                                  A_sort,
                                  A_dtype,
                                  A_return_indices,
                                  A_lower,
                                  A_upper,
                                  A_constant_val,
                                  A_on_value,
                                  A_off_value,
                                  A_start,
                                  A_step,
                                  A_vector_axis,
                                  A_output_indices_dtype,
                                  A_one_hot_vector_size};
static const uint8_t vectors[] = {A_axes, A_perm, A_strides, A_dilations, A_split_sizes, A_pad, A_reps};

static void check_operand_rank(verifier *v, ir_operand name, const ir_type *t) {
    bool scalar = memchr(scalars, name, sizeof scalars), vector = memchr(vectors, name, sizeof vectors);
    if ((scalar && t->rank) || (vector && t->rank != 1))
        ver_bad(v, "operand-rank", "operand %s is %s, expected a %s", ir_operand_name(name),
                ir_type_text(v->scratch, t), scalar ? "scalar" : "vector");
}

static bool is_constant(const ir_value *value) {
    return value->konst || (value->def && ir_info(value->def->code)->flags & OPF_CONSTEXPR);
}

/* One value of an operand. False when nothing more can be said about the op. */
static bool check_use(verifier *v, const ir_op *op, const ir_slot *slot, const ir_value *value) {
    const char *name = ir_operand_name(slot->name);
    const ir_op_info *info = ir_info(op->code);
    if (!value) {
        ver_bad(v, "structure", "operand %s has no value", name);
        return false;
    }
    bool literal = value->konst && !value->def;
    if (value->id >= v->f->n_values || (!literal && v->live[value->id] != value)) {
        ver_bad(v, "undefined", "operand %s uses %s, which is not defined before it in its scope", name,
                ver_name(v, value));
        return false;
    }
    if (literal) {
        ver_const(v, value->konst, name);
        if (!ir_type_equal(&value->type, &value->konst->type))
            ver_bad(v, "declared-type", "operand %s does not have the type of its constant", name);
        v->live[value->id] = value;
        v->types[value->id] = value->type;
    }
    bool attribute =
        info->flags & OPF_CONSTEXPR && v->f->spec < 9; /* how constexprs hold operands before CoreML8 */
    if (attribute != (value->binding == IR_BY_ATTRIBUTE))
        ver_bad(v, "binding", "operand %s must %sbe an attribute in %s", name, attribute ? "" : "not ",
                ir_opset_name(v->f->spec));
    if (value->type.kind == IR_STATE) {
        if (!(info->flags & OPF_STATE) || slot->name != A_input) {
            ver_bad(v, "state-use", "operand %s is state %s; only read_state and write_state take states",
                    name, ver_name(v, value));
            return false;
        }
    }
    if (!(info->flags & OPF_CONSTEXPR)) v->used[value->id] = true;
    if (slot->is_const && !is_constant(value)) {
        ver_bad(v, "const-operand", "operand %s is %s, expected a constant", name, ver_name(v, value));
        return false;
    }
    check_operand_rank(v, slot->name, &value->type);
    return true;
}

bool ver_operands(verifier *v, const ir_op *op) {
    const ir_op_info *info = ir_info(op->code);
    bool usable = true;
    if (info->spec > v->f->spec && info->spec == IR_SPEC_COREAI)
        ver_bad(v, "opset", "Core ML has no such op");
    else if (info->spec > v->f->spec)
        ver_bad(v, "opset", "the op exists from %s on, the function has %s", ir_opset_name(info->spec),
                ir_opset_name(v->f->spec));
    for (int i = 0; i < info->n_slot; i++)
        for (uint32_t k = 0; k < op->arg[i].n; k++)
            usable &= check_use(v, op, &info->slot[i], op->arg[i].v[k]);
    if (op->code == OP_const && op->n_out == 1 && op->out[0] && op->out[0]->konst)
        ver_const(v, op->out[0]->konst, ver_name(v, op->out[0]));
    return usable;
}

static ir_type env_type(void *ctx, const ir_value *value) {
    return ver_type(ctx, value);
}

static const double *env_numbers(void *ctx, const ir_value *value, size_t *n, arena *a) {
    (void)ctx;
    return value->konst ? ir_const_numbers(value->konst, n, a) : NULL;
}

/* Declared against inferred; what is known of either is kept. */
static void check_declared(verifier *v, const ir_op *op, const ir_type *inferred) {
    for (uint32_t i = 0; i < op->n_out; i++) {
        const ir_value *out = op->out[i];
        if (!out || out->id >= v->f->n_values) continue;
        if (!ir_type_compatible(&out->type, &inferred[i])) {
            ver_bad(v, "declared-type", "%s is declared as %s but is %s", ver_name(v, out),
                    ir_type_text(v->scratch, &out->type), ir_type_text(v->scratch, &inferred[i]));
            continue;
        }
        for (int k = 0; k < out->type.rank; k++)
            if (out->type.dim[k] == IR_DIM_UNKNOWN) v->types[out->id].dim[k] = inferred[i].dim[k];
    }
}

static bool infer_types(verifier *v, const ir_op *op) {
    err e = {0};
    ir_env env = {v, env_type, env_numbers};
    ir_type *out = ARENA_ARRAY(v->scratch, ir_type, op->n_out + 1);
    infer in = {op, v->f->spec, &env, out, v->scratch, &e};
    const char *rule = !inf_operands(&in)     ? "operand"
                       : !inf_same_dtype(&in) ? "mixed-dtypes"
                       : !inf_outputs(&in)    ? "type"
                                              : NULL;
    if (rule) {
        ver_bad(v, e.code == ERR_UNSUPPORTED ? "unsupported" : rule, "%s", e.msg);
        return false;
    }
    check_declared(v, op, out);
    return true;
}

/* coremltools infers the result from a and b alone. */
static void check_select(verifier *v, const ir_op *op) {
    ir_type a = ver_type(v, ir_in(op, A_a)), b = ver_type(v, ir_in(op, A_b)),
            cond = ver_type(v, ir_in(op, A_cond));
    ir_type branches, all;
    if (!ir_broadcast(&a, &b, &branches) || !ir_broadcast(&branches, &cond, &all))
        return; /* reported already */
    if (!ir_type_compatible(&branches, &all))
        ver_bad(v, "select-branches", "a and b give %s, cond makes it %s: a or b must have the full shape",
                ir_type_text(v->scratch, &branches), ir_type_text(v->scratch, &all));
}

static uint64_t count_bits(const ir_const *c) {
    uint64_t n = 0;
    for (size_t i = 0; i < c->bytes; i++) n += (uint64_t)__builtin_popcount(((const uint8_t *)c->data)[i]);
    return n;
}

/* A sparse weight holds one value for every set bit of its mask. */
static void check_mask(verifier *v, const ir_op *op, ir_operand mask, ir_operand data) {
    const ir_value *m = ir_in(op, mask);
    ir_type values = ver_type(v, ir_in(op, data));
    if (!m->konst || !m->konst->data || values.rank != 1 || values.dim[0] == IR_DIM_UNKNOWN) return;
    uint64_t set = count_bits(m->konst);
    if (set != (uint64_t)values.dim[0])
        ver_bad(v, "sparse-mask", "operand %s has %llu bits set for %lld values", ir_operand_name(mask),
                (unsigned long long)set, (long long)values.dim[0]);
}

static void check_special(verifier *v, const ir_op *op) {
    switch (op->code) {
    case OP_linear: {
        ir_type x = ver_type(v, ir_in(op, A_x));
        if (x.rank > 3 && v->f->spec != IR_SPEC_COREAI)
            ver_bad(v, "linear-rank", "operand x is %s, expected rank 1 to 3", ir_type_text(v->scratch, &x));
        break;
    }
    case OP_select:
        if (v->f->spec != IR_SPEC_COREAI) check_select(v, op);
        break;
    case OP_slice_by_index:
    case OP_slice_update: ver_slices(v, op); break;
    case OP_constexpr_lut_to_dense:
    case OP_constexpr_sparse_to_dense: {
        bool flat = ir_in(op, A_shape) != NULL;
        if (flat != (v->f->spec < 9))
            ver_bad(v, "operand-version", "operand shape is %s",
                    flat ? "gone since CoreML8" : "needed before CoreML8");
        if (op->code == OP_constexpr_sparse_to_dense) check_mask(v, op, A_mask, A_nonzero_data);
        break;
    }
    case OP_constexpr_lut_to_sparse: check_mask(v, op, A_indices_mask, A_indices_nonzero_data); break;
    case OP_constexpr_sparse_blockwise_shift_scale: check_mask(v, op, A_data_mask, A_nonzero_data); break;
    default: break;
    }
}

/* Types that the weight file has no code for. */
static bool blobless(ir_dtype d) {
    return d == DT_BOOL || d == DT_STRING || d == DT_INT64 || d == DT_UINT64 || d == DT_FP64;
}

void ver_const(verifier *v, const ir_const *c, const char *name) {
    if (c->type.kind == IR_OPAQUE) {
        v->immediate += c->bytes;
        return;
    }
    int64_t n = ir_type_count(&c->type), bytes = ir_type_bytes(&c->type);
    if (c->type.kind != IR_TENSOR || n < 0 || bytes < 0 || c->type.dtype == DT_NONE) {
        ver_bad(v, "const-size", "constant %s has no definite size, %s", name,
                ir_type_text(v->scratch, &c->type));
        return;
    }
    if (c->type.dtype == DT_STRING) bytes = n * (int64_t)sizeof(ir_string);
    if (n && !c->data == !c->fill) ver_bad(v, "const-size", "constant %s has no data", name);
    if (c->data && c->bytes != (uint64_t)bytes)
        ver_bad(v, "const-size", "constant %s has %zu bytes, %s takes %lld", name, c->bytes,
                ir_type_text(v->scratch, &c->type), (long long)bytes);
    if ((c->in_blob || c->blob_file) && blobless((ir_dtype)c->type.dtype))
        ver_bad(v, "const-place", "constant %s: a weight file holds no %s", name,
                dtype_name((ir_dtype)c->type.dtype));
    if (!c->in_blob && !c->blob_file) v->immediate += (uint64_t)bytes;
}

void ver_types(verifier *v, const ir_op *op) {
    if (infer_types(v, op)) check_special(v, op);
}
