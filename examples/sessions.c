/* sessions PACKAGE: one opened package, two sessions that run its default function in two threads at the same
 * time. Each has its own states: it gets what it would get alone. */
#include <millet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64, STEPS = 8 };

/* One timeline: calls on inputs that depend on the step and on the thread. */
typedef struct {
    const millet_package *package;
    int number;
    void *last; /* the first output of the last step; free() it */
    size_t bytes;
    bool ok;
    millet_error e;
} timeline;

/* Element i of an input: the step where integers are wanted (a position), something small where floats are.
 */
static void set_element(void *data, millet_dtype d, size_t i, int step, int number) {
    if (d == MILLET_INT32) ((int32_t *)data)[i] = step;
    if (d == MILLET_FP32) ((float *)data)[i] = 0.01f * (float)(number + (int)(i % 5));
    if (d == MILLET_FP16)
        ((uint16_t *)data)[i] = (uint16_t)(0x2000 + 0x80 * (number + (int)(i % 5))); /* 2^-7 ... */
}

static size_t make_inputs(const millet_package *p, millet_tensor *in) {
    millet_feature f = {.size = sizeof f};
    size_t n = 0;
    for (; n < MOST && millet_feature_at(p, NULL, MILLET_INPUT, n, &f); n++) {
        in[n] = (millet_tensor){
            .name = f.name, .dtype = f.dtype, .rank = f.rank, .bytes = millet_dtype_size(f.dtype)};
        for (int k = 0; k < f.rank; k++) {
            in[n].shape[k] = f.shape[k];
            in[n].bytes *= (size_t)f.shape[k];
        }
        in[n].data = calloc(in[n].bytes + 1, 1);
    }
    return n;
}

static void *run(void *arg) {
    timeline *t = arg;
    millet_tensor in[MOST], out[MOST];
    size_t n = make_inputs(t->package, in);
    const millet_session_options o = {.size = sizeof o, .threads = 1}; /* one each: there are two of us */
    millet_session *s = millet_session_new(t->package, &o, &t->e);
    t->ok = s != NULL;
    for (int step = 0; t->ok && step < STEPS; step++) {
        for (size_t i = 0; i < n; i++)
            for (size_t k = 0; k < in[i].bytes / millet_dtype_size(in[i].dtype); k++)
                set_element((void *)in[i].data, in[i].dtype, k, step, t->number);
        millet_call c = {.size = sizeof c, .input = in, .n_input = n, .output = out, .max_output = MOST};
        t->ok = millet_run(s, &c, &t->e);
    }
    t->last = t->ok ? malloc(out[0].bytes + 1) : NULL; /* results end with their session */
    if (t->last) memcpy(t->last, out[0].data, t->bytes = out[0].bytes);
    for (size_t i = 0; i < n; i++) free((void *)in[i].data);
    millet_session_free(s);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: sessions PACKAGE\n");
        return 2;
    }
    millet_error e;
    millet_package *p = millet_package_open(argv[1], NULL, &e);
    if (!p) {
        fprintf(stderr, "%s\n", e.message);
        return 1;
    }
    timeline together[2] = {{.package = p, .number = 1}, {.package = p, .number = 2}}, alone[2];
    memcpy(alone, together, sizeof alone);
    pthread_t thread[2];
    bool ok = true;
    for (int i = 0; i < 2; i++) pthread_create(&thread[i], NULL, run, &together[i]);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < 2; i++) {
        run(&alone[i]);
        if (!together[i].ok || !alone[i].ok) {
            fprintf(stderr, "%s\n", (together[i].ok ? alone : together)[i].e.message);
            ok = false;
            continue;
        }
        bool same =
            together[i].bytes == alone[i].bytes && !memcmp(together[i].last, alone[i].last, alone[i].bytes);
        printf("session %d: %zu bytes, %s\n", i + 1, together[i].bytes, same ? "as alone" : "not as alone");
        ok = ok && same;
    }
    if (ok && together[0].bytes == together[1].bytes)
        printf("the two %s\n",
               memcmp(together[0].last, together[1].last, together[0].bytes) ? "differ" : "agree");
    for (int i = 0; i < 2; i++) free(together[i].last), free(alone[i].last);
    millet_package_close(p);
    return !ok;
}
