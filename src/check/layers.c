#include "check/layers.h"
#include "check/side.h"
#include <math.h>
#include <stdlib.h>

#define MOST_LAYERS 1024

/* The reference's values of one layer and block, and how far the artifact has been compared with them. */
typedef struct {
    float *x;
    size_t n, at;
    check_layer sum;
} layer_block;

struct layer_capture {
    check_layers *r;
    const lm *artifact;
    layer_block *layer; /* by number */
    size_t n;
    check_boundary *boundary;
    size_t n_boundary;
};

/* The last layer whose output the package makes; -1: none. */
static int64_t last_layer(const lm *m, size_t package) {
    const ir_function *f = side_function(m, package);
    int64_t last = -1;
    for (size_t i = 0; f && i < f->body.n_op; i++)
        for (uint32_t k = 0; k < f->body.op[i]->n_out; k++) {
            int64_t layer = side_layer_of(f->body.op[i]->out[k]->name);
            if (layer > last && layer < MOST_LAYERS) last = layer;
        }
    return last;
}

layer_capture *layers_new(check_layers *r, const lm *artifact, const lm *reference) {
    layer_capture *c = mem_alloc(sizeof *c);
    *c = (layer_capture){.r = r, .artifact = artifact};
    for (size_t i = 0; i < reference->n_model; i++) {
        size_t n = (size_t)(last_layer(reference, i) + 1);
        if (n > c->n) c->n = n;
    }
    c->layer = mem_alloc(c->n * sizeof *c->layer);
    for (size_t i = 0; i < c->n; i++) c->layer[i] = (layer_block){0};
    c->n_boundary = artifact->form.n_layers;
    c->boundary = mem_alloc(c->n_boundary * sizeof *c->boundary);
    for (size_t i = 0; i < c->n_boundary; i++)
        c->boundary[i] = (check_boundary){artifact->name[i], {.layer = last_layer(artifact, i)}};
    return c;
}

static void finish(check_layer *l) {
    l->error = l->norm > 0 ? sqrt(l->difference / l->norm) : l->difference > 0 ? INFINITY : 0;
}

void layers_end(layer_capture *c) {
    if (!c) return;
    check_layers *r = c->r;
    r->layer = mem_alloc(c->n * sizeof *r->layer);
    for (size_t i = 0; i < c->n; i++) {
        c->layer[i].sum.layer = (int64_t)i;
        finish(&c->layer[i].sum);
        if (c->layer[i].sum.values) r->layer[r->n++] = c->layer[i].sum;
        mem_free(c->layer[i].x);
    }
    for (size_t i = 0; i < c->n_boundary; i++) finish(&c->boundary[i].out);
    r->boundary = c->boundary;
    r->n_boundary = c->n_boundary;
    mem_free(c->layer);
    mem_free(c);
}

static void add(check_layer *sum, const float *ref, const float *got, size_t n) {
    for (size_t i = 0; i < n; i++) {
        double d = (double)got[i] - (double)ref[i];
        sum->difference += d * d;
        sum->norm += (double)ref[i] * (double)ref[i];
    }
    sum->values += n;
}

static layer_block *block_of(layer_capture *c, const ir_value *v) {
    int64_t layer = side_layer_of(v->name);
    return layer >= 0 && (size_t)layer < c->n ? &c->layer[layer] : NULL;
}

static void on_reference(void *ctx, const ir_value *v, const float *x, size_t n) {
    layer_block *b = block_of(ctx, v);
    if (!b) return;
    b->x = mem_realloc(b->x, (b->n + n) * sizeof *b->x);
    for (size_t i = 0; i < n; i++) b->x[b->n + i] = x[i];
    b->n += n;
}

static void on_artifact(void *ctx, const ir_value *v, const float *x, size_t n) {
    layer_block *b = block_of(ctx, v);
    if (!b || n > b->n - b->at) return;
    add(&b->sum, b->x + b->at, x, n);
    b->at += n;
}

void layers_watch(layer_capture *c, decoder *reference, decoder *artifact) {
    for (size_t i = 0; i < decoder_lm(reference)->n_model; i++)
        rt_session_observe(decoder_session(reference, i), on_reference, c);
    for (size_t i = 0; i < c->artifact->n_model; i++)
        rt_session_observe(decoder_session(artifact, i), on_artifact, c);
}

void layers_begin(layer_capture *c) {
    for (size_t i = 0; i < c->n; i++) c->layer[i].n = c->layer[i].at = 0;
}

void layers_handed(layer_capture *c, size_t package, size_t first, const float *hidden, size_t n) {
    if (package >= c->n_boundary) return;
    check_boundary *b = &c->boundary[package];
    const layer_block *l = b->out.layer >= 0 && (size_t)b->out.layer < c->n ? &c->layer[b->out.layer] : NULL;
    size_t width = (size_t)c->artifact->form.hidden, at = first * width;
    if (l && at + n <= l->n) add(&b->out, l->x + at, hidden, n);
}

void check_layers_free(check_layers *r) {
    mem_free(r->layer);
    mem_free(r->boundary);
    *r = (check_layers){0};
}
