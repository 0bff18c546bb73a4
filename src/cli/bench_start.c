/* Starts, in processes of their own: this program again, with --protocol start. */
#define _GNU_SOURCE
#include "base/clock.h"
#include "base/json.h"
#include "cli/bench.h"
#include "cli/output.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CACHED_STARTS = 5 };

void bench_print_start(const bench_start *s, bool as_json) {
    str b = {0};
    if (as_json) {
        str_adds(&b, "{\"opened_s\":");
        str_json_double(&b, s->opened);
        str_adds(&b, ",\"first_token_s\":");
        str_json_double(&b, s->first_token);
        str_printf(&b, ",\"peak_bytes\":%" PRIu64 "}\n", s->peak);
    } else {
        str_printf(&b, "opened in %.3f s, first token after %.3f s; peak memory %.1f MiB\n", s->opened,
                   s->first_token, (double)s->peak / 1048576);
    }
    cli_out(b.s, b.len);
    str_free(&b);
}

static bool spawn(const bench_report *s, int out, pid_t *pid, err *e) {
    const char *argv[] = {"millet",      "bench",      s->artifact,
                          "--protocol",  "start",      "--json",
                          "--precision", s->precision, s->contract ? "--contract" : NULL,
                          s->contract,   NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    int code = posix_spawn(pid, "/proc/self/exe", &actions, NULL, (char **)(uintptr_t)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return !code || err_set(e, ERR_IO, "millet can't be started again: %s", strerror(code));
}

/* All that the process writes; *end: when the first of it came. */
static void read_all(int fd, str *text, double *end) {
    char part[512];
    ssize_t n;
    *end = 0;
    while ((n = read(fd, part, sizeof part)) > 0 || (n < 0 && errno == EINTR && !cli_interrupted())) {
        if (n < 0) continue;
        if (!*end) *end = clock_seconds();
        str_add(text, part, (size_t)n);
    }
}

static bool wait_for(pid_t pid, err *e) {
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return err_set(e, ERR_IO, "a start of millet can't be waited for: %s", strerror(errno));
    if (cli_interrupted()) return err_set(e, ERR_CANCELLED, "cancelled");
    if (WIFEXITED(status) && !WEXITSTATUS(status)) return true;
    return WIFSIGNALED(status)
               ? err_set(e, ERR_IO, "a start in a new process ended by signal %d", WTERMSIG(status))
               : err_set(e, ERR_IO, "a start in a new process ended with exit status %d",
                         WEXITSTATUS(status));
}

static bool parse(bench_report *s, const str *text, bench_start *to, err *e) {
    const json *o = json_parse(s->a, "a start in a new process", str_get(text), text->len, e);
    if (!o) return false;
    *to = (bench_start){json_double(o, "opened_s", 0), json_double(o, "first_token_s", 0),
                        (uint64_t)json_int(o, "peak_bytes", 0)};
    return true;
}

static bool start_once(bench_report *s, bench_start *to, double *whole, err *e) {
    int ends[2];
    pid_t pid;
    double begin = clock_seconds(), end;
    if (cli_interrupted()) return err_set(e, ERR_CANCELLED, "cancelled");
    if (pipe2(ends, O_CLOEXEC)) return err_set(e, ERR_IO, "no pipe: %s", strerror(errno));
    bool ok = spawn(s, ends[1], &pid, e);
    close(ends[1]);
    str text = {0};
    if (ok) {
        read_all(ends[0], &text, &end);
        if (cli_interrupted()) kill(pid, SIGKILL);
        ok = wait_for(pid, e) && parse(s, &text, to, e);
        *whole = end - begin;
    }
    close(ends[0]);
    str_free(&text);
    return ok;
}

static int by_whole(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

bool bench_measure_starts(bench_report *s, const footprint *f, err *e) {
    bench_starts *t = &s->start;
    struct {
        double whole;
        bench_start s;
    } cached[CACHED_STARTS];
    if (!footprint_drop(f, &t->left, e)) return false;
    t->dropped = t->left <= s->size / 100;
    bool ok = start_once(s, &t->cold, &t->cold_whole, e);
    for (int i = 0; i < CACHED_STARTS && ok; i++) ok = start_once(s, &cached[i].s, &cached[i].whole, e);
    if (!ok) return false;
    qsort(cached, CACHED_STARTS, sizeof *cached, by_whole);
    t->cached = cached[CACHED_STARTS / 2].s;
    t->cached_whole = cached[CACHED_STARTS / 2].whole;
    t->measured = true;
    return true;
}
