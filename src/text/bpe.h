/* Byte-pair encoding of one piece of text. */
#ifndef TEXT_BPE_H
#define TEXT_BPE_H
#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Ids that may occur: more than any vocabulary has, few enough for a table. */
#define TOKEN_LIMIT (1 << 22)

/* A growing list of ids. Zero-initialise, free with token_list_free(). */
typedef struct {
    int32_t *ids;
    size_t n, cap;
} token_list;

bool token_list_add(token_list *l, int32_t id, err *e);
void token_list_free(token_list *l);

typedef struct bpe bpe;

/* Reads the value of "model". byte_level: the vocabulary spells bytes as printable characters (U+0120 is a
 * space), as texts are pieces of bytes; otherwise it holds plain text and begins with characters. Lives in a;
 * keeps nothing of model. */
bpe *bpe_read(arena *a, const json *model, bool byte_level, err *e);

/* For a vocabulary of plain text whose file asks for a ByteLevel decoder: spellings made of byte characters
 * decode to these bytes. */
void bpe_decode_as_bytes(arena *a, bpe *b);

/* Memory that encoding keeps between pieces: one per thread. */
typedef struct bpe_scratch bpe_scratch;
bpe_scratch *bpe_scratch_new(void);
void bpe_scratch_free(bpe_scratch *s);

/* Appends the ids of one piece (not empty). Threads may share b. */
bool bpe_encode(const bpe *b, const uint8_t *piece, size_t n, bpe_scratch *scratch, token_list *out, err *e);

/* Id of a token, as the file spells it; -1 when the vocabulary lacks it. */
int32_t bpe_find(const bpe *b, const char *spelling, size_t n);
/* The bytes that a token stands for (a spelling with other than byte characters: itself). NULL: no such
 * token. */
const uint8_t *bpe_bytes(const bpe *b, int32_t id, size_t *n);
/* One more than the last id. */
int32_t bpe_limit(const bpe *b);

/* The bytes of a byte-level spelling, into out (room for n bytes); SIZE_MAX when a character stands for no
 * byte. */
size_t byte_level_bytes(uint8_t *out, const char *spelling, size_t n);
#endif
