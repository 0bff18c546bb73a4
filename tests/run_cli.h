/* Runs the program in tests: arguments as a list, standard output and error into memory. */
#ifndef RUN_CLI_H
#define RUN_CLI_H
#include "base/file.h"
#include "base/str.h"
#include "test.h"
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct {
    int code; /* exit code; 128 + signal */
    str out, error;
} cli_result;

static inline void cli_slurp(str *to, const char *path) {
    err e = {0};
    file_map m;
    assert_true(file_open_map(&m, path, &e));
    str_add(to, m.data, m.size);
    file_unmap(&m);
}

/* argv: the command and its arguments, up to NULL. dir: a writable directory for the captured streams. */
static inline cli_result run_cli(const char *dir, const char *const *argv) {
    char out[512], error[512];
    snprintf(out, sizeof out, "%s/stdout", dir);
    snprintf(error, sizeof error, "%s/stderr", dir);
    const char *bin = getenv("MILLET_BIN"), *all[40] = {bin ? bin : "build/millet"};
    for (size_t i = 0; argv[i]; i++) {
        assert_true(i < 38);
        all[i + 1] = argv[i];
    }
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        dup2(open("/dev/null", O_RDONLY), 0);
        dup2(open(out, O_WRONLY | O_CREAT | O_TRUNC, 0600), 1);
        dup2(open(error, O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
        execv(all[0], (char *const *)all);
        _exit(127);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    cli_result r = {.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)};
    cli_slurp(&r.out, out);
    cli_slurp(&r.error, error);
    return r;
}

#define RUN_CLI(dir, ...) run_cli(dir, (const char *const[]){__VA_ARGS__, NULL})

static inline void cli_result_free(cli_result *r) {
    str_free(&r->out);
    str_free(&r->error);
}
#endif
