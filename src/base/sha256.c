#include "base/sha256.h"
#include "base/file.h"
#include <nettle/sha2.h>
/* nettle renames its functions by macros: the plain names are ours */
#undef sha256_init
#undef sha256_update

#define PIECE ((size_t)4 << 20)

_Static_assert(SHA256_BYTES == SHA256_DIGEST_SIZE, "the library's digest");
_Static_assert(sizeof(struct sha256_ctx) <= sizeof(sha256), "room for the library's state");

static struct sha256_ctx *state(sha256 *h) {
    return (struct sha256_ctx *)h->state;
}

void sha256_init(sha256 *h) {
    nettle_sha256_init(state(h));
}

void sha256_update(sha256 *h, const void *data, size_t n) {
    nettle_sha256_update(state(h), n, data);
}

void sha256_digest_of(sha256 *h, uint8_t digest[SHA256_BYTES]) {
    nettle_sha256_digest(state(h), SHA256_BYTES, digest);
}

void sha256_final(sha256 *h, char hex[SHA256_HEX]) {
    uint8_t digest[SHA256_BYTES];
    sha256_digest_of(h, digest);
    for (size_t i = 0; i < sizeof digest; i++) {
        hex[2 * i] = "0123456789abcdef"[digest[i] >> 4];
        hex[2 * i + 1] = "0123456789abcdef"[digest[i] & 15];
    }
    hex[SHA256_HEX - 1] = 0;
}

bool sha256_file(const char *path, char hex[SHA256_HEX], uint64_t *bytes, err *e) {
    file_map m;
    if (!file_open_map(&m, path, e)) return false;
    sha256 h;
    sha256_init(&h);
    for (size_t at = 0; at < m.size; at += PIECE) {
        size_t n = m.size - at < PIECE ? m.size - at : PIECE;
        sha256_update(&h, m.data + at, n);
        file_drop(m.data + at, n);
    }
    sha256_final(&h, hex);
    if (bytes) *bytes = m.size;
    file_unmap(&m);
    return true;
}
