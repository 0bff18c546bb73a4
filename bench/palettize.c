/* palettize ROWS COLS BITS FILE: compresses the fp16 matrix in FILE (rows of halves, little-endian) as
 * `millet convert
 * --quantize lutBITS` does, on one thread, and prints {"cpu_seconds", "relative_error"}. bench/palettize.py
 * runs it. */
#include "base/file.h"
#include "ir/build.h"
#include "quantize/quantize.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const ir_op *compressed(const ir_program *p) {
    const ir_block *b = &p->func[0]->body;
    for (size_t i = 0; i < b->n_op; i++)
        if (b->op[i]->code == OP_constexpr_lut_to_dense) return b->op[i];
    return NULL;
}

/* Asks for the bytes in blocks, as the package writer does. */
static bool make(const ir_const *c, err *e) {
    uint64_t n = (uint64_t)ir_type_count(&c->type), unit = c->fill_unit ? c->fill_unit : 64,
             block = unit < 1 << 22 ? (1 << 22) / unit * unit : unit;
    void *bytes = mem_alloc(2 * (size_t)block);
    bool ok = true;
    for (uint64_t i = 0; ok && i < n; i += block)
        ok = c->fill(c->fill_ctx, i, n - i < block ? n - i : block, bytes, e);
    mem_free(bytes);
    return ok;
}

int main(int argc, char **argv) {
    err e = {0};
    file_map m;
    if (argc != 5 || !file_open_map(&m, argv[4], &e))
        return fprintf(stderr, "palettize ROWS COLS BITS FILE %s\n", e.msg), 1;
    arena *a = arena_new();
    int64_t rows = atoll(argv[1]), cols = atoll(argv[2]);
    if (rows < 1 || cols < 1 || m.size != (size_t)rows * (size_t)cols * 2)
        return fprintf(stderr, "FILE: wrong size\n"), 1;
    ir_program *p = ir_program_new(a);
    ir_const *w = ir_const_new(a, IR_TYPE(DT_FP16, rows, cols), m.data);
    w->in_blob = true;
    ir_builder b = ir_build(p, "main", 9, &e);
    ir_value *x = b_input(&b, "x", IR_TYPE(DT_FP16, 1, cols));
    b_output(&b, b_op(&b, OP_linear, "y", A_x, x, A_weight, b_const(&b, "w", w), A_NONE));
    ir_build_end(&b);
    quant_recipe r = {.threads = 1};
    quant_report report;
    bool ok = quant_scheme_by_name(&r.weights, arena_printf(a, "lut%s", argv[3]), &e) &&
              quantize_program(p, &r, NULL, &report, &e);
    const ir_op *op = ok ? compressed(p) : NULL;
    clock_t start = clock();
    ok = op && make(ir_in(op, A_indices)->konst, &e) && make(ir_in(op, A_lut)->konst, &e);
    if (!ok) return fprintf(stderr, "not compressed: %s\n", e.msg), 1;
    printf("{\"cpu_seconds\": %.9g, \"relative_error\": %.9g}\n", (double)(clock() - start) / CLOCKS_PER_SEC,
           report.weight[0]->error);
    arena_free(a);
    file_unmap(&m);
    return 0;
}
