#include "base/num.h"
#include "ir/build.h"
#include "quantize/quantize.h"
#include "test.h"
#include <math.h>

enum { ROWS = 64, COLS = 96 };

typedef struct {
    arena *a;
    ir_program *p;
    uint16_t w[ROWS * COLS];
    quant_report report;
    err e;
} fixture;

static bool is_head(const char *name) {
    return !strncmp(name, "head", 4);
}

static float normal(uint32_t *seed) { /* sum of 12 uniforms */
    float s = -6;
    for (int i = 0; i < 12; i++) s += (float)((*seed = *seed * 1664525u + 1013904223u) >> 8) * 0x1p-24f;
    return s;
}

/* Two functions that share one weight, a head, a weight that is too small, and one that is not only a weight.
 */
static void build(fixture *f, unsigned distinct) {
    *f = (fixture){.a = arena_new()};
    f->p = ir_program_new(f->a);
    uint32_t seed = 7;
    for (int i = 0; i < ROWS * COLS; i++) {
        float v = 0.02f * normal(&seed);
        f->w[i] = num_f32_f16(distinct ? 0.125f * (float)((unsigned)(v * 10000 + 5000) % distinct) - 1 : v);
    }
    ir_const *shared = ir_const_new(f->a, IR_TYPE(DT_FP16, ROWS, COLS), f->w);
    ir_const *head = ir_const_new(f->a, IR_TYPE(DT_FP16, ROWS, COLS), f->w);
    ir_const *small = ir_const_new(f->a, IR_TYPE(DT_FP16, 8, COLS), f->w);
    shared->in_blob = head->in_blob = small->in_blob = true;
    for (int i = 0; i < 2; i++) {
        ir_builder b = ir_build(f->p, i ? "two" : "one", 9, &f->e);
        ir_value *x = b_input(&b, "x", IR_TYPE(DT_FP16, 1, COLS));
        ir_value *weight = b_const(&b, "layer_weight", shared);
        b_output(&b, b_op(&b, OP_linear, "y", A_x, x, A_weight, weight, A_NONE));
        b_output(&b, b_op(&b, OP_linear, "z", A_x, x, A_weight, b_const(&b, "head_weight", head), A_NONE));
        b_output(&b, b_op(&b, OP_linear, "s", A_x, x, A_weight, b_const(&b, "small_weight", small), A_NONE));
        ir_build_end(&b);
    }
    assert_int_equal(f->e.code, ERR_NONE);
}

static void compress(fixture *f, const char *scheme, const char *vocab) {
    quant_recipe r = {.threads = 2};
    assert_true(quant_scheme_by_name(&r.weights, scheme, &f->e));
    if (vocab) r.vocab_apart = quant_scheme_by_name(&r.vocab, vocab, &f->e);
    assert_true(quantize_program(f->p, &r, is_head, &f->report, &f->e));
}

static const ir_op *op_of(const fixture *f, int function, const char *name) {
    const ir_block *b = &f->p->func[function]->body;
    for (size_t i = 0; i < b->n_op; i++)
        if (b->op[i]->n_out && !strcmp(b->op[i]->out[0]->name, name)) return b->op[i];
    fail_msg("no op %s", name);
    return NULL;
}

/* The bytes of a fill job, asked for in pieces of `unit` elements, as the writer does. */
static void *bytes_of(fixture *f, const ir_const *c, uint64_t units) {
    uint64_t n = (uint64_t)ir_type_count(&c->type), step = units * (c->fill_unit ? c->fill_unit : 64);
    uint8_t *out = arena_alloc(f->a, (size_t)ir_type_bytes(&c->type));
    for (uint64_t i = 0; i < n; i += step) {
        uint64_t m = n - i < step ? n - i : step;
        assert_true(c->fill(c->fill_ctx, i, m, out + i * dtype_bits(c->type.dtype) / 8, &f->e));
    }
    return out;
}

/* What the op's definition (facts of the format: lut_to_dense, blockwise_shift_scale) makes of the operands.
 */
static void decode(fixture *f, const ir_op *op, float *out) {
    bool lut = op->code == OP_constexpr_lut_to_dense;
    const ir_const *codes = ir_in(op, lut ? A_indices : A_data)->konst,
                   *table = ir_in(op, lut ? A_lut : A_scale)->konst;
    const uint8_t *packed = bytes_of(f, codes, 1);
    const uint16_t *t = bytes_of(f, table, 1);
    assert_memory_equal(packed, bytes_of(f, codes, 1000), (size_t)ir_type_bytes(&codes->type));
    unsigned bits = dtype_bits(codes->type.dtype);
    int64_t group_rows = ROWS / table->type.dim[0], per = lut ? 0 : COLS / table->type.dim[1];
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLS; c++) {
            uint8_t q;
            num_unpack(&q, packed, (size_t)(r * COLS + c), 1, bits);
            float v =
                lut ? num_f16_f32(t[r / group_rows * (1 << bits) + q])
                    : num_f16_f32(t[r * table->type.dim[1] + c / per]) * (float)num_sign_extend(q, bits);
            out[r * COLS + c] = num_round_f16(v);
        }
}

static double relative_error(const fixture *f, const float *got) {
    double e = 0, s = 0;
    for (int i = 0; i < ROWS * COLS; i++) {
        double x = (double)num_f16_f32(f->w[i]), d = (double)got[i] - x;
        e += d * d, s += x * x;
    }
    return sqrt(e / s);
}

static void every_scheme_decodes(void **s) {
    (void)s;
    /* Bounds: a uniform quantizer of step q has error q / sqrt(12). Of normal weights, in blocks of 32
     * (absmax about 2.3 sigma) int8: 2.3/127/3.46 = 0.5 %, int4: 2.3/7/3.46 = 9.5 %; per channel of 96 (2.6
     * sigma): 0.6 %. The best 64-entry palette of a normal density: sqrt(2.72)/64 = 2.6 % (Panter-Dite), 16
     * entries 10 %, 256 entries 0.65 %. */
    static const struct {
        const char *name;
        double most;
    } schemes[] = {{"lut4", .105}, {"lut6", .027},   {"lut8", .0066},
                   {"w8", .0065},  {"w8b32", .0058}, {"w4", .095}};
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        fixture f;
        float got[ROWS * COLS];
        build(&f, 0);
        compress(&f, schemes[i].name, NULL);
        decode(&f, op_of(&f, 0, "layer_weight"), got);
        double error = relative_error(&f, got);
        assert_true(error > 0 && error < schemes[i].most);
        assert_int_equal(f.report.n, 3);
        assert_true(fabs(f.report.weight[0]->error - error) < 1e-6 * error);
        assert_non_null(f.report.weight[2]->why);
        assert_int_equal(op_of(&f, 0, "small_weight")->code, OP_const);
        assert_ptr_equal(ir_in(op_of(&f, 0, "layer_weight"), i < 3 ? A_indices : A_data)->konst,
                         ir_in(op_of(&f, 1, "layer_weight"), i < 3 ? A_indices : A_data)->konst);
        arena_free(f.a);
    }
}

static void few_distinct_values_are_exact(void **s) {
    (void)s;
    static const char *const names[] = {"lut4", "lut6", "lut8"};
    for (int i = 0; i < 3; i++) {
        fixture f;
        float got[ROWS * COLS];
        build(&f, 16);
        compress(&f, names[i], NULL);
        decode(&f, op_of(&f, 0, "layer_weight"), got);
        assert_true(relative_error(&f, got) == 0);
        arena_free(f.a);
    }
}

static void vocabulary_and_rules_choose(void **s) {
    (void)s;
    fixture f;
    build(&f, 0);
    compress(&f, "w4", "w8b32");
    assert_int_equal(ir_in(op_of(&f, 0, "layer_weight"), A_data)->type.dtype, DT_INT4);
    assert_int_equal(ir_in(op_of(&f, 0, "head_weight"), A_data)->type.dtype, DT_INT8);
    arena_free(f.a);
    build(&f, 0);
    quant_rule rule = {.pattern = "lay*weight"};
    quant_recipe r = {.rule = &rule, .n_rule = 1};
    assert_true(quant_scheme_by_name(&rule.scheme, "lut6", &f.e) &&
                quant_scheme_by_name(&r.weights, "fp16", &f.e));
    assert_true(quantize_program(f.p, &r, is_head, &f.report, &f.e));
    assert_int_equal(op_of(&f, 0, "layer_weight")->code, OP_constexpr_lut_to_dense);
    assert_int_equal(op_of(&f, 0, "head_weight")->code, OP_const);
    assert_false(quant_scheme_by_name(&rule.scheme, "lut5", &f.e));
    arena_free(f.a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_scheme_decodes),
        cmocka_unit_test(few_distinct_values_are_exact),
        cmocka_unit_test(vocabulary_and_rules_choose),
    };
    return cmocka_run_group_tests_name("quantize", tests, NULL, NULL);
}
