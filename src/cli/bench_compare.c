/* Before and after: two files that --json wrote. */
#include "base/json.h"
#include "cli/bench.h"
#include "cli/output.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef struct {
    const char *path;
    const json *o;
} file;

/* A figure of both, by the name of its member; names end in its unit. */
typedef struct {
    const char *name, *shown, *format;
    double scale;
} figure;

static const figure of_tests[] = {
    {"prompt_tokens_per_s", "prompt tok/s", "%.1f", 1},
    {"prompt_gflop_per_s", "prompt GFLOP/s", "%.1f", 1},
    {"share_of_arithmetic", "prompt, % of peak", "%.1f", 100},
    {"decode_tokens_per_s", "decode tok/s", "%.1f", 1},
    {"bytes_per_token", "decode MB/token", "%.2f", 1e-6},
    {"gb_per_s", "decode GB/s", "%.2f", 1},
    {"share_of_read", "decode, % of read", "%.1f", 100},
};
static const figure of_files[] = {
    {"opened_s", "opened, s", "%.3f", 1},
    {"peak_bytes", "peak memory, MiB", "%.1f", 1.0 / 1048576},
    {"package_bytes", "package, MiB", "%.1f", 1.0 / 1048576},
};
static const figure of_starts[] = {
    {"cold_first_token_s", "first token, empty caches, s", "%.3f", 1},
    {"cached_first_token_s", "first token, files in memory, s", "%.3f", 1},
};
#define COUNT(x) (sizeof(x) / sizeof *(x))

static bool read_file(file *f, arena *a, err *e) {
    f->o = json_object_file(a, f->path, e);
    if (!f->o) return false;
    if (strcmp(json_str(f->o, "format", ""), "millet bench") != 0 || json_int(f->o, "format_version", 0) != 1)
        return err_set(e, ERR_FORMAT,
                       "%s: is not what millet bench --json writes (format \"millet bench\", version 1)",
                       f->path);
    if (!json_get_kind(f->o, "results", JSON_ARRAY))
        return err_set(e, ERR_FORMAT, "%s: has no results: of --limits there is nothing to compare", f->path);
    return true;
}

/* Text of a file for a terminal. */
static const char *clean(arena *a, const char *text) {
    char *copy = arena_str(a, text);
    for (char *c = copy; *c; c++)
        if ((unsigned char)*c < 32 || *c == 127 || *c == '|') *c = '?';
    return copy;
}

/* A line, when one of the two has the figure. */
static void add_line(table *t, const char *test, const figure *f, double before, double after) {
    if (!isfinite(before) && !isfinite(after)) return;
    table_text(t, test);
    table_text(t, f->shown);
    table_number(t, f->format, before * f->scale);
    table_number(t, f->format, after * f->scale);
    table_number(t, "%.3f", after / before);
}

static void add_lines(table *t, const char *test, const figure *f, size_t n, const json *before,
                      const json *after) {
    for (size_t i = 0; i < n; i++)
        add_line(t, test, &f[i], json_double(before, f[i].name, NAN), json_double(after, f[i].name, NAN));
}

static bool same_test(const json *x, const json *y) {
    static const char *const sizes[] = {"threads", "depth", "prompt", "new_tokens"};
    bool same = !strcmp(json_str(x, "name", ""), json_str(y, "name", ""));
    for (size_t i = 0; i < COUNT(sizes); i++) same &= json_int(x, sizes[i], -1) == json_int(y, sizes[i], -1);
    return same;
}

static const char *test_name(arena *a, const json *r) {
    return arena_printf(a, "%s, depth %" PRId64 ", threads %" PRId64, clean(a, json_str(r, "name", "")),
                        json_int(r, "depth", 0), json_int(r, "threads", 0));
}

static const json *find_test(const file *f, const json *like) {
    JSON_EACH(r, json_get(f->o, "results")) if (same_test(r, like)) return r;
    return NULL;
}

static void add_limits(table *t, const file *before, const file *after) {
    static const figure read = {"read_best_gb_per_s", "read bandwidth, GB/s", "%.2f", 1};
    JSON_EACH(x, json_get(before->o, "limits"))
    JSON_EACH(y, json_get(after->o, "limits")) {
        int64_t threads = json_int(x, "threads", 0);
        if (threads == json_int(y, "threads", 0))
            add_lines(t, arena_printf(t->a, "machine, threads %" PRId64, threads), &read, 1, x, y);
    }
}

/* ---- profiles ---- */

/* Seconds of the worker that was busy longest. */
static double busiest(const json *row) {
    double most = 0;
    JSON_EACH(s, json_get(row, "work_s"))
    if (s->kind == JSON_REAL || s->kind == JSON_INT) most = fmax(most, s->d);
    return most;
}

static const json *kernel_named(const json *measured, const char *name) {
    JSON_EACH(k, json_get(measured, "kernels")) if (!strcmp(json_str(k, "name", ""), name)) return k;
    return NULL;
}

static void add_kernel(table *t, const char *name, const json *before, const json *after, double tokens[2]) {
    double x = before ? 1e3 * busiest(before) / tokens[0] : NAN,
           y = after ? 1e3 * busiest(after) / tokens[1] : NAN;
    table_text(t, clean(t->a, name));
    table_number(t, "%.4f", x);
    table_number(t, "%.4f", y);
    table_number(t, "%.3f", y / x);
}

static void print_profiles(arena *a, const json *x, const json *y, const char *member, bool markdown) {
    const json *before = json_get_kind(x, member, JSON_OBJECT),
               *after = json_get_kind(y, member, JSON_OBJECT);
    if (!before || !after) return;
    double tokens[2] = {json_double(before, "tokens", NAN), json_double(after, "tokens", NAN)};
    table t = {.a = a, .columns = 4};
    table_text(&t, arena_printf(a, "%s: %s, ms/token", test_name(a, x),
                                strcmp(member, "prompt_profile") ? "decode" : "prompt"));
    table_text(&t, "before");
    table_text(&t, "after");
    table_text(&t, "ratio");
    JSON_EACH(k, json_get(before, "kernels")) {
        const char *name = json_str(k, "name", "");
        add_kernel(&t, name, k, kernel_named(after, name), tokens);
    }
    JSON_EACH(k, json_get(after, "kernels")) {
        const char *name = json_str(k, "name", "");
        if (!kernel_named(before, name)) add_kernel(&t, name, NULL, k, tokens);
    }
    cli_printf("\n");
    table_print(&t, markdown);
}

/* ---- the whole ---- */

static void print_file(arena *a, const char *which, const file *f) {
    cli_printf("%s: %s, precision %s (%s), %s, %s (%s), load average %.1f\n", which,
               clean(a, json_str(f->o, "artifact", "")), clean(a, json_str(f->o, "precision", "")),
               clean(a, json_str(f->o, "linear", "")), clean(a, json_str(f->o, "time", "")),
               clean(a, json_str(f->o, "cpu", "")), clean(a, json_str(f->o, "isa", "")),
               json_double(f->o, "load_average", NAN));
}

bool bench_compare(arena *a, const char *before, const char *after, bool markdown, err *e) {
    file x = {.path = before}, y = {.path = after};
    if (!read_file(&x, a, e) || !read_file(&y, a, e)) return false;
    table t = {.a = a, .columns = 5};
    table_text(&t, "test"), table_text(&t, "figure");
    table_text(&t, "before"), table_text(&t, "after"), table_text(&t, "ratio");
    size_t head = t.n;
    JSON_EACH(r, json_get(x.o, "results")) {
        const json *s = find_test(&y, r);
        if (s) add_lines(&t, test_name(a, r), of_tests, COUNT(of_tests), r, s);
    }
    if (t.n == head) return err_set(e, ERR_INVALID, "%s and %s have no test in common", before, after);
    add_limits(&t, &x, &y);
    add_lines(&t, "process", of_files, COUNT(of_files), x.o, y.o);
    add_lines(&t, "process", of_starts, COUNT(of_starts), json_get(x.o, "start"), json_get(y.o, "start"));
    print_file(a, "before", &x);
    if (markdown) cli_printf("\n");
    print_file(a, "after", &y);
    cli_printf("\n");
    table_print(&t, markdown);
    JSON_EACH(r, json_get(x.o, "results")) {
        const json *s = find_test(&y, r);
        if (!s) continue;
        print_profiles(a, r, s, "prompt_profile", markdown);
        print_profiles(a, r, s, "decode_profile", markdown);
    }
    return true;
}
