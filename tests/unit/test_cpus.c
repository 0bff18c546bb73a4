/* base/cpus: what Linux says of cores and control groups (kernel documentation: cputopology.rst,
 * cgroup-v2.rst). */
#define _GNU_SOURCE
#include "base/cpus.h"
#include "base/team.h"
#include "work_dir.h"
#include <sched.h>
#include <stdarg.h>
#include <sys/stat.h>

static void put(const char *path, const char *text) {
    char all[300];
    snprintf(all, sizeof all, "%s", in_work(path));
    for (char *p = strchr(all + strlen(work_dir) + 1, '/'); p; p = strchr(p + 1, '/')) {
        *p = 0;
        mkdir(all, 0700);
        *p = '/';
    }
    FILE *f = fopen(all, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void siblings(unsigned id, const char *list) {
    char path[100];
    snprintf(path, sizeof path, "sys/devices/system/cpu/cpu%u/topology/thread_siblings_list", id);
    put(path, list);
}

static void expect(const cpus *c, unsigned cores, const unsigned *id) {
    assert_int_equal(c->cores, cores);
    for (unsigned i = 0; i < c->n; i++) assert_int_equal(c->id[i], id[i]);
}

/* Four cores of two threads, numbered as on Xeons (0 and 4 share one) and as on some desktops (2 and 3). */
static void test_cores(void **state) {
    (void)state;
    const unsigned all[] = {0, 1, 2, 3, 4, 5, 6, 7}, half[] = {4, 5, 6, 7}, some[] = {1, 4, 5, 6};
    cpus c;
    for (unsigned i = 0; i < 8; i++) {
        char list[] = {(char)('0' + i % 4), ',', (char)('4' + i % 4), '\n', 0};
        siblings(i, list);
    }
    cpus_of(&c, work_dir, all, 8);
    assert_int_equal(c.n, 8);
    expect(&c, 4, all);
    cpus_of(&c, work_dir, half, 4);
    expect(&c, 4, half);
    cpus_of(&c, work_dir, some, 4); /* 5 shares a core with 1 */
    expect(&c, 3, (const unsigned[]){1, 4, 6, 5});
    for (unsigned i = 0; i < 8; i++) {
        char list[] = {(char)('0' + i / 2 * 2), '-', (char)('1' + i / 2 * 2), '\n', 0};
        siblings(i, list);
    }
    cpus_of(&c, work_dir, all, 8);
    expect(&c, 4, (const unsigned[]){0, 2, 4, 6, 1, 3, 5, 7});
    siblings(3, "nonsense\n");
    cpus_of(&c, work_dir, all, 8);
    expect(&c, 5, (const unsigned[]){0, 2, 3, 4, 6, 1, 5, 7});
    cpus_of(&c, "/nowhere", all, 8); /* nothing is known */
    expect(&c, 8, all);
}

static unsigned paid(unsigned n) {
    unsigned id[16];
    for (unsigned i = 0; i < n; i++) id[i] = i;
    cpus c;
    cpus_of(&c, work_dir, id, n);
    return c.paid;
}

/* "QUOTA PERIOD" or "max PERIOD", in every group up to the root. */
static void test_control_groups(void **state) {
    (void)state;
    assert_int_equal(paid(8), 8);
    put("proc/self/cgroup", "12:cpu:/other\n0::/user/job\n");
    assert_int_equal(paid(8), 8);
    put("sys/fs/cgroup/user/job/cpu.max", "max 100000\n");
    assert_int_equal(paid(8), 8);
    put("sys/fs/cgroup/user/cpu.max", "250000 100000\n");
    assert_int_equal(paid(8), 3);
    assert_int_equal(paid(2), 2);
    put("sys/fs/cgroup/user/job/cpu.max", "50000 100000\n");
    assert_int_equal(paid(8), 1);
    put("proc/self/cgroup", "0::/\n");
    assert_int_equal(paid(8), 8);
    put("sys/fs/cgroup/cpu.max", "200000 100000\n"); /* as a container sees its own group */
    assert_int_equal(paid(8), 2);
    put("sys/fs/cgroup/cpu.max", "0 0\n");
    assert_int_equal(paid(8), 8);
}

static void test_here(void **state) {
    (void)state;
    static cpus c;
    cpus_here(&c);
    assert_in_range(c.n, 1, CPUS_MAX);
    assert_in_range(c.cores, 1, c.n);
    assert_in_range(c.paid, 1, c.n);
    assert_int_equal(cpus_usable(), c.paid);
    cpus_pin(c.id[c.n - 1]);
    unsigned last = c.id[c.n - 1];
    cpus_here(&c);
    assert_int_equal(c.n, 1);
    assert_int_equal(c.id[0], last);
}

static void look(void *ctx, unsigned worker) {
    unsigned *at = ctx;
    cpu_set_t set;
    at[worker] =
        sched_getaffinity(0, sizeof set, &set) || CPU_COUNT(&set) != 1 ? CPUS_MAX : (unsigned)sched_getcpu();
}

/* One of every core first; a CPU serves several where there are too few. */
static void test_pinned_team(void **state) {
    (void)state;
    static cpus c;
    unsigned at[3] = {0};
    cpu_set_t before;
    cpus_here(&c);
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    team *t = team_new(3, true);
    for (int i = 0; i < 2; i++) team_run(t, look, at);
    for (unsigned i = 0; i < team_size(t); i++) assert_int_equal(at[i], c.id[i % c.n]);
    team_free(t);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cores),
        cmocka_unit_test(test_control_groups),
        cmocka_unit_test(test_pinned_team),
        cmocka_unit_test(test_here),
    };
    return cmocka_run_group_tests(tests, make_work_dir, remove_work_dir);
}
