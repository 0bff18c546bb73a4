#include "base/clock.h"
#include "base/str.h"
#include "check/manifest.h"
#include "cli/options.h"
#include "cli/output.h"
#include <string.h>

static bool go_on(void *ctx) {
    (void)ctx;
    return !cli_interrupted();
}

static void add_text(str *s, const char *key, const char *value) {
    str_printf(s, "\"%s\":", key);
    str_json_string(s, value, strlen(value));
}

static void print_json(const check_manifest *r) {
    str s = {0};
    str_printf(&s, "{\"passed\":%s,", r->n_bad ? "false" : "true");
    add_text(&s, "document", r->document);
    str_printf(
        &s, ",\"packages\":%zu,\"files\":%zu,\"bytes\":%llu,\"statements\":%zu,\"signature_checked\":%s",
        r->packages, r->files, (unsigned long long)r->bytes, r->statements, r->signature ? "true" : "false");
    str_adds(&s, ",\"failures\":[");
    for (size_t i = 0; i < r->n_bad; i++) {
        const check_contradiction *c = &r->bad[i];
        str_adds(&s, i ? ",{" : "{");
        add_text(&s, "file", c->file);
        str_addc(&s, ',');
        add_text(&s, "what", c->what);
        str_addc(&s, ',');
        add_text(&s, "expected", c->expected);
        str_addc(&s, ',');
        add_text(&s, "found", c->found);
        str_addc(&s, '}');
    }
    str_adds(&s, "],\"not_compared\":[");
    if (r->tokenizer_unstated) str_adds(&s, "\"tokenizer\"");
    if (r->no_contract) str_adds(&s, r->tokenizer_unstated ? ",\"language\"" : "\"language\"");
    str_adds(&s, "]}\n");
    cli_out(s.s, s.len);
    str_free(&s);
}

static void print_text(const check_manifest *r, double seconds) {
    for (size_t i = 0; i < r->n_bad; i++) {
        const check_contradiction *c = &r->bad[i];
        cli_printf("%s: %s: expected %s, found %s\n", c->file, c->what, c->expected, c->found);
    }
    if (r->tokenizer_unstated) cli_printf("%s: states nothing about the tokenizer's files\n", r->document);
    if (r->no_contract)
        cli_printf("%s: vocabulary, context and states are not compared: no contract known here fits: %s\n",
                   r->document, r->no_contract);
    cli_printf("%s: %zu package%s, %zu file%s of %.1f MB, %zu statement%s%s, %.1f s: ", r->document,
               r->packages, str_plural(r->packages), r->files, str_plural(r->files), (double)r->bytes / 1e6,
               r->statements, str_plural(r->statements), r->signature ? ", signature" : "", seconds);
    if (r->n_bad)
        cli_printf("%zu contradiction%s\n", r->n_bad, str_plural(r->n_bad));
    else
        cli_printf("all as stated\n");
}

int cmd_verify_manifest(const cli_args *a) {
    err e = {0};
    check_manifest r;
    arena *mem = arena_new();
    double start = clock_seconds();
    cli_catch_interrupts();
    bool ok = check_manifest_run(&r, mem, cli_arg(a, "DIR"), cli_text(a, "against"), go_on, NULL, &e);
    if (ok && cli_flag(a, "json"))
        print_json(&r);
    else if (ok)
        print_text(&r, clock_seconds() - start);
    int code = !ok ? cli_fail(&e) : r.n_bad ? CLI_FAILED : CLI_OK;
    arena_free(mem);
    return code;
}
