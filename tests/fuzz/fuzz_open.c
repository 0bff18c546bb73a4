/* Hostile files through the public interface. The first byte says what the others are:
 *
 *   c  a contract, for the packages of a shared case (MILLET_CASES; without them nothing is done)
 *   g  a GGUF file, which is converted; what comes of it is opened and run
 *   p  a package: u16 n, n bytes of model, the rest is its weight.bin
 *
 * What is accepted works or fails with an error. */
#define _GNU_SOURCE
#include "base/file.h"
#include "base/num.h"
#include "millet.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static char top[] = "/tmp/millet-fuzz-XXXXXX";

static void must(bool ok) {
    if (!ok) abort();
}

static void clean(void) {
    err e = {0};
    file_remove_tree(top, &e);
}

static const char *in_top(const char *name) {
    static char path[2][160];
    static int turn;
    char *p = path[turn++ % 2];
    snprintf(p, sizeof path[0], "%s/%s", top, name);
    return p;
}

static void write_file(const char *name, const void *data, size_t n) {
    err e = {0};
    must(file_write(in_top(name), data, n, &e));
}

static void set_up(void) {
    err e = {0};
    static const char manifest[] =
        "{\"fileFormatVersion\":\"1.0.0\",\"rootModelIdentifier\":\"m\",\"itemInfoEntries\":{"
        "\"m\":{\"author\":\"com.apple.CoreML\",\"description\":\"d\",\"name\":\"model.mlmodel\",\"path\":"
        "\"com.apple.CoreML/"
        "model.mlmodel\"},"
        "\"w\":{\"author\":\"com.apple.CoreML\",\"description\":\"d\",\"name\":\"weights\",\"path\":\"com."
        "apple.CoreML/"
        "weights\"}}}";
    must(mkdtemp(top) != NULL);
    atexit(clean);
    must(file_make_dirs(in_top("p.mlpackage/Data/com.apple.CoreML/weights"), &e));
    write_file("p.mlpackage/Manifest.json", manifest, sizeof manifest - 1);
}

/* ---- what opened is used ---- */

static void generate(const char *path, const char *contract) {
    static const int32_t ids[] = {1, 2, 3};
    millet_error e = {0};
    const millet_lm_options o = {.size = sizeof o, .contract = contract};
    millet_lm *m = millet_lm_open(path, &o, &e);
    must(!m == (e.code != MILLET_OK) && (m || *e.message));
    if (!m) return;
    const millet_generate_options g = {.size = sizeof g, .max_new_tokens = 2, .ignore_eos = true};
    millet_generation r = {.size = sizeof r};
    e = (millet_error){0};
    bool ok = millet_generate_ids(m, ids, 3, &g, &r, &e);
    must(ok == (e.code == MILLET_OK));
    millet_free(r.ids);
    millet_lm_close(m);
}

enum { MOST_IN = 16, MOST_BYTES = 1 << 18 };

/* Zeros for what the function asks for; false where that is too much, or no tensor. */
static bool zeros(const millet_package *p, const char *function, millet_tensor *in, size_t *n) {
    static const uint8_t zero[MOST_BYTES];
    millet_feature f = {.size = sizeof f};
    for (*n = 0; millet_feature_at(p, function, MILLET_INPUT, *n, &f); ++*n) {
        if (*n == MOST_IN || !f.dtype || f.rank < 0) return false;
        millet_tensor *t = &in[*n];
        *t = (millet_tensor){.name = f.name, .dtype = f.dtype, .rank = f.rank, .data = zero};
        t->bytes = millet_dtype_size(f.dtype);
        for (int d = 0; d < f.rank; d++) {
            t->shape[d] = f.shape[d];
            if (f.shape[d] < 0 || f.shape[d] > MOST_BYTES || (t->bytes *= (size_t)f.shape[d]) > MOST_BYTES)
                return false;
        }
    }
    return true;
}

static void run(const millet_package *p, const char *function, millet_precision mode) {
    millet_tensor in[MOST_IN], out[MOST_IN];
    millet_call c = {
        .size = sizeof c, .function = function, .input = in, .output = out, .max_output = MOST_IN};
    millet_error e = {0};
    if (!zeros(p, function, in, &c.n_input)) return;
    const millet_session_options o = {.size = sizeof o, .precision = mode, .threads = 1};
    millet_session *s = millet_session_new(p, &o, &e);
    must(!s == (e.code != MILLET_OK));
    for (int i = 0; i < 2 && s; i++) {
        e = (millet_error){0};
        must(millet_run(s, &c, &e) == (e.code == MILLET_OK));
    }
    millet_session_free(s);
}

static void use_package(void) {
    millet_error e = {0};
    millet_package *p = millet_package_open(in_top("p.mlpackage"), NULL, &e);
    must(!p == (e.code != MILLET_OK) && (p || *e.message));
    for (size_t i = 0; p && i < millet_function_count(p); i++)
        for (int mode = 0; mode < 2; mode++)
            run(p, millet_function_name(p, i), mode ? MILLET_STRICT : MILLET_FAST);
    millet_package_close(p);
}

/* ---- the three kinds ---- */

static void contract(const uint8_t *data, size_t n) {
    static const char *const cases[] = {"anemll035-llama-lut6-4pertensor-6",
                                        "johnrocky-qwen3-fp16-monolithic",
                                        "bhctsntrk-anemll-qwen3.5-lut4-2chunk"};
    const char *shared = getenv("MILLET_CASES");
    char path[300];
    if (!shared) return;
    write_file("contract.json", data, n);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(path, sizeof path, "%s/thirdparty/%s", shared, cases[i]);
        if (file_exists(path)) generate(path, in_top("contract.json"));
    }
}

static void gguf(const uint8_t *data, size_t n) {
    static const char *const schemes[] = {NULL, "keep", "w8", "lut4"};
    millet_error e = {0};
    err ignored = {0};
    write_file("m.gguf", data, n);
    const char *scheme = schemes[n % 4]; /* mutations change it often enough */
    const millet_convert_options o = {.size = sizeof o,
                                      .quantize = scheme,
                                      .overwrite = true,
                                      .context = 16,
                                      .preset = n % 8 < 4 ? NULL : "single"};
    bool ok = millet_convert(in_top("m.gguf"), in_top("out"), &o, NULL, &e);
    must(ok == (e.code == MILLET_OK) && ok == file_exists(in_top("out")));
    if (ok) generate(in_top("out"), NULL);
    if (ok) must(file_remove_tree(in_top("out"), &ignored));
}

static void package(const uint8_t *data, size_t n) {
    if (n < 2) return;
    size_t model = num_get16(data);
    data += 2, n -= 2;
    if (model > n) model = n;
    write_file("p.mlpackage/Data/com.apple.CoreML/model.mlmodel", data, model);
    write_file("p.mlpackage/Data/com.apple.CoreML/weights/weight.bin", data + model, n - model);
    use_package();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static bool ready;
    if (!ready) set_up();
    ready = true;
    if (!n) return 0;
    switch (*data) {
    case 'c': contract(data + 1, n - 1); break;
    case 'g': gguf(data + 1, n - 1); break;
    case 'p': package(data + 1, n - 1); break;
    default: break;
    }
    return 0;
}
