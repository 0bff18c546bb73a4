#define _GNU_SOURCE
/* Memory and workers of a model in two packages, through the public interface: an allocator gets back what it
 * gave, wherever it runs dry; and the system is asked how many threads there are. Expected ids are
 * transformers' (tests/data/generate). */
#include "counted.h"
#include "golden/tiny.h"
#include <dirent.h>
#include <unistd.h>

enum { IDS = 6 };

static tiny of;

static int set_up(void **state) {
    (void)state;
    counted c = {.left = -1};
    const millet_allocator a = {.size = sizeof a, .alloc = counted_take, .free = counted_give, .ctx = &c};
    const millet_open_options open = {.size = sizeof open, .allocator = &a};
    const millet_convert_options o = {.size = sizeof o,
                                      .preset = "chunks",
                                      .precision = "float32",
                                      .context = 128,
                                      .chunks = 2,
                                      .open = &open};
    return tiny_make(&of, &o) == 0 && c.most && !c.blocks ? 0 : -1;
}

static size_t threads_of_the_process(void) {
    DIR *d = opendir("/proc/self/task");
    size_t n = 0;
    assert_non_null(d);
    for (const struct dirent *f; (f = readdir(d));) n += f->d_name[0] != '.';
    closedir(d);
    return n;
}

/* Some greedy ids of a generator of so many threads; *seen: the process's threads behind them. */
static bool generate(const millet_lm *lm, unsigned threads, size_t *seen, millet_error *e) {
    const millet_session_options so = {.size = sizeof so, .threads = threads};
    millet_generator *g = millet_generator_new(lm, &so, e);
    if (!g) return false;
    millet_generation r = {.size = sizeof r};
    const millet_generate_options o = {
        .size = sizeof o, .repetition_penalty = 1, .max_new_tokens = IDS, .ignore_eos = true};
    bool ok = millet_generator_run(g, of.prompt[0].ids, of.prompt[0].n, &o, &r, e);
    *seen = threads_of_the_process();
    if (ok) {
        assert_int_equal(r.n_ids, IDS);
        assert_memory_equal(r.ids, of.prompt[0].greedy, IDS * sizeof *r.ids);
        millet_stats s = {.size = sizeof s};
        assert_true(millet_generator_stats(g, &s));
        assert_true(s.memory >= s.state_bytes && s.memory_peak >= s.memory);
    }
    millet_free(r.ids);
    millet_generator_free(g);
    return ok;
}

static bool all(counted *c, unsigned threads, size_t *seen, millet_error *e) {
    const millet_allocator a = {.size = sizeof a, .alloc = counted_take, .free = counted_give, .ctx = c};
    const millet_open_options open = {.size = sizeof open, .allocator = &a};
    const millet_lm_options o = {.size = sizeof o, .open = &open};
    millet_lm *lm = millet_lm_open(of.artifact, &o, e);
    if (!lm) return false;
    assert_int_equal(millet_lm_package_count(lm), 2);
    bool ok = generate(lm, threads, seen, e);
    millet_model_stats s = {.size = sizeof s};
    assert_true(millet_lm_stats(lm, &s));
    assert_true(s.memory <= s.memory_peak && s.memory_peak <= c->most);
    if (ok) assert_true(s.plans >= 2 && s.plan_seconds > 0);
    millet_lm_close(lm);
    return ok;
}

/* Packages that run in turn have one team, of as many as were asked for. */
static void threads_are_those_asked_for(void **state) {
    (void)state;
    size_t before = threads_of_the_process(), seen;
    for (unsigned n = 1; n <= 4; n++) {
        counted c = {.left = -1};
        millet_error e;
        if (!all(&c, n, &seen, &e)) fail_msg("%s", e.message);
        assert_int_equal(seen, before + n - 1);
        assert_int_equal(threads_of_the_process(), before);
        assert_int_equal(c.blocks, 0);
        assert_int_equal(c.bytes, 0);
    }
}

/* Wherever memory ends, that is said, and what was had is given back; workers end too. */
static void memory_may_end_anywhere(void **state) {
    (void)state;
    size_t before = threads_of_the_process(), seen, refused = 0;
    bool ok = false;
    for (long n = 0; !ok; n += n / 8 + 1) {
        counted c = {.left = n};
        millet_error e;
        ok = all(&c, 3, &seen, &e);
        if (!ok && e.code != MILLET_MEMORY) fail_msg("after %ld allocations: %s", n, e.message);
        refused += !ok;
        assert_int_equal(c.blocks, 0);
        assert_int_equal(c.bytes, 0);
        assert_int_equal(threads_of_the_process(), before);
    }
    assert_true(refused > 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_are_those_asked_for),
        cmocka_unit_test(memory_may_end_anywhere),
    };
    return cmocka_run_group_tests(tests, set_up, remove_work_dir);
}
