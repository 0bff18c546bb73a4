/* Outputs are replaced whole or not at all, also by writers that are killed, and on file systems that can't
 * exchange. */
#define _GNU_SOURCE
#include "base/file.h"
#include "base/stage.h"
#include "work_dir.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PARTS = 3 };
static char target[96];

static int setup(void **state) {
    (void)state;
    /* In memory where that can be: the many killed writers sync their files. */
    if (make_work_dir_in(access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm")) return -1;
    snprintf(target, sizeof target, "%s/out", work_dir);
    return 0;
}

static bool put(const char *name, const void *data, size_t n, err *e) {
    int fd = open(name, O_WRONLY | O_CREAT, 0644);
    bool ok = (fd >= 0 && write(fd, data, n) == (ssize_t)n) || err_errno(e, "%s", name);
    if (fd >= 0) close(fd);
    return ok;
}

/* The output of generation n: PARTS files, some below a directory, all of which say n. */
static bool fill(const char *path, int n, err *e) {
    char name[200], text[16];
    snprintf(name, sizeof name, "%s/deep", path);
    bool ok = !mkdir(name, 0777) || err_errno(e, "%s", name);
    for (int i = 0; ok && i < PARTS; i++) {
        snprintf(name, sizeof name, "%s/%s%d", path, i % 2 ? "deep/" : "", i);
        ok = put(name, text, (size_t)snprintf(text, sizeof text, "%d", n), e);
    }
    return ok;
}

static bool make(int n, bool overwrite, err *e) {
    stage *s = stage_begin(target, overwrite, e);
    if (!s) return false;
    if (fill(stage_path(s), n, e)) return stage_commit(s, e);
    stage_abort(s);
    return false;
}

/* Which generation is there: all of it. -1: nothing is there. */
static int generation(void) {
    int n = -1;
    if (!file_exists(target)) return -1;
    for (int i = 0; i < PARTS; i++) {
        char name[200];
        err e = {0};
        file_map m;
        snprintf(name, sizeof name, "%s/%s%d", target, i % 2 ? "deep/" : "", i);
        assert_true(file_open_map(&m, name, &e));
        int v = atoi((const char *)m.data);
        assert_true(i == 0 || v == n);
        n = v;
        file_unmap(&m);
    }
    return n;
}

static int entries(void) {
    int n = 0;
    DIR *d = opendir(work_dir);
    for (struct dirent *f; (f = readdir(d));) n += strcmp(f->d_name, ".") && strcmp(f->d_name, "..");
    closedir(d);
    return n;
}

static void the_old_output_is_replaced(void **state) {
    (void)state;
    err e = {0};
    struct stat st;
    assert_true(make(1, false, &e));
    assert_int_equal(generation(), 1);
    assert_true(make(2, true, &e));
    assert_int_equal(generation(), 2);
    assert_int_equal(entries(), 1);
    mode_t mask = umask(0);
    umask(mask);
    assert_false(stat(target, &st));
    assert_int_equal(st.st_mode & 0777, 0777 & ~mask);
}

static void a_file_or_a_link_may_be_replaced(void **state) {
    (void)state;
    err e = {0};
    assert_true(file_write(target, "a file", 6, &e));
    assert_true(make(1, true, &e));
    assert_int_equal(generation(), 1);
    char other[96];
    snprintf(other, sizeof other, "%s/other", work_dir);
    assert_false(rename(target, other));
    assert_false(symlink(other, target));
    assert_true(make(2, true, &e));
    assert_int_equal(generation(), 2);
    assert_int_equal(entries(), 2); /* what the link pointed to is still there */
}

static void existing_output_is_refused_before_any_work(void **state) {
    (void)state;
    err e = {0};
    assert_true(make(1, false, &e));
    assert_null(stage_begin(target, false, &e));
    assert_int_equal(e.code, ERR_IO);
    assert_non_null(strstr(e.msg, "exists already"));
    assert_int_equal(entries(), 1);
    /* it appears while the work goes on */
    e = (err){0};
    char other[96];
    snprintf(other, sizeof other, "%s/other", work_dir);
    assert_false(rename(target, other));
    stage *s = stage_begin(target, false, &e);
    assert_true(fill(stage_path(s), 2, &e));
    assert_false(rename(other, target));
    assert_false(stage_commit(s, &e));
    assert_non_null(strstr(e.msg, "exists already"));
    assert_int_equal(generation(), 1);
    assert_int_equal(entries(), 1);
}

static void one_writer_at_a_time(void **state) {
    (void)state;
    err e = {0};
    stage *s = stage_begin(target, true, &e);
    assert_non_null(s);
    pid_t child = fork();
    if (!child) {
        err f = {0};
        bool refused = !stage_begin(target, true, &f) && strstr(f.msg, "is being written by another process");
        _exit(refused ? 0 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    assert_true(fill(stage_path(s), 1, &e));
    assert_true(stage_commit(s, &e));
    assert_int_equal(generation(), 1);
    assert_int_equal(entries(), 1);
}

static void an_abort_leaves_nothing(void **state) {
    (void)state;
    err e = {0};
    stage *s = stage_begin(target, false, &e);
    assert_true(fill(stage_path(s), 1, &e));
    stage_abort(s);
    stage_abort(NULL);
    assert_int_equal(entries(), 0);
    s = stage_begin(target, false, &e);
    assert_true(fill(stage_path(s), 1, &e));
    stage_abort_all();
    assert_int_equal(entries(), 0);
    assert_false(stage_commit(s, &e));
    assert_int_equal(e.code, ERR_CANCELLED);
    assert_int_equal(entries(), 0);
}

static void bad_places(void **state) {
    (void)state;
    static const char *const places[] = {"/proc/out", "/nowhere-at-all/out", "/", ".", "..", ""};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        err e = {0};
        assert_null(stage_begin(places[i], true, &e));
        assert_int_not_equal(e.code, ERR_NONE);
    }
}

/* From here on this process has no renameat2() with flags, like a file system that lacks it. */
static bool forbid_exchange(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_renameat2, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[4])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* Exit status of f() in a process of its own; NOT_HERE when the system does not let it play its part. */
enum { NOT_HERE = 77 };
static int in_child(int (*f)(void)) {
    fflush(stdout);
    pid_t child = fork();
    if (!child) _exit(f());
    int status;
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int replace_without_exchange(void) {
    err e = {0};
    if (!forbid_exchange()) return NOT_HERE;
    return make(1, false, &e) && generation() == 1 && make(2, true, &e) && generation() == 2 &&
                   !make(3, false, &e) && generation() == 2 && entries() == 1
               ? 0
               : 1;
}

static void it_works_without_exchange(void **state) {
    (void)state;
    int status = in_child(replace_without_exchange);
    if (status == NOT_HERE) {
        printf("skipped: no seccomp filters here\n");
        skip();
    }
    assert_int_equal(status, 0);
}

static void an_output_that_was_moved_away_comes_back(void **state) {
    (void)state;
    err e = {0};
    char old[128], fresh[128];
    snprintf(old, sizeof old, "%s/.out.millet-old-01234567", work_dir);
    snprintf(fresh, sizeof fresh, "%s/.out.millet-new-01234567", work_dir);
    assert_true(make(1, false, &e));
    assert_false(rename(target, old)); /* killed between the two steps */
    assert_false(mkdir(fresh, 0777));
    assert_null(stage_begin(target, false, &e)); /* it exists, then */
    assert_non_null(strstr(e.msg, "exists already"));
    assert_int_equal(generation(), 1);
    assert_int_equal(entries(), 1);
}

/* Runs a writer of generation 2 and kills it before its k-th system call. Exit status of the writer when it
 * came to its end before that, else -1. */
static int write_and_kill(int k, bool exchange) {
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        err e = {0};
        if (!exchange && !forbid_exchange()) _exit(NOT_HERE);
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL)) _exit(NOT_HERE);
        raise(SIGSTOP);
        _exit(make(2, true, &e) ? 0 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    for (int stops = 0; stops < 2 * k - 1 && WIFSTOPPED(status);
         stops++) { /* a stop before each call, one after it */
        ptrace(PTRACE_SYSCALL, child, NULL, NULL);
        waitpid(child, &status, 0);
    }
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    assert_true(WIFSIGNALED(status));
    return -1;
}

static void kill_writers(bool exchange) {
    for (int k = 1, end = -1; end; k++) {
        err e = {0};
        assert_true(make(1, true, &e));
        end = write_and_kill(k, exchange);
        if (end == NOT_HERE) {
            printf("skipped: no right to trace or filter a process\n");
            skip();
        }
        assert_true(end <= 0);
        if (exchange) assert_in_range(generation(), 1, 2); /* without any repair */
        stage *s = stage_begin(target, true, &e);          /* what the next run does first */
        assert_non_null(s);
        stage_abort(s);
        assert_in_range(generation(), 1, 2);
        assert_int_equal(entries(), 1);
        if (!end) assert_in_range(k, 20, 1000); /* the points of death were many */
    }
}

static void killed_writers_leave_old_or_new(void **state) {
    (void)state;
    kill_writers(true);
}

static void killed_writers_without_exchange(void **state) {
    (void)state;
    kill_writers(false);
}

static int write_on_a_full_disk(void) {
    err e = {0};
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL)) return NOT_HERE;
    if (mount("none", work_dir, "tmpfs", 0, "size=64k")) return NOT_HERE;
    if (!make(1, false, &e)) return 1;
    stage *s = stage_begin(target, true, &e);
    char name[200], *big = mem_try(1, 1 << 20);
    snprintf(name, sizeof name, "%s/big", stage_path(s));
    if (file_write(name, big, 1 << 20, &e) || !strstr(e.msg, "No space left")) return 2;
    mem_free(big);
    stage_abort(s);
    return generation() == 1 && entries() == 1 ? 0 : 3;
}

static void a_full_disk_leaves_the_old_output(void **state) {
    (void)state;
    int status = in_child(write_on_a_full_disk);
    if (status == NOT_HERE) {
        printf("skipped: no right to mount a small file system\n");
        skip();
    }
    assert_int_equal(status, 0);
}

static int write_past_the_limit(void) {
    err e = {0};
    if (!make(1, false, &e)) return 1;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){0, 0});
    if (make(2, true, &e) || !strstr(e.msg, "File too large")) return 2;
    return generation() == 1 && entries() == 1 ? 0 : 3;
}

static void a_file_size_limit_leaves_the_old_output(void **state) {
    (void)state;
    assert_int_equal(in_child(write_past_the_limit), 0);
}

/* All descriptors are taken but those of the stage. */
static int abort_without_descriptors(void) {
    err e = {0};
    stage *s = stage_begin(target, false, &e);
    if (!s || !fill(stage_path(s), 1, &e)) return 1;
    int next = dup(0);
    close(next);
    const struct rlimit limit = {(rlim_t)next, (rlim_t)next};
    if (setrlimit(RLIMIT_NOFILE, &limit)) return 2;
    stage_abort(s);
    return 0;
}

static void an_abort_needs_no_more_descriptors(void **state) {
    (void)state;
    assert_int_equal(in_child(abort_without_descriptors), 0);
    assert_int_equal(entries(), 0);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, remove_work_dir)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(the_old_output_is_replaced),
        CASE(a_file_or_a_link_may_be_replaced),
        CASE(existing_output_is_refused_before_any_work),
        CASE(one_writer_at_a_time),
        CASE(an_abort_leaves_nothing),
        CASE(bad_places),
        CASE(it_works_without_exchange),
        CASE(an_output_that_was_moved_away_comes_back),
        CASE(killed_writers_leave_old_or_new),
        CASE(killed_writers_without_exchange),
        CASE(a_full_disk_leaves_the_old_output),
        CASE(a_file_size_limit_leaves_the_old_output),
        CASE(an_abort_needs_no_more_descriptors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
