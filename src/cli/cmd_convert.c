#define _GNU_SOURCE
#include "base/clock.h"
#include "cli/options.h"
#include "cli/output.h"
#include "convert/convert.h"
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define MIB 1048576.0

/* Progress on stderr: one line that is rewritten on a terminal, a line a second elsewhere. */
typedef struct {
    bool shown, terminal;
    double start, last;
} progress;

static bool on_progress(void *ctx, const char *tensor, uint64_t done, uint64_t total, uint64_t tensors_done,
                        uint64_t tensors) {
    progress *p = ctx;
    if (cli_interrupted()) return false;
    double t = clock_seconds();
    if (!done) p->start = t; /* the time left is that of writing */
    double spent = t - p->start;
    if (!p->shown || (t - p->last < (p->terminal ? 0.1 : 1) && (done < total || !total))) return true;
    p->last = t;
    fputs(p->terminal ? "\r" : "", stderr);
    if (total) {
        double rate = spent > 0 ? (double)done / spent : 0;
        fprintf(stderr, "%3.0f %%  %.0f of %.0f MiB  %llu of %llu tensors",
                100.0 * (double)done / (double)total, (double)done / MIB, (double)total / MIB,
                (unsigned long long)tensors_done, (unsigned long long)tensors);
        if (spent > 1 && done > total / 100)
            fprintf(stderr, "  %.0f MiB/s  %.0f s left", rate / MIB, (double)(total - done) / rate);
    } else {
        fputs("looking at weights", stderr);
    }
    fprintf(stderr, "  %.40s%s", tensor, p->terminal ? "\033[K" : "\n");
    fflush(stderr);
    return true;
}

/* Warnings go to stderr, also when the rest is not wanted. */
static void print_summary(const char *text, bool quiet) {
    for (const char *line = text, *end; *line; line = end) {
        end = strchrnul(line, '\n');
        int n = (int)(end - line);
        if (*end) end++;
        if (!strncmp(line, "warning: ", 9))
            cli_error("%.*s", n, line);
        else if (!quiet)
            cli_printf("%.*s\n", n, line);
    }
}

/* What the conversion took. The peak counts pages of mapped files, which the kernel may drop. */
static void print_cost(double seconds) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    double cpu = (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
                 (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
    cli_printf("  %.1f s, %.1f s of CPU time, peak memory (VmHWM) %.0f MiB\n", seconds, cpu,
               (double)u.ru_maxrss / 1024);
}

/* "2147483648", "2GiB", "512M": a whole number from 1, of bytes or with a unit. M and G are MiB and GiB. */
static bool read_size(const char *s, uint64_t *bytes) {
    static const struct {
        const char *unit;
        int shift;
    } units[] = {{"", 0}, {"M", 20}, {"MiB", 20}, {"G", 30}, {"GiB", 30}};
    size_t digits = strspn(s, "0123456789");
    char number[32];
    int64_t n;
    if (!digits || digits >= sizeof number) return false;
    memcpy(number, s, digits);
    number[digits] = 0;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcmp(s + digits, units[i].unit)) continue;
        if (!str_to_int64(number, &n) || n < 1 || n > INT64_MAX >> units[i].shift) return false;
        *bytes = (uint64_t)n << units[i].shift;
        return true;
    }
    return false;
}

int cmd_convert(const cli_args *a) {
    const char *out = cli_text(a, "output"), *into = cli_text(a, "into"),
               *size = cli_text(a, "max-file-size");
    uint64_t max_file_size = 0;
    if (!out == !into)
        return cli_usage(a, "give the directory to write with -o OUT, or one to write into with --into DIR");
    if (size && !read_size(size, &max_file_size))
        return cli_usage(
            a, "--max-file-size must be a whole number from 1, of bytes or with MiB, GiB, M or G, not '%s'",
            size);
    bool quiet = cli_flag(a, "quiet");
    double start = clock_seconds();
    progress p = {.start = start, .terminal = isatty(STDERR_FILENO)};
    p.shown = !quiet && (p.terminal || cli_flag(a, "progress"));
    const convert_options o = {
        .format = cli_text(a, "format"),
        .steer_around = cli_text(a, "steer-around"),
        .preset = cli_text(a, "preset"),
        .precision = cli_given(a, "precision") ? cli_text(a, "precision") : NULL,
        .state = cli_text(a, "state"),
        .context = cli_given(a, "context") ? cli_int(a, "context") : 0,
        .top_k = cli_given(a, "top-k") ? cli_int(a, "top-k") : -1,
        .prefill = cli_text(a, "prefill"),
        .chunks = cli_text(a, "chunks"),
        .kv = cli_text(a, "kv"),
        .table = cli_text(a, "table"),
        .max_file_size = max_file_size,
        .quantize = cli_text(a, "quantize"),
        .vocab = cli_text(a, "vocab"),
        .recipe = cli_text(a, "recipe"),
        .group_size = cli_int(a, "group-size"),
        .report = cli_text(a, "report"),
        .variants = cli_text(a, "variants"),
        .remove_fp16 = cli_flag(a, "remove-fp16"),
        .source_dtype = cli_text(a, "source-dtype"),
        .precision_plan = cli_text(a, "precision-plan"),
        .tokenizer = cli_text(a, "tokenizer"),
        .into = into != NULL,
        .share_weights = cli_text(a, "share-weights"),
        .overwrite = cli_flag(a, "overwrite"),
        .progress = on_progress,
        .ctx = &p,
    };
    err e = {0};
    str summary = {0};
    cli_catch_interrupts();
    bool ok = convert_checkpoint(cli_arg(a, "CHECKPOINT"), out ? out : into, &o, &summary, &e);
    if (p.shown && p.terminal) fputs("\r\033[K", stderr);
    if (ok) print_summary(str_get(&summary), quiet);
    if (ok && !quiet) print_cost(clock_seconds() - start);
    str_free(&summary);
    if (ok) return CLI_OK;
    int code = cli_fail(&e);
    return code == CLI_FAILED && e.code == ERR_USAGE ? CLI_USAGE : code;
}
