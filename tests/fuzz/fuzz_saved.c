/* Files of saved conversations, loaded into one that is going on. A checksum keeps a fuzzer out of what it
 * has not made, so the input says what is in the file, and the file is made around it:
 *
 *     flags, ids, points, note's length / 16, note, ids' bytes (the last ids as often as needed: 4 each),
 * cuts, places of points (2 bytes each)
 *
 * States are zero. Flags: what else is wrong with the file, or that the input is the file. What is refused
 * leaves the conversation as it was; what is taken can be asked, saved, and loaded again. */
#define _GNU_SOURCE
#include "base/file.h"
#include "base/sha256.h"
#include "chat/parts.h"
#include "convert/convert.h"
#include "generate/prefix_parts.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { RAW = 1, OTHER_ARTIFACT = 2, SHORT = 4, LONG = 8, BAD_SUM = 16, WRONG_SIZES = 32, ASK = 64 };

static char work[] = "/tmp/fuzz_saved.XXXXXX";
static lm *model;
static talk *conversation;
static char identity[SHA256_HEX];

static const char *in_work(const char *name) {
    static char path[2][sizeof work + 16];
    static int k;
    k = !k;
    snprintf(path[k], sizeof path[k], "%s/%s", work, name);
    return path[k];
}

static void clean(void) {
    err e = {0};
    talk_close(conversation);
    lm_close(model);
    if (!file_remove_tree(work, &e)) fprintf(stderr, "%s\n", e.msg);
}

static void check(bool ok, const err *e) {
    if (ok) return;
    fprintf(stderr, "%s\n", e->msg);
    abort();
}

static void begin(void) {
    err e = {0};
    convert_options o = {
        .preset = "chunks", .precision = "mixed", .prefill = "4", .context = 64, .overwrite = true};
    if (model) return;
    check(mkdtemp(work), &e);
    check(convert_checkpoint(TINY_MODEL, in_work("model"), &o, NULL, &e), &e);
    model = lm_open(in_work("model"), NULL, &e);
    check(model, &e);
    talk_options t = {.mode = RT_FAST,
                      .sampling = SAMPLER_GREEDY,
                      .max_new = 1,
                      .budget = 1 << 20,
                      .template_name = "chatml"};
    conversation = talk_open(model, &t, &e);
    check(conversation && prefix_identity(model, identity, &e), &e);
    atexit(clean);
}

/* ---- the file ---- */

typedef struct {
    const uint8_t *s;
    size_t n;
} source;

/* Zeros where there are no more. */
static void take(source *in, void *to, size_t n) {
    size_t k = n < in->n ? n : in->n;
    memset(to, 0, n);
    memcpy(to, in->s, k);
    in->s += k;
    in->n -= k;
}

static void add(str *f, source *in, size_t n) {
    uint8_t byte;
    while (n--) take(in, &byte, 1), str_addc(f, (char)byte);
}

static void zeros(str *f, size_t n) {
    static const char none[4096];
    for (size_t k; n; n -= k) {
        k = n < sizeof none ? n : sizeof none;
        str_add(f, none, k);
    }
}

static void add_sum(str *f, bool right) {
    sha256 h;
    char hex[SHA256_HEX];
    sha256_init(&h);
    sha256_update(&h, f->s, f->len);
    sha256_final(&h, hex);
    hex[0] ^= !right;
    str_add(f, hex, SHA256_HEX - 1);
}

static void add_number(str *f, uint64_t v, size_t n) {
    str_add(f, &v, n); /* little-endian, as the files are */
}

static void make(str *f, const uint8_t *data, size_t n) {
    const prefix_cache *c = conversation->prefix;
    uint8_t head[4];
    source in = {data, n};
    take(&in, head, sizeof head);
    size_t ids = head[1], points = head[2] % 12, note = (size_t)head[3] * 16, rows = 0, others = 0;
    for (size_t i = 0; i < c->n_state; i++)
        *(i < c->n_cache ? &rows : &others) +=
            i < c->n_cache ? c->state[i].outer * c->state[i].row : c->state[i].bytes;
    uint64_t size = 104 + note + ids * (5 + rows) + others + points * (8 + others) + SHA256_HEX - 1;
    str_adds(f, "mlprefix");
    add_number(f, 1, 4);
    add_number(f, points, 4);
    add_number(f, size, 8);
    add_number(f, note, 8);
    add_number(f, head[0] & WRONG_SIZES ? (uint64_t)ids << 56 | ids : ids, 8);
    char who[SHA256_HEX];
    memcpy(who, identity, sizeof who);
    if (head[0] & OTHER_ARTIFACT) who[0] ^= 1;
    str_add(f, who, sizeof who - 1);
    add(f, &in, note + 5 * ids);
    zeros(f, ids * rows + others);
    for (size_t i = 0; i < points; i++) {
        uint16_t at;
        take(&in, &at, sizeof at);
        add_number(f, at, 8);
        zeros(f, others);
    }
    if (head[0] & SHORT) f->len -= f->len > 200 ? 97 : 1;
    if (head[0] & LONG) zeros(f, 33);
    add_sum(f, !(head[0] & BAD_SUM));
}

static const char *write_file(const str *f) {
    const char *path = in_work("saved");
    FILE *to = fopen(path, "wb");
    if (!to || fwrite(f->s, 1, f->len, to) != f->len || fclose(to)) abort();
    return path;
}

/* ---- what comes of it ---- */

static void use(bool ask) {
    err e = {0};
    bool reread;
    size_t tokens, count = talk_count(conversation), at = talk_position(conversation);
    talk_turn turn;
    if ((int64_t)at > model->form.context || !decoder_intact(conversation->d)) abort();
    bool known = talk_tokens(conversation, "And?", 4, &tokens, &e);
    if (known == (e.code != ERR_NONE)) abort();
    e = (err){0};
    check(talk_save(conversation, in_work("again"), &e), &e);
    check(talk_load(conversation, in_work("again"), &reread, &e), &e);
    if (reread || talk_count(conversation) != count || talk_position(conversation) != at) abort();
    if (ask && talk_ask(conversation, "And?", 4, NULL, &turn, &e) == (e.code != ERR_NONE)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    begin();
    if (!n) return 0;
    str f = {0};
    err e = {0};
    bool reread;
    if (*data & RAW)
        str_add(&f, data + 1, n - 1);
    else
        make(&f, data, n);
    size_t before = talk_count(conversation);
    bool ok = talk_load(conversation, write_file(&f), &reread, &e);
    if (ok == (e.code != ERR_NONE) || (!ok && talk_count(conversation) != before)) abort();
    if (ok) use(*data & ASK);
    str_free(&f);
    return 0;
}
