#include "convert/signature.h"
#include "base/file.h"
#include "base/parallel.h"
#include <inttypes.h>
#include <string.h>

const char *const signature_metadata_keys[] = {"converter", "graph", "scheme", NULL};
const char *const signature_manifest_keys[] = {"converter", "options", NULL};

typedef struct {
    const checkpoint *c;
    char (*hex)[SHA256_HEX];
} digests;

#define PIECE ((size_t)4 << 20)

static void hash_tensor(void *ctx, size_t i, unsigned thread) {
    (void)thread;
    digests *d = ctx;
    const st_tensor *t = checkpoint_at(d->c, i);
    uint64_t n;
    const uint8_t *stored = st_stored(t, &n);
    sha256 h;
    sha256_init(&h);
    for (uint64_t at = 0; at < n; at += PIECE) {
        const uint8_t *piece = stored + at;
        size_t m = n - at < PIECE ? (size_t)(n - at) : PIECE;
        sha256_update(&h, piece, m);
        file_drop(piece, m);
    }
    sha256_final(&h, d->hex[i]);
}

static void add_tensor(str *s, const st_tensor *t, const char *hex) {
    str_printf(s, "%s %s [", t->name, t->view ? t->view->form->name : dtype_name(t->type.dtype));
    for (int i = 0; i < t->type.rank; i++) str_printf(s, "%s%" PRId64, i ? "," : "", t->type.dim[i]);
    str_printf(s, "] %s\n", hex);
}

void signature_make(char hex[SHA256_HEX], const checkpoint *c, const json *document,
                    const char *const *keys) {
    arena *a = arena_new();
    size_t n = checkpoint_count(c);
    digests d = {c, arena_array(a, n, SHA256_HEX)};
    parallel_for(n, 0, hash_tensor, &d);
    str s = {0};
    str_addc(&s, '{');
    for (; *keys; keys++) {
        const json *v = json_get(document, *keys);
        if (!v) continue;
        str_printf(&s, "%s\"%s\":", s.len > 1 ? "," : "", *keys);
        json_canonical(&s, v);
    }
    str_adds(&s, "}\n");
    for (size_t i = 0; i < n; i++) add_tensor(&s, checkpoint_at(c, i), d.hex[i]);
    sha256 h;
    sha256_init(&h);
    sha256_update(&h, s.s, s.len);
    sha256_final(&h, hex);
    str_free(&s);
    arena_free(a);
}

bool signature_seal(str *text, const checkpoint *c, const char *const *keys, err *e) {
    arena *a = arena_new();
    const json *j = json_parse(a, "the document", str_get(text), text->len, e);
    const json *place = json_get_kind(j, "signature", JSON_STRING);
    bool ok = place && place->len == SHA256_HEX - 1;
    if (ok) {
        signature_make((char *)place->s, c, j, keys);
        str_clear(text);
        json_pretty(text, j);
    }
    arena_free(a);
    return ok || err_set(e, ERR_INVALID, "the document has no place for a signature");
}
