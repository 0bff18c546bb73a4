/* SHA-256 (FIPS 180-4), over the nettle library: the processor's own instructions where it has them. */
#ifndef BASE_SHA256_H
#define BASE_SHA256_H
#include "base/err.h"
#include <stddef.h>
#include <stdint.h>

#define SHA256_BYTES 32
#define SHA256_HEX 65 /* 64 lower-case hexadecimal digits and a NUL */

typedef struct {
    uint64_t state[16]; /* the library's */
} sha256;

void sha256_init(sha256 *h);
void sha256_update(sha256 *h, const void *data, size_t n);
/* The digest of all that was added; h must be initialised again before it is used again. */
void sha256_digest_of(sha256 *h, uint8_t digest[SHA256_BYTES]);
void sha256_final(sha256 *h, char hex[SHA256_HEX]); /* the same as text */
/* Of a whole file, which is mapped; its pages are dropped as they are used. bytes (may be NULL): its size. */
bool sha256_file(const char *path, char hex[SHA256_HEX], uint64_t *bytes, err *e);
#endif
