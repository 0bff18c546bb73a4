/* NumPy archives as numpy.savez() writes them: a zip of stored files, each an array behind a header of text.
 */
#ifndef TEST_NPZ_H
#define TEST_NPZ_H
#include "base/file.h"
#include "base/num.h"
#include "ir/type.h"
#include "test.h"

typedef struct {
    char name[64];
    ir_type type;
    void *data;
} npz_array;

typedef struct {
    file_map map;
    npz_array array[48];
    size_t n;
} npz;

static inline void npz_header(npz_array *a, const char *text) {
    const char *descr = strstr(text, "'descr': '"), *shape = strstr(text, "'shape': (");
    if (!descr || !shape || strstr(text, "'fortran_order': True")) fail_msg("%s: %s", a->name, text);
    descr += 10;
    ir_dtype d = !strncmp(descr, "<f4", 3)   ? DT_FP32
                 : !strncmp(descr, "<f2", 3) ? DT_FP16
                 : !strncmp(descr, "<i4", 3) ? DT_INT32
                 : !strncmp(descr, "<f8", 3) ? DT_FP64
                                             : DT_INT64;
    a->type = ir_scalar(d);
    for (const char *p = shape + 10; *p && *p != ')';) {
        char *end;
        long size = strtol(p, &end, 10);
        if (end == p) break;
        a->type.dim[a->type.rank++] = size;
        p = *end == ',' ? end + 1 : end;
        while (*p == ' ') p++;
    }
}

static inline npz *npz_open(const char *path) {
    npz *z = calloc(1, sizeof *z);
    err e = {0};
    if (!file_open_map(&z->map, path, &e)) fail_msg("%s", e.msg);
    const uint8_t *p = z->map.data, *end = p + z->map.size;
    while (p + 30 < end && num_get32(p) == 0x04034B50) { /* local headers, one behind the other */
        assert_true(z->n < sizeof z->array / sizeof *z->array);
        npz_array *a = &z->array[z->n++];
        uint32_t size = num_get32(p + 18);
        uint16_t name = num_get16(p + 26), extra = num_get16(p + 28);
        assert_int_equal(num_get16(p + 8), 0); /* stored */
        if (size == UINT32_MAX)
            size = num_get32(p + 30 + name + 4 + 8); /* zip64: sizes are in the extra field */
        snprintf(a->name, sizeof a->name, "%.*s", name - 4, (const char *)p + 30); /* without .npy */
        const uint8_t *npy = p + 30 + name + extra;
        char text[256] = "";
        memcpy(text, npy + 10, num_get16(npy + 8) < 255 ? num_get16(npy + 8) : 255);
        npz_header(a, text);
        size_t head = 10 + (size_t)num_get16(npy + 8);
        a->data = malloc(size); /* aligned */
        memcpy(a->data, npy + head, size - head);
        p = npy + size;
    }
    return z;
}

static inline void npz_close(npz *z) {
    for (size_t i = 0; i < z->n; i++) free(z->array[i].data);
    file_unmap(&z->map);
    free(z);
}

static inline const npz_array *npz_find(const npz *z, const char *name) {
    for (size_t i = 0; i < z->n; i++)
        if (!strcmp(z->array[i].name, name)) return &z->array[i];
    return NULL;
}

static inline const npz_array *npz_get(const npz *z, const char *name) {
    const npz_array *a = npz_find(z, name);
    if (!a) fail_msg("no array %s", name);
    return a;
}

static inline float npz_float(const ir_type *t, const void *data, int64_t i) {
    return t->dtype == DT_FP16 ? num_f16_f32(num_get16((const uint8_t *)data + 2 * i))
                               : ((const float *)data)[i];
}
#endif
