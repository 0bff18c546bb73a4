/* Conversions that are stopped, killed, starved or run twice: OUT is the old one or the new one, and nothing
 * is left beside it. The checkpoint is mostly a hole: large enough that a conversion can be caught at work.
 */
#define _GNU_SOURCE
#include "base/file.h"
#include "base/json.h"
#include "base/num.h"
#include "convert/convert.h"
#include "coreml/embedding.h"
#include "work_dir.h"
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define VOCAB  (1 << 16)
#define HIDDEN 256

static char ckpt[200], out[200];

/* ---- a checkpoint of one layer, all zeros ---- */

static void add_tensor(str *head, uint64_t *at, const char *name, int64_t rows, int64_t columns) {
    uint64_t end = *at + (uint64_t)(rows * (columns ? columns : 1)) * 2;
    str_printf(head, "%s\"model.%s.weight\":{\"dtype\":\"BF16\",\"shape\":[%" PRId64,
               head->len > 1 ? "," : "", name, rows);
    if (columns) str_printf(head, ",%" PRId64, columns);
    str_printf(head, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", *at, end);
    *at = end;
}

static void write_tensors(const char *path) {
    str head = {0};
    uint64_t at = 0;
    uint8_t len[8];
    str_addc(&head, '{');
    add_tensor(&head, &at, "embed_tokens", VOCAB, HIDDEN);
    add_tensor(&head, &at, "norm", HIDDEN, 0);
    add_tensor(&head, &at, "layers.0.input_layernorm", HIDDEN, 0);
    add_tensor(&head, &at, "layers.0.post_attention_layernorm", HIDDEN, 0);
    add_tensor(&head, &at, "layers.0.mlp.gate_proj", 64, HIDDEN);
    add_tensor(&head, &at, "layers.0.mlp.up_proj", 64, HIDDEN);
    add_tensor(&head, &at, "layers.0.mlp.down_proj", HIDDEN, 64);
    add_tensor(&head, &at, "layers.0.self_attn.q_proj", 64, HIDDEN);
    add_tensor(&head, &at, "layers.0.self_attn.k_proj", 32, HIDDEN);
    add_tensor(&head, &at, "layers.0.self_attn.v_proj", 32, HIDDEN);
    add_tensor(&head, &at, "layers.0.self_attn.o_proj", HIDDEN, 64);
    str_addc(&head, '}');
    num_put64(len, head.len);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, len, 8), 8);
    assert_int_equal(write(fd, head.s, head.len), head.len);
    assert_int_equal(ftruncate(fd, (off_t)(8 + head.len + at)), 0);
    /* embed_tokens: 2^-25 is 0 in fp16, what follows it is not; o_proj: 65280 fits, 65536 does not */
    static const uint8_t first[] = {0x00, 0x33, 0x01, 0x33}, last[] = {0x7F, 0x47, 0x80, 0x47, 0x80, 0xC7};
    assert_int_equal(pwrite(fd, first, sizeof first, (off_t)(8 + head.len)), sizeof first);
    assert_int_equal(pwrite(fd, last, sizeof last, (off_t)(8 + head.len + at - sizeof last)), sizeof last);
    close(fd);
    str_free(&head);
}

static int set_up(void **s) {
    if (make_work_dir(s)) return -1;
    char path[300];
    snprintf(ckpt, sizeof ckpt, "%s/ckpt", work_dir);
    snprintf(out, sizeof out, "%s/out", work_dir);
    if (mkdir(ckpt, 0755)) return -1;
    snprintf(path, sizeof path, "%s/model.safetensors", ckpt);
    write_tensors(path);
    snprintf(path, sizeof path, "%s/config.json", ckpt);
    static const char config[] =
        "{\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"],\"vocab_size\":65536,\"hidden_"
        "size\":256,"
        "\"intermediate_size\":64,\"num_hidden_layers\":1,\"num_attention_heads\":2,\"num_key_value_heads\":"
        "1,"
        "\"head_dim\":32,\"hidden_act\":\"silu\",\"rms_norm_eps\":1e-6,\"rope_theta\":10000.0,"
        "\"max_position_embeddings\":4096,\"tie_word_embeddings\":true,\"eos_token_id\":[3,1]}";
    err e = {0};
    return file_write(path, config, sizeof config - 1, &e) ? 0 : -1;
}

/* ---- what is there ---- */

/* Entries of the work directory, hidden ones too. */
static int entries(void) {
    DIR *d = opendir(work_dir);
    int n = -2; /* . and .. */
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

static void drop_out(void) {
    err e = {0};
    assert_true(file_remove_tree(out, &e));
    assert_int_equal(entries(), 1);
}

/* The context OUT was made with; OUT must be complete. */
static int64_t context_of_out(void) {
    char path[300];
    err e = {0};
    arena *a = arena_new();
    snprintf(path, sizeof path, "%s/metadata.json", out);
    const json *j = json_parse_file(a, path, &e);
    if (!j) fail_msg("%s", e.msg);
    int64_t context = json_int(json_get(j, "graph"), "context", -1);
    arena_free(a);
    snprintf(path, sizeof path, "%s/ckpt_embed_tokens.fp16.bin", out);
    embedding *t = embedding_open(path, &e);
    if (!t) fail_msg("%s", e.msg);
    assert_true(embedding_verify(t, &e));
    embedding_close(t);
    struct stat st;
    snprintf(path, sizeof path, "%s/model.mlpackage/Data/com.apple.CoreML/weights/weight.bin", out);
    assert_int_equal(stat(path, &st), 0);
    assert_true(st.st_size > VOCAB * HIDDEN * 2);
    snprintf(path, sizeof path, "%s/model.mlpackage/Manifest.json", out);
    assert_true(file_exists(path));
    return context;
}

/* ---- the program ---- */

typedef struct {
    rlim_t file_size, data; /* 0: no limit */
} limits;

static pid_t start_at(const char *option, const char *place, const char *context, limits l) {
    pid_t pid = fork();
    if (pid) return pid;
    char log[300];
    /* Below the checkpoint: not counted by entries(). */
    snprintf(log, sizeof log, "%s/ckpt/stderr", work_dir);
    int fd = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    dup2(fd, 2);
    signal(SIGXFSZ, SIG_IGN);
    if (l.file_size) setrlimit(RLIMIT_FSIZE, &(struct rlimit){l.file_size, l.file_size});
    if (l.data) setrlimit(RLIMIT_DATA, &(struct rlimit){l.data, l.data});
    const char *bin = getenv("MILLET_BIN");
    execl(bin, bin, "convert", ckpt, option, place, "--preset", "chunks", "--context", context, "--overwrite",
          "--quiet", (char *)NULL);
    _exit(99);
}

static pid_t start(const char *context, limits l) {
    return start_at("-o", out, context, l);
}

/* Exit code, or 128 + the signal that ended it. */
static int finish(pid_t pid) {
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int convert(const char *context) {
    return finish(start(context, (limits){0}));
}

/* What the program said without the warning that there is no tokenizer; must be one line. */
static const char *said(void) {
    static char text[2000];
    char log[300];
    snprintf(log, sizeof log, "%s/ckpt/stderr", work_dir);
    FILE *f = fopen(log, "r");
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    char *end = strchr(text, '\n');
    if (!end || end[1]) fail_msg("not one line: %s", text);
    return text;
}

static void nap(long us) {
    nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL);
}

static int64_t clock_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* Waits until the conversion writes: something new appears beside what was there. */
static void wait_for_staging(pid_t pid, int before) {
    for (int i = 0; i < 100000 && entries() == before; i++) {
        assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
        nap(100);
    }
    nap(5000);
}

static bool program_or_skip(void) {
    if (getenv("MILLET_BIN")) return true;
    printf("skipped: MILLET_BIN is not set\n");
    return false;
}

/* ---- tests ---- */

typedef struct {
    int calls, cancel_at;
    uint64_t done, total, tensors_done, tensors;
    bool backwards;
} watcher;

static bool watch(void *ctx, const char *tensor, uint64_t done, uint64_t total, uint64_t tensors_done,
                  uint64_t tensors) {
    watcher *w = ctx;
    if (done < w->done || tensors_done < w->tensors_done || done > total || tensors_done > tensors ||
        !*tensor)
        w->backwards = true;
    w->done = done, w->total = total, w->tensors_done = tensors_done, w->tensors = tensors;
    return w->calls++ != w->cancel_at;
}

static bool convert_here(watcher *w, int64_t context, str *summary, err *e) {
    *w = (watcher){.cancel_at = w->cancel_at};
    convert_options o = {
        .preset = "chunks", .context = context, .top_k = -1, .overwrite = true, .progress = watch, .ctx = w};
    *e = (err){0};
    return convert_checkpoint(ckpt, out, &o, summary, e);
}

static void progress_adds_up(void **s) {
    (void)s;
    err e;
    str summary = {0};
    watcher w = {.cancel_at = -1};
    if (!convert_here(&w, 64, &summary, &e)) fail_msg("%s", e.msg);
    assert_false(w.backwards);
    assert_true(w.done == w.total && w.tensors_done == w.tensors);
    assert_true(w.calls > 20);
    assert_int_equal(context_of_out(), 64);
    assert_non_null(strstr(summary.s, "ckpt_embed_tokens.fp16.bin"));
    assert_non_null(strstr(summary.s, "65536 rows of 256, fp16"));
    assert_non_null(strstr(summary.s, "16.0"));
    assert_non_null(strstr(summary.s, "warning: "));
    str_free(&summary);
    drop_out();
}

static void what_fp16_does_to_values_is_counted(void **s) {
    (void)s;
    err e;
    watcher w = {.cancel_at = -1};
    str summary = {0};
    assert_true(convert_here(&w, 64, &summary, &e));
    assert_non_null(strstr(summary.s, "2 values that overflow fp16, their tensors are kept fp32: "
                                      "model.layers.0.self_attn.o_proj.weight (2)"));
    assert_non_null(strstr(summary.s, "1 value that vanishes in fp16: model.embed_tokens.weight (1)"));
    char path[300];
    snprintf(path, sizeof path, "%s/metadata.json", out);
    arena *a = arena_new();
    const json *t = json_get(json_parse_file(a, path, &e), "tensors");
    assert_int_equal(json_int(json_get(t, "kept_fp32"), "model.layers.0.self_attn.o_proj.weight", 0), 2);
    assert_int_equal(json_int(json_get(t, "vanished"), "model.embed_tokens.weight", 0), 1);
    arena_free(a);
    str_free(&summary);
    drop_out();
}

static void cancelling_leaves_nothing(void **s) {
    (void)s;
    err e;
    watcher w = {.cancel_at = -1};
    assert_true(convert_here(&w, 64, NULL, &e));
    int calls = w.calls;
    for (int fresh = 0; fresh < 2; fresh++) {
        for (int k = 0; k < calls; k += calls / 10 + 1) {
            w.cancel_at = k;
            assert_false(convert_here(&w, 128, NULL, &e));
            assert_int_equal(e.code, ERR_CANCELLED);
            assert_int_equal(entries(), fresh ? 1 : 2);
            if (!fresh) assert_int_equal(context_of_out(), 64);
        }
        if (!fresh) drop_out();
    }
}

static void signals_end_it_cleanly(void **s) {
    (void)s;
    if (!program_or_skip()) return;
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    assert_int_equal(convert("64"), 0);
    for (int i = 0; i < 3; i++) {
        pid_t pid = start("128", (limits){0});
        wait_for_staging(pid, 2);
        kill(pid, signals[i]);
        assert_int_equal(finish(pid), 128 + signals[i]);
        assert_non_null(strstr(said(), "conversion cancelled"));
        assert_int_equal(entries(), 2);
        assert_int_equal(context_of_out(), 64);
    }
    drop_out();
}

static void killed_at_any_time_it_is_old_or_new(void **s) {
    (void)s;
    if (!program_or_skip()) return;
    int64_t now = 64, replaced = 0, before = clock_us();
    assert_int_equal(convert("64"), 0);
    int64_t whole = clock_us() - before;
    uint32_t random = 1;
    for (int i = 0; i < 20; i++) {
        pid_t pid = start(now == 64 ? "128" : "64", (limits){0});
        random = random * 1664525 + 1013904223;
        nap((long)((double)whole * 1.5 * random / UINT32_MAX));
        kill(pid, SIGKILL);
        int code = finish(pid);
        assert_true(code == 0 || code == 128 + SIGKILL);
        int64_t then = context_of_out();
        assert_true(then == 64 || then == 128);
        replaced += then != now;
        now = then;
    }
    printf("%d of 20 were replaced\n", (int)replaced);
    assert_int_equal(convert("64"), 0); /* removes what killed ones left */
    assert_int_equal(context_of_out(), 64);
    assert_int_equal(entries(), 2);
    drop_out();
}

/* An artifact below place is complete, or not there; the table beside it too. */
static void check_place(const char *place, bool must_be_there) {
    static const char *const names[] = {"ckpt_ctx64_chunks1_decode_fp16_kvslice_gqagrouped",
                                        "ckpt_ctx128_chunks1_decode_fp16_kvslice_gqagrouped"};
    err e = {0};
    char path[400];
    snprintf(path, sizeof path, "%s/ckpt_embed_tokens.fp16.bin", place);
    bool there = file_exists(path);
    embedding *t = there ? embedding_open(path, &e) : NULL;
    if (there && (!t || !embedding_verify(t, &e))) fail_msg("%s", e.msg);
    embedding_close(t);
    for (int i = 0; i < 2; i++) {
        struct stat st;
        snprintf(path, sizeof path, "%s/%s", place, names[i]);
        assert_true(file_exists(path) || !must_be_there);
        if (!file_exists(path)) continue;
        assert_true(there);
        snprintf(path, sizeof path, "%s/%s/metadata.json", place, names[i]);
        assert_true(file_exists(path));
        snprintf(path, sizeof path, "%s/%s/model.mlpackage/Data/com.apple.CoreML/weights/weight.bin", place,
                 names[i]);
        assert_int_equal(stat(path, &st), 0);
        assert_true(st.st_size > VOCAB * HIDDEN * 2);
    }
}

static void killed_with_a_shared_table_it_is_old_or_new(void **s) {
    (void)s;
    if (!program_or_skip()) return;
    char place[300];
    snprintf(place, sizeof place, "%s/place", work_dir);
    int64_t before = clock_us();
    assert_int_equal(finish(start_at("--into", place, "64", (limits){0})), 0);
    int64_t whole = clock_us() - before;
    err e = {0};
    uint32_t random = 7;
    for (int i = 0; i < 10; i++) {
        if (i == 5) assert_true(file_remove_tree(place, &e)); /* and with nothing there before */
        pid_t pid = start_at("--into", place, i % 2 ? "64" : "128", (limits){0});
        random = random * 1664525 + 1013904223;
        nap((long)((double)whole * 1.3 * random / UINT32_MAX));
        kill(pid, SIGKILL);
        int code = finish(pid);
        assert_true(code == 0 || code == 128 + SIGKILL);
        check_place(place, false);
    }
    assert_int_equal(finish(start_at("--into", place, "64", (limits){0})), 0);
    assert_int_equal(finish(start_at("--into", place, "128", (limits){0})), 0);
    check_place(place, true);
    assert_true(file_remove_tree(place, &e));
}

static void two_at_once_one_of_them_fails(void **s) {
    (void)s;
    if (!program_or_skip()) return;
    pid_t first = start("64", (limits){0});
    wait_for_staging(first, 1);
    kill(first, SIGSTOP);
    assert_int_equal(convert("128"), 1);
    assert_non_null(strstr(said(), "is being written by another process"));
    kill(first, SIGCONT);
    assert_int_equal(finish(first), 0);
    assert_int_equal(context_of_out(), 64);
    drop_out();
}

static void no_room_is_an_error(void **s) {
    (void)s;
    if (!program_or_skip()) return;
    for (rlim_t mb = 1; mb <= 31; mb += 15) { /* a file may not grow past it: as a full disk */
        assert_int_equal(finish(start("64", (limits){.file_size = (mb << 20) + 100})), 1);
        assert_non_null(strstr(said(), "File too large"));
        assert_int_equal(entries(), 1);
    }
}

/* A row block may be in memory, a whole tensor (32 MiB here, 64 MiB as fp32) not. */
static void memory_is_bounded(void **s) {
    (void)s;
    if (!program_or_skip()) return;
#ifndef MILLET_HOSTILE
    assert_int_equal(finish(start("64", (limits){.data = 40 << 20})), 0);
    assert_int_equal(context_of_out(), 64);
    drop_out();
#endif
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(progress_adds_up),
        cmocka_unit_test(what_fp16_does_to_values_is_counted),
        cmocka_unit_test(cancelling_leaves_nothing),
        cmocka_unit_test(signals_end_it_cleanly),
        cmocka_unit_test(killed_at_any_time_it_is_old_or_new),
        cmocka_unit_test(killed_with_a_shared_table_it_is_old_or_new),
        cmocka_unit_test(two_at_once_one_of_them_fails),
        cmocka_unit_test(no_room_is_an_error),
        cmocka_unit_test(memory_is_bounded),
    };
    return cmocka_run_group_tests_name("convert", tests, set_up, remove_work_dir);
}
