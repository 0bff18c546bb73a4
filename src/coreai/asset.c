#include "coreai/asset.h"
#include "base/json.h"
#include "base/sha256.h"
#include <string.h>

#define HASH_BYTES 32

static const char *in(arena *a, const char *dir, const char *name) {
    return arena_printf(a, "%s/%s", dir, name);
}

bool ai_asset_is(const char *path) {
    arena *a = arena_new();
    bool is = file_exists(in(a, path, "main.mlirb"));
    arena_free(a);
    return is;
}

/* "2.0": the major version is what readers go by. */
static bool check_metadata(ai_asset *x, err *e) {
    const char *path = in(x->a, x->path, "metadata.json");
    if (!(x->metadata = json_object_file(x->a, path, e))) return false;
    const char *version = json_str(x->metadata, "assetVersion", NULL);
    if (!version) return err_set(e, ERR_FORMAT, "%s: no assetVersion", path);
    return (version[0] == '2' && (!version[1] || version[1] == '.')) ||
           err_set(e, ERR_UNSUPPORTED, "%s: assetVersion %.40s, expected 2.0", path, version);
}

/* What the bundle around it says, if there is one. */
static bool read_bundle(ai_asset *x, err *e) {
    const char *slash = strrchr(x->path, '/'), *name = slash ? slash + 1 : x->path;
    const char *dir = !slash             ? "."
                      : slash == x->path ? ""
                                         : arena_strn(x->a, x->path, (size_t)(slash - x->path));
    const char *path = in(x->a, dir, "metadata.json");
    err ignored = {0};
    const json *j = file_exists(path) ? json_object_file(x->a, path, &ignored) : NULL;
    const json *assets = json_get_kind(j, "assets", JSON_OBJECT);
    if (!assets || strcmp(json_str(assets, "main", ""), name)) return true;
    const json *language = json_get_kind(j, "language", JSON_OBJECT);
    x->context = json_int(language, "max_context_length", 0);
    return (x->context >= 1 && x->context <= 1 << 24) ||
           err_set(e, ERR_FORMAT, "%s: language.max_context_length: expected a number from 1 to %d", path,
                   1 << 24);
}

static bool open_into(ai_asset *x, err *e) {
    if (!file_is_dir(x->path))
        return err_set(e, ERR_IO, "%s: not a directory; expected an .aimodel", x->path);
    const char *code = in(x->a, x->path, "main.mlirb");
    if (!check_metadata(x, e) || !read_bundle(x, e) || !file_open_map(&x->code, code, e)) return false;
    file_will_stream(&x->code);
    x->tree = ai_tree_read(x->a, x->code.data, x->code.size, e);
    if (!x->tree) return err_where(e, "%s", code);
    if (x->tree->version > AI_ASSET_VERSION)
        return err_set(e, ERR_UNSUPPORTED, "%s: asset version %lld is newer than the newest known, %d", code,
                       (long long)x->tree->version, AI_ASSET_VERSION);
    return true;
}

ai_asset *ai_asset_open(const char *path, err *e) {
    arena *a = arena_new();
    ai_asset *x = ARENA_NEW(a, ai_asset);
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    x->a = a;
    x->path = arena_strn(a, path, n);
    if (open_into(x, e)) return x;
    ai_asset_close(x);
    return NULL;
}

void ai_asset_close(ai_asset *x) {
    if (!x) return;
    file_unmap(&x->code);
    arena_free(x->a);
}

bool ai_asset_check_hash(const ai_asset *x, bool *absent, err *e) {
    const char *path = in(x->a, x->path, "main.hash");
    file_map said;
    *absent = !file_exists(path);
    if (*absent) return true;
    if (!file_open_map(&said, path, e)) return false;
    char want[SHA256_HEX] = "", is[SHA256_HEX];
    bool ok = said.size == HASH_BYTES ||
              err_set(e, ERR_FORMAT, "%s: %zu bytes, expected %d", path, said.size, HASH_BYTES);
    for (size_t i = 0; ok && i < HASH_BYTES; i++) {
        want[2 * i] = "0123456789abcdef"[said.data[i] >> 4];
        want[2 * i + 1] = "0123456789abcdef"[said.data[i] & 15];
    }
    file_unmap(&said);
    ok = ok && sha256_file(in(x->a, x->path, "main.mlirb"), is, NULL, e);
    return ok && (!strncmp(want, is, SHA256_HEX - 1) ||
                  err_set(e, ERR_INVALID, "%s: it is not the SHA-256 of main.mlirb", path));
}
