/* predict PACKAGE: prints the signature of every function of a package, runs the default one twice on zeros,
 * and shows that a session keeps its states between runs while a reset forgets them. */
#include <inttypes.h>
#include <millet.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 256 };

static void print_feature(const char *kind, const millet_feature *f) {
    printf("  %s %s %s[", kind, f->name, millet_dtype_name(f->dtype));
    for (int i = 0; i < f->rank; i++) {
        printf("%s%" PRId64, i ? "," : "", f->lower[i]);
        if (f->upper[i] < 0)
            printf("..");
        else if (f->upper[i] != f->lower[i])
            printf("..%" PRId64, f->upper[i]);
    }
    printf("]\n");
}

static void print_signatures(const millet_package *p) {
    const char *kinds[] = {"input", "output", "state"};
    for (size_t i = 0; i < millet_function_count(p); i++) {
        const char *name = millet_function_name(p, i);
        printf("function %s\n", name);
        for (millet_kind k = MILLET_INPUT; k <= MILLET_STATE; k++) {
            millet_feature f = {.size = sizeof f};
            for (size_t j = 0; millet_feature_at(p, name, k, j, &f); j++) print_feature(kinds[k], &f);
        }
    }
}

/* Inputs of the default shapes, all zero. */
static size_t make_inputs(const millet_package *p, millet_tensor *in) {
    millet_feature f = {.size = sizeof f};
    size_t n = 0;
    for (; n < MOST && millet_feature_at(p, NULL, MILLET_INPUT, n, &f); n++) {
        in[n] = (millet_tensor){
            .name = f.name, .dtype = f.dtype, .rank = f.rank, .bytes = millet_dtype_size(f.dtype)};
        for (int i = 0; i < f.rank; i++) {
            in[n].shape[i] = f.shape[i];
            in[n].bytes *= (size_t)f.shape[i];
        }
        in[n].data = calloc(in[n].bytes + 1, 1);
    }
    return n;
}

static bool run(millet_session *s, const millet_tensor *in, size_t n, millet_error *e) {
    millet_tensor out[MOST];
    millet_call c = {.size = sizeof c, .input = in, .n_input = n, .output = out, .max_output = MOST};
    if (!millet_run(s, &c, e)) return false;
    for (size_t i = 0; i < c.n_output; i++) {
        printf("%s:", out[i].name);
        const float *x = out[i].dtype == MILLET_FP32 ? out[i].data : NULL;
        for (size_t j = 0; x && j < 4 && j < out[i].bytes / sizeof *x; j++) printf(" %g", (double)x[j]);
        printf(" (%zu bytes)\n", out[i].bytes);
    }
    return true;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: predict PACKAGE\n");
        return 2;
    }
    millet_error e;
    millet_package *p = millet_package_open(argv[1], NULL, &e);
    millet_session *s = p ? millet_session_new(p, NULL, &e) : NULL;
    bool ok = s != NULL;
    if (ok) {
        static millet_tensor in[MOST];
        print_signatures(p);
        size_t n = make_inputs(p, in);
        ok = run(s, in, n, &e) && run(s, in, n, &e); /* the second run sees the states of the first */
        millet_state_reset(s);
        ok = ok && run(s, in, n, &e);
        for (size_t i = 0; i < n; i++) free((void *)in[i].data);
    }
    if (!ok) fprintf(stderr, "%s\n", e.message);
    millet_session_free(s);
    millet_package_close(p);
    return !ok;
}
