/* Prefixes that are not fed again. What a decoder gives after it was put somewhere is compared, to the bit,
 * with a fresh one that was fed the same ids in calls that end at the same points: that is the promise of
 * generate/prefix.h. */
#define _GNU_SOURCE
#include "converted.h"
#include "generate/positional.h"
#include "generate/prefix.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- artifacts ---- */

typedef struct {
    const char *name, *checkpoint; /* NULL: own_model() */
    const char *preset, *kv, *prefill;
    const char *chunks;
    bool rewinds; /* attention only */
} kind;

static const kind kinds[] = {
    {"hybrid", NULL, "chunks", NULL, NULL, NULL, false},
    {"hybrid, prefill", NULL, "chunks", NULL, "4,16,64", NULL, false},
    {"hybrid, chunks, stacked", NULL, "chunks", "stacked", "4,16", "3", false},
    {"attention, single", "models/tiny-qwen3", "single", NULL, NULL, NULL, true},
    {"attention, prefill", "models/tiny-qwen3", "chunks", NULL, "4,16", NULL, true},
    {"attention, stacked", "models/tiny-qwen3", "chunks", "stacked", "4,16", "2", true},
};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

static lm *open_kind(const kind *k) {
    err e = {0};
    const char *from = k->checkpoint ? test_case_path(k->checkpoint) : own_model();
    convert_options o = {.preset = k->preset,
                         .precision = "mixed",
                         .prefill = k->prefill,
                         .kv = k->kv,
                         .chunks = k->chunks,
                         .context = 256};
    lm *m = lm_open(converted(k->name, from, &o), NULL, &e);
    if (!m) fail_msg("%s: %s", k->name, e.msg);
    return m;
}

/* Ids that differ from one another and from those of another seed. */
static void fill(int32_t *ids, size_t n, uint32_t seed) {
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)(seed = seed * 1664525u + 1013904223u) >> 8 & 1023;
}

static decoder *new_decoder(const lm *m) {
    err e = {0};
    decoder *d = decoder_new(m, RT_FAST, &e);
    if (!d) fail_msg("%s", e.msg);
    return d;
}

static void feed(decoder *d, const int32_t *ids, size_t n, decoder_row *row) {
    err e = {0};
    if (n && !decoder_feed(d, ids, n, NULL, row, &e)) fail_msg("%s", e.msg);
}

static prefix_cache *new_cache(const lm *m, size_t budget) {
    err e = {0};
    prefix_cache *c = prefix_new(m, budget, &e);
    if (!c) fail_msg("%s", e.msg);
    return c;
}

static prefix_place seek(prefix_cache *c, decoder *d, const int32_t *ids, size_t n) {
    err e = {0};
    prefix_place at;
    if (!prefix_seek(c, d, ids, n, &at, &e)) fail_msg("%s", e.msg);
    assert_int_equal(decoder_position(d), at.reused);
    assert_true(at.reused < n);
    if (at.reused) assert_memory_equal(decoder_fed(d), ids, at.reused * sizeof *ids);
    return at;
}

/* Feed both the same: they give the same. */
static void expect_alike(decoder *d, decoder *fresh, const int32_t *ids, size_t n) {
    decoder_row a, b;
    feed(fresh, ids, n, &a);
    feed(d, ids, n, &b);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(a.n, b.n);
        assert_memory_equal(a.score, b.score, a.n * sizeof *a.score);
        int32_t next = a.id ? a.id[a.largest] : (int32_t)a.largest;
        feed(fresh, &next, 1, &a);
        feed(d, &next, 1, &b);
    }
}

/* d, which stands behind `cut` of the n ids, gives what a fresh decoder gives that was fed in calls up to
 * `first`, then up to cut, then the rest, and goes on as it does. */
static void expect_as_fresh(decoder *d, const int32_t *ids, size_t first, size_t cut, size_t n) {
    decoder *fresh = new_decoder(decoder_lm(d));
    feed(fresh, ids, first, NULL);
    feed(fresh, ids + first, cut - first, NULL);
    expect_alike(d, fresh, ids + cut, n - cut);
    decoder_free(fresh);
}

/* ---- what is a cache by position ---- */

static void finds_caches(const kind *k, const lm *m) {
    prefix_cache *c = new_cache(m, 0);
    assert_int_equal(prefix_rewinds(c), k->rewinds);
    prefix_free(c);
    size_t caches = 0;
    for (size_t i = 0; i < m->n_model; i++)
        for (size_t s = 0; s < rt_model_state_count(m->model[i]); s++) {
            const char *name = rt_model_state_name(m->model[i], s);
            bool kv = *name == 'k' || *name == 'v'; /* k_3, v_3, key_cache, k_cache_0 ... */
            ir_type t = rt_model_state_type(m->model[i], s);
            /* [.., positions, width] in both forms */
            assert_int_equal(positional_axis(m, i, name), kv ? t.rank - 2 : -1);
            caches += kv;
        }
    assert_true(caches > 0);
}

static void test_caches_are_proved(void **s) {
    (void)s;
    for (int i = 0; i < N_KINDS; i++) {
        lm *m = open_kind(&kinds[i]);
        finds_caches(&kinds[i], m);
        lm_close(m);
    }
}

/* ---- a chat: a stable part, a question, a reply; then the reply is rendered in another way ---- */

enum { STABLE = 37, PROMPT = 45, REPLY = 9 };

static void two_turns(const kind *k, const lm *m) {
    prefix_cache *c = new_cache(m, PREFIX_BUDGET);
    decoder *d = new_decoder(m);
    int32_t ids[120];
    const size_t keep[] = {STABLE, PROMPT};
    decoder_row row;
    prefix_place at;
    err e = {0};
    fill(ids, 120, 1);
    if (!prefix_feed(c, d, ids, PROMPT, keep, 2, NULL, &row, &at, &e)) fail_msg("%s", e.msg);
    assert_int_equal(at.how, PREFIX_NEW);
    for (size_t i = 0; i < REPLY; i++) feed(d, ids + PROMPT + i, 1, &row);

    /* the same on: continued, nothing moves */
    at = seek(c, d, ids, PROMPT + REPLY + 1);
    assert_int_equal(at.how, PREFIX_CONTINUED);
    assert_int_equal(at.reused, PROMPT + REPLY);

    /* the prompt again: the last id's scores are wanted, so it goes back to the point before */
    at = seek(c, d, ids, PROMPT);
    assert_int_equal(at.how, PREFIX_REWOUND);
    assert_int_equal(at.same, PROMPT);
    assert_int_equal(at.had, PROMPT + REPLY);
    assert_true(at.reused >= STABLE);
    if (!k->rewinds) assert_int_equal(at.reused, STABLE);
    expect_as_fresh(d, ids, STABLE, at.reused, PROMPT);

    /* another reply: the two part behind the stable point */
    fill(ids + STABLE + 2, 60, 2);
    at = seek(c, d, ids, 90);
    assert_int_equal(at.same, STABLE + 2);
    assert_int_equal(at.how, PREFIX_REWOUND);
    assert_int_equal(at.reused, STABLE); /* no call ended behind the two ids more */
    expect_as_fresh(d, ids, STABLE, STABLE, 90);

    /* a prompt that shares nothing: what is kept moves out, and comes back */
    int32_t other[30];
    fill(other, 30, 3);
    at = seek(c, d, other, 30);
    assert_int_equal(at.how, PREFIX_NEW);
    assert_int_equal(at.reused, 0);
    expect_as_fresh(d, other, 0, 0, 30);
    at = seek(c, d, ids, 90);
    assert_int_equal(at.how, PREFIX_RESTORED);
    assert_int_equal(at.reused, STABLE);
    expect_as_fresh(d, ids, STABLE, STABLE, 90);
    prefix_figures f = prefix_figures_of(c);
    assert_int_equal(f.seeks, 6);
    assert_int_equal(f.restored, 1);
    decoder_free(d);
    prefix_free(c);
}

static void test_two_turns(void **s) {
    (void)s;
    for (int i = 0; i < N_KINDS; i++) {
        lm *m = open_kind(&kinds[i]);
        two_turns(&kinds[i], m);
        lm_close(m);
    }
}

/* A point kept by one decoder serves another, also when the first is gone. */
static void test_other_decoders(void **s) {
    (void)s;
    for (int i = 0; i < N_KINDS; i++) {
        lm *m = open_kind(&kinds[i]);
        prefix_cache *c = new_cache(m, PREFIX_BUDGET);
        decoder *a = new_decoder(m), *b = new_decoder(m);
        int32_t ids[80];
        fill(ids, 80, 4);
        feed(a, ids, 41, NULL);
        prefix_keep(c, a);
        assert_int_equal(seek(c, b, ids, 80).reused, 0); /* the rows still lie in a */
        prefix_leave(c, a);
        decoder_free(a);
        prefix_place at = seek(c, b, ids, 80);
        assert_int_equal(at.how, PREFIX_RESTORED);
        assert_int_equal(at.reused, 41);
        expect_as_fresh(b, ids, 41, 41, 80);
        prefix_leave(c, b);
        decoder_free(b);
        prefix_free(c);
        lm_close(m);
    }
}

#ifdef MILLET_HOSTILE /* the sanitizers take ten times as long */
enum { TURNS = 20 };
#else
enum { TURNS = 60 };
#endif

/* Any sequence of prompts: what was reused is a prefix, and nothing but calls of the same cuts can tell. */
static void test_random_walk(void **s) {
    (void)s;
    for (int k = 0; k < N_KINDS; k += 3) {
        lm *m = open_kind(&kinds[k]);
        prefix_cache *c = new_cache(m, (size_t)600 << 10);
        decoder *d[2] = {new_decoder(m), new_decoder(m)};
        const int64_t one = 1;
        err e = {0};
        uint32_t r = 7;
        int32_t ids[48];
        for (int i = 0; i < 2; i++) assert_true(decoder_set_sizes(d[i], &one, 1, &e));
        for (int turn = 0; turn < TURNS; turn++) {
            r = r * 1664525u + 1013904223u;
            size_t shared = (r >> 20) % 30, n = shared + 2 + (r >> 9) % 12;
            fill(ids, shared, 9);
            fill(ids + shared, n - shared, r >> 28);
            decoder *x = d[r >> 16 & 1], *fresh = new_decoder(m);
            prefix_place at;
            const size_t keep[] = {shared ? shared : 1, n};
            decoder_row a, b;
            if (!prefix_feed(c, x, ids, n, keep, 2, NULL, &a, &at, &e)) fail_msg("%s", e.msg);
            assert_true(decoder_set_sizes(fresh, &one, 1, &e));
            feed(fresh, ids, n, &b);
            assert_memory_equal(a.score, b.score, a.n * sizeof *a.score);
            prefix_figures f = prefix_figures_of(c);
            assert_true(f.bytes <= f.budget);
            decoder_free(fresh);
        }
        assert_true(prefix_figures_of(c).reused_ids > TURNS);
        for (int i = 0; i < 2; i++) prefix_leave(c, d[i]);
        for (int i = 0; i < 2; i++) decoder_free(d[i]);
        prefix_free(c);
        lm_close(m);
    }
}

static void test_budget(void **s) {
    (void)s;
    lm *m = open_kind(&kinds[0]);
    prefix_cache *none = new_cache(m, 0), *c = new_cache(m, (size_t)2 << 20);
    decoder *d = new_decoder(m);
    int32_t ids[100];
    fill(ids, 100, 5);
    feed(d, ids, 10, NULL);
    prefix_keep(none, d);
    assert_int_equal(prefix_figures_of(none).points, 0);
    for (size_t i = 0; i < 50; i++) {
        feed(d, ids + 10 + i, 1, NULL);
        prefix_keep(c, d);
        prefix_keep(c, d); /* the same point is kept once */
        prefix_figures f = prefix_figures_of(c);
        assert_true(f.points >= 1 && f.points <= i + 1);
        assert_true(f.bytes <= f.budget);
    }
    assert_true(prefix_figures_of(c).dropped > 0);
    prefix_free(none);
    prefix_free(c);
    decoder_free(d);
    lm_close(m);
}

/* A feed that its caller ends between calls leaves a decoder that goes on; one whose call fails, none. */
static bool three_calls(void *ctx) {
    return (*(int *)ctx)++ < 3;
}

static void test_interrupted_feed(void **s) {
    (void)s;
    lm *m = open_kind(&kinds[0]);
    prefix_cache *c = new_cache(m, PREFIX_BUDGET);
    decoder *d = new_decoder(m);
    int32_t ids[40];
    int calls = 0;
    const decoder_hooks h = {.keep_going = three_calls, .ctx = &calls};
    err e = {0};
    fill(ids, 40, 6);
    assert_false(decoder_feed(d, ids, 40, &h, NULL, &e));
    assert_int_equal(e.code, ERR_CANCELLED);
    assert_true(decoder_intact(d));
    assert_int_equal(decoder_position(d), 3);
    assert_int_equal(seek(c, d, ids, 40).how, PREFIX_CONTINUED);
    expect_as_fresh(d, ids, 3, 3, 40);
    atomic_bool stop = true;
    const decoder_hooks at_once = {.cancel = &stop};
    e = (err){0};
    assert_false(decoder_feed(d, ids, 1, &at_once, NULL, &e));
    assert_false(decoder_intact(d));
    prefix_keep(c, d);
    assert_int_equal(prefix_figures_of(c).points, 0);
    assert_int_equal(seek(c, d, ids, 40).how, PREFIX_NEW);
    expect_as_fresh(d, ids, 0, 0, 40);
    decoder_free(d);
    prefix_free(c);
    lm_close(m);
}

/* Sets a flag after some microseconds; 0: it is set from the beginning. */
typedef struct {
    atomic_bool flag;
    useconds_t after;
} alarm_clock;

static void *ring(void *ctx) {
    alarm_clock *c = ctx;
    usleep(c->after);
    atomic_store(&c->flag, true);
    return NULL;
}

static bool feed_until(decoder *d, const int32_t *ids, size_t n, useconds_t after) {
    alarm_clock c = {.flag = !after, .after = after};
    const decoder_hooks h = {.cancel = &c.flag};
    pthread_t t;
    err e = {0};
    assert_int_equal(pthread_create(&t, NULL, ring, &c), 0);
    bool ok = decoder_feed(d, ids, n, &h, NULL, &e);
    pthread_join(t, NULL);
    assert_true(ok || e.code == ERR_CANCELLED);
    return ok;
}

typedef struct {
    const decoder *d;
    int64_t end;
} bound;

static bool is_before(void *ctx) {
    const bound *b = ctx;
    return decoder_position(b->d) < b->end;
}

/* d stands where a feed of ids from 16 on was in front of the call that was cut. */
static void expect_as_stopped(decoder *d, const int32_t *ids, size_t n, size_t end) {
    decoder *fresh = new_decoder(decoder_lm(d));
    bound b = {fresh, decoder_position(d)};
    const decoder_hooks h = {.keep_going = is_before, .ctx = &b};
    err e = {0};
    feed(fresh, ids, 16, NULL);
    assert_false(decoder_feed(fresh, ids + 16, end - 16, &h, NULL, &e));
    assert_int_equal(decoder_position(fresh), b.end);
    expect_alike(d, fresh, ids + b.end, n - (size_t)b.end);
    decoder_free(fresh);
}

/* Wherever a call is cut, what was kept in front of it is there without feeding it again. */
static void cut_calls(const kind *k, const lm *m) {
    int32_t ids[120];
    size_t cut = 0;
    fill(ids, 120, 12);
    for (useconds_t after = 0; after < 3000; after += 300) {
        prefix_cache *c = new_cache(m, PREFIX_BUDGET);
        decoder *d = new_decoder(m);
        feed(d, ids, 16, NULL);
        prefix_keep(c, d);
        bool whole = feed_until(d, ids + 16, 103, after) || decoder_intact(d);
        cut += !whole;
        if (!whole) prefix_recover(c, d);
        assert_true(decoder_intact(d));
        size_t at = (size_t)decoder_position(d);
        assert_true(k->rewinds || whole ? at >= 16 : at == 16);
        if (!whole) expect_as_stopped(d, ids, 120, 119);
        decoder_free(d);
        prefix_free(c);
    }
    assert_true(cut > 0);
    decoder *d = new_decoder(m);
    assert_false(feed_until(d, ids, 120, 0));
    assert_false(decoder_intact(d));
    prefix_recover(NULL, d);
    assert_true(decoder_intact(d));
    decoder_free(d);
}

static void test_cut_calls(void **s) {
    (void)s;
    for (size_t i = 0; i < N_KINDS; i++) {
        lm *m = open_kind(&kinds[i]);
        cut_calls(&kinds[i], m);
        lm_close(m);
    }
}

/* ---- files ---- */

static void test_files(void **s) {
    (void)s;
    for (int i = 0; i < N_KINDS; i++) {
        lm *m = open_kind(&kinds[i]);
        prefix_cache *c = new_cache(m, PREFIX_BUDGET);
        decoder *d = new_decoder(m);
        int32_t ids[80];
        const size_t keep[] = {STABLE};
        decoder_row row;
        prefix_place at;
        err e = {0};
        fill(ids, 80, 8);
        if (!prefix_feed(c, d, ids, PROMPT, keep, 1, NULL, &row, &at, &e)) fail_msg("%s", e.msg);
        if (!prefix_save(c, d, in_work("saved"), "a note", 6, &e)) fail_msg("%s", e.msg);
        prefix_free(c);
        decoder_free(d);

        c = new_cache(m, PREFIX_BUDGET);
        d = new_decoder(m);
        str note = {0};
        if (!prefix_load(c, d, in_work("saved"), &note, &e)) fail_msg("%s", e.msg);
        assert_string_equal(str_get(&note), "a note");
        str_clear(&note);
        assert_true(prefix_read_note(in_work("saved"), &note, &e));
        assert_string_equal(str_get(&note), "a note");
        str_free(&note);
        at = seek(c, d, ids, 70);
        assert_int_equal(at.how, PREFIX_CONTINUED);
        assert_int_equal(at.reused, PROMPT);
        expect_as_fresh(d, ids, STABLE, PROMPT, 70);
        /* and the point on the way */
        fill(ids + STABLE + 1, 20, 9);
        at = seek(c, d, ids, 57);
        assert_int_equal(at.how, PREFIX_REWOUND);
        assert_int_equal(at.reused, STABLE);
        expect_as_fresh(d, ids, STABLE, STABLE, 57);
        decoder_free(d);
        prefix_free(c);
        lm_close(m);
    }
}

static void write_file(const char *path, const uint8_t *data, size_t n) {
    err e = {0};
    if (!file_write(path, data, n, &e)) fail_msg("%s", e.msg);
}

static void refuse(prefix_cache *c, decoder *d, const char *path, err_code code, const char *says) {
    err e = {0};
    str note = {0};
    assert_false(prefix_load(c, d, path, &note, &e));
    assert_int_equal(e.code, code);
    if (!strstr(e.msg, says)) fail_msg("\"%s\" does not say \"%s\"", e.msg, says);
    assert_null(strchr(e.msg, '\n'));
    assert_int_equal(note.len, 0);
}

static void test_hostile_files(void **s) {
    (void)s;
    lm *m = open_kind(&kinds[1]);
    prefix_cache *c = new_cache(m, PREFIX_BUDGET);
    decoder *d = new_decoder(m);
    int32_t ids[80];
    err e = {0};
    file_map f;
    fill(ids, 80, 8);
    feed(d, ids, 20, NULL);
    prefix_keep(c, d);
    feed(d, ids + 20, 20, NULL);
    if (!prefix_save(c, d, in_work("saved"), "note", 4, &e)) fail_msg("%s", e.msg);
    assert_true(file_open_map(&f, in_work("saved"), &e));
    uint8_t *copy = malloc(f.size);
    memcpy(copy, f.data, f.size);

    refuse(c, d, in_work("nothing"), ERR_IO, "nothing");
    const size_t sizes[] = {0, 7, 103, 104, 200, f.size / 2, f.size - 1};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        write_file(in_work("bad"), copy, sizes[i]);
        refuse(c, d, in_work("bad"), ERR_FORMAT, "bad");
    }
    for (size_t at = 0; at < f.size; at += at < 400 ? 3 : 4999) {
        copy[at] ^= 1;
        write_file(in_work("bad"), copy, f.size);
        copy[at] ^= 1;
        str note = {0};
        e = (err){0};
        assert_false(prefix_load(c, d, in_work("bad"), &note, &e));
        assert_true(e.code == ERR_FORMAT || e.code == ERR_UNSUPPORTED);
        assert_int_equal(note.len, 0);
    }
    copy[8] = 2;
    write_file(in_work("bad"), copy, f.size);
    refuse(c, d, in_work("bad"), ERR_UNSUPPORTED, "version 2, expected 1");
    assert_int_equal(decoder_position(d), 40); /* nothing moved */

    /* a whole file of another artifact */
    lm *other = open_kind(&kinds[0]);
    prefix_cache *oc = new_cache(other, PREFIX_BUDGET);
    decoder *od = new_decoder(other);
    refuse(oc, od, in_work("saved"), ERR_INVALID, "another artifact");
    decoder_free(od);
    prefix_free(oc);
    lm_close(other);
    free(copy);
    file_unmap(&f);
    decoder_free(d);
    prefix_free(c);
    lm_close(m);
}

/* A place that can't be written leaves what was there. */
static void test_failed_save(void **s) {
    (void)s;
    lm *m = open_kind(&kinds[0]);
    prefix_cache *c = new_cache(m, PREFIX_BUDGET);
    decoder *d = new_decoder(m);
    err e = {0};
    assert_false(prefix_save(c, d, in_work("no/such/place"), NULL, 0, &e));
    assert_int_equal(e.code, ERR_IO);
    decoder_free(d);
    prefix_free(c);
    lm_close(m);
}

/* ---- packages of other converters: whatever could be proved, results are those of a fresh run ---- */

static void test_thirdparty(void **s) {
    (void)s;
    static const char *const names[] = {
        "0seba-qwen3-fp16-2chunk-seq8", "anemll035-llama-lut6-4pertensor-6",
        "anemll035-qwen3-lut46-2chunk", "bhctsntrk-anemll-qwen3.5-lut4-2chunk",
        "finnvoor-llama-fp16-dynamic",  "johnrocky-qwen3-fp16-monolithic",
        "johnrocky-qwen3.5-mlkv-lut4"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[200];
        snprintf(path, sizeof path, "thirdparty/%s", names[i]);
        err e = {0};
        lm *m = lm_open(test_case_path(path), NULL, &e);
        if (!m) fail_msg("%s: %s", names[i], e.msg);
        prefix_cache *c = new_cache(m, PREFIX_BUDGET);
        decoder *d = new_decoder(m);
        int32_t ids[40];
        fill(ids, 40, 11);
        for (int k = 0; k < 40; k++) ids[k] %= 100;
        feed(d, ids, 12, NULL);
        prefix_keep(c, d);
        feed(d, ids + 12, 5, NULL);
        ids[14] ^= 1;
        prefix_place at = seek(c, d, ids, 20);
        assert_true(at.reused >= 12 && at.reused <= 14);
        expect_as_fresh(d, ids, 12, at.reused, 20);
        decoder_free(d);
        prefix_free(c);
        lm_close(m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_caches_are_proved),
        cmocka_unit_test(test_two_turns),
        cmocka_unit_test(test_other_decoders),
        cmocka_unit_test(test_random_walk),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_interrupted_feed),
        cmocka_unit_test(test_cut_calls),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_hostile_files),
        cmocka_unit_test(test_failed_save),
        cmocka_unit_test(test_thirdparty),
    };
    return cmocka_run_group_tests_name("prefix", tests, make_work_dir, remove_work_dir);
}
