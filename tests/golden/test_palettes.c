/* Palettes beside coremltools' palettizer and the exact optimum (tests/oracle/make_palette_cases.py): groups
 * of weights of many distributions, 16, 64 and 256 entries. */
#include "base/json.h"
#include "base/num.h"
#include "ir/build.h"
#include "quantize/palette.h"
#include "quantize/quantize.h"
#include "test.h"
#include <math.h>

enum { MOST = 4096 };

typedef struct {
    arena *a;
    const char *name;
    int64_t rows, cols;
    uint16_t weight[MOST];
    size_t n;
    double x[MOST], count[MOST]; /* distinct values, ascending */
    size_t distinct;
} group;

static int ascending(const void *a, const void *b) {
    float x = num_f16_f32(*(const uint16_t *)a), y = num_f16_f32(*(const uint16_t *)b);
    return (x > y) - (x < y);
}

static group read_group(arena *a, const json *all, const json *j) {
    group g = {.a = a,
               .name = json_str(j, "name", ""),
               .rows = json_int(all, "rows", 0),
               .cols = json_int(all, "cols", 0)};
    const char *hex = json_str(j, "weights", "");
    g.n = strlen(hex) / 4;
    assert_true(g.n <= MOST && (int64_t)g.n == g.rows * g.cols);
    for (size_t i = 0; i < g.n; i++) {
        unsigned u;
        assert_int_equal(sscanf(hex + 4 * i, "%4x", &u), 1);
        g.weight[i] = (uint16_t)u;
    }
    uint16_t sorted[MOST];
    memcpy(sorted, g.weight, sizeof sorted);
    qsort(sorted, g.n, sizeof *sorted, ascending);
    for (size_t i = 0; i < g.n; i++) {
        double v = (double)num_f16_f32(sorted[i]);
        if (!g.distinct || g.x[g.distinct - 1] < v) g.x[g.distinct] = v, g.count[g.distinct++] = 0;
        g.count[g.distinct - 1]++;
    }
    return g;
}

/* Squared error of what a package would hold: the weight as a program's constant, compressed, decoded. */
static double error_as_written(const group *g, const char *scheme) {
    err e = {0};
    ir_program *p = ir_program_new(g->a);
    ir_const *w = ir_const_new(g->a, IR_TYPE(DT_FP16, g->rows, g->cols), g->weight);
    w->in_blob = true;
    ir_builder b = ir_build(p, "main", 9, &e);
    ir_value *x = b_input(&b, "x", IR_TYPE(DT_FP16, 1, g->cols)), *weight = b_const(&b, "w", w);
    b_output(&b, b_op(&b, OP_linear, "y", A_x, x, A_weight, weight, A_NONE));
    ir_build_end(&b);
    quant_recipe r = {.threads = 1};
    quant_report report;
    assert_true(quant_scheme_by_name(&r.weights, scheme, &e) && quantize_program(p, &r, NULL, &report, &e));
    const ir_op *op = NULL;
    for (size_t i = 0; i < p->func[0]->body.n_op; i++)
        if (p->func[0]->body.op[i]->code == OP_constexpr_lut_to_dense) op = p->func[0]->body.op[i];
    assert_non_null(op);
    const ir_const *codes = ir_in(op, A_indices)->konst, *table = ir_in(op, A_lut)->konst;
    uint8_t packed[MOST], q;
    uint16_t entry[PALETTE_MAX];
    assert_int_equal(table->type.dim[0], 1);
    assert_true(codes->fill(codes->fill_ctx, 0, g->n, packed, &e));
    assert_true(table->fill(table->fill_ctx, 0, (uint64_t)table->type.dim[2], entry, &e));
    double error = 0;
    for (size_t i = 0; i < g->n; i++) {
        num_unpack(&q, packed, i, 1, dtype_bits(codes->type.dtype));
        double d = (double)num_f16_f32(entry[q]) - (double)num_f16_f32(g->weight[i]);
        error += d * d;
    }
    return error;
}

static void check_fit(const group *g, const json *fit, palette_work *work) {
    int bits = (int)json_int(fit, "bits", 0);
    double optimum = json_double(fit, "optimum", NAN), theirs = json_double(fit, "coremltools", NAN),
           theirs_fp16 = json_double(fit, "coremltools_fp16", NAN), centre[PALETTE_MAX], error;
    size_t k = (size_t)1 << bits;
    palette_fit(work, g->x, g->count, g->distinct, k, centre, &error);
    /* sums of squares in double precision lose about 2^-52 of the whole in each addition */
    double whole = 0;
    for (size_t i = 0; i < g->distinct; i++) whole += g->count[i] * g->x[i] * g->x[i];
    double noise = 1e-13 * whole;
    if (fabs(error - optimum) > 1e-9 * optimum + noise)
        fail_msg("%s, %d bits: error %.12g, the least is %.12g", g->name, bits, error, optimum);
    if (error > theirs + noise)
        fail_msg("%s, %d bits: error %.12g, coremltools' %.12g", g->name, bits, error, theirs);
    char scheme[8];
    snprintf(scheme, sizeof scheme, "lut%d", bits);
    double written = error_as_written(g, scheme);
    if (written > 1.001 * theirs_fp16)
        fail_msg("%s, %d bits, fp16 table: error %.12g, coremltools' %.12g", g->name, bits, written,
                 theirs_fp16);
    if (g->distinct <= k && written != 0)
        fail_msg("%s, %d bits: %zu distinct values are not exact", g->name, bits, g->distinct);
    printf("%-22s %d bits: %.4g of coremltools' error, %.4g with fp16 tables\n", g->name, bits,
           theirs > 0 ? error / theirs : 1, theirs_fp16 > 0 ? written / theirs_fp16 : 1);
}

static void palettes_are_as_good_as_can_be(void **s) {
    (void)s;
    err e = {0};
    arena *a = arena_new();
    const char *source = getenv("MILLET_SOURCE");
    const json *all =
        json_parse_file(a, arena_printf(a, "%s/tests/data/palette_cases.json", source ? source : "."), &e);
    if (!all) fail_msg("%s", e.msg);
    palette_work *work = palette_work_new();
    size_t n = 0;
    JSON_EACH(j, json_get(all, "groups")) {
        group g = read_group(a, all, j);
        JSON_EACH(fit, json_get(j, "fits")) check_fit(&g, fit, work), n++;
    }
    assert_int_equal(n, 24);
    palette_work_free(work);
    arena_free(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(palettes_are_as_good_as_can_be)};
    return cmocka_run_group_tests_name("palettes", tests, NULL, NULL);
}
