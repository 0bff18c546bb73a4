/* A tokenizer.json out of the fuzzer's bytes; what loads must encode and decode. A zero byte ends the file;
 * text follows. */
#include "text/detokenize.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static const char fixed[] = "a the 12 e\xCC\x81 <x>'s\n\n  \xE4\xBD\xA0";
    const uint8_t *zero = n ? memchr(data, 0, n) : NULL;
    size_t file = zero ? (size_t)(zero - data) : n;
    const char *text = zero ? (const char *)zero + 1 : fixed;
    size_t text_n = zero ? n - file - 1 : sizeof fixed - 1;
    err e = {0};
    tokenizer *t = tokenizer_load_memory(data, file, data, file, &e);
    if (!t) {
        if (e.code == ERR_NONE) abort();
        return 0;
    }
    for (unsigned flags = 0; flags < 4; flags++) {
        token_list ids = {0};
        err why = {0};
        str out = {0};
        if (!tokenizer_encode(t, text, text_n, flags, &ids, &why) && why.code == ERR_NONE) abort();
        tokenizer_decode(t, ids.ids, ids.n, flags & 1, &out);
        if (utf8_valid(str_get(&out), out.len) != out.len) abort();
        for (size_t i = 0; i < ids.n; i++)
            if (ids.ids[i] < 0 || (!(flags & TOKENIZER_TEMPLATE) && ids.ids[i] >= tokenizer_limit(t)))
                abort();
        str_free(&out);
        token_list_free(&ids);
    }
    tokenizer_free(t);
    return 0;
}
