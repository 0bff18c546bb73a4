#include "base/clock.h"
#include "cli/constraint.h"
#include "cli/input.h"
#include "cli/options.h"
#include "cli/output.h"
#include "generate/generator.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool go_on(void *ctx) {
    (void)ctx;
    return !cli_interrupted();
}

static bool stream(void *ctx, int32_t id, const char *text, size_t len) {
    (void)ctx, (void)id;
    return !len || (cli_out(text, len) && cli_flush());
}

static double rate(size_t n, double seconds) {
    return n && seconds > 0 ? (double)n / seconds : NAN;
}

static size_t decoded(const generate_result *r) {
    return r->n_ids ? r->n_ids - 1 : 0; /* the first id comes from the prompt's own scores */
}

static void print_json(const lm *m, const generate_result *r, double load) {
    str b = {0};
    str_adds(&b, "{\"ids\":[");
    for (size_t i = 0; i < r->n_ids; i++) str_printf(&b, "%s%d", i ? "," : "", r->ids[i]);
    str_adds(&b, "],\"text\":");
    if (m->text)
        str_json_string(&b, str_get(&r->text), r->text.len);
    else
        str_adds(&b, "null");
    str_printf(&b, ",\"prompt_tokens\":%zu,\"finish_reason\":\"%s\",\"timings\":{", r->prompt_tokens,
               generate_finish_name(r->finish));
    const struct {
        const char *name;
        double value;
    } t[] = {{"load_s", load},
             {"prompt_s", r->prompt_seconds},
             {"prompt_tokens_per_s", rate(r->prompt_tokens, r->prompt_seconds)},
             {"decode_s", r->decode_seconds},
             {"decode_tokens_per_s", rate(decoded(r), r->decode_seconds)}};
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
        str_printf(&b, "%s\"%s\":", i ? "," : "", t[i].name);
        str_json_double(&b, t[i].value);
    }
    str_adds(&b, "}}\n");
    cli_out(b.s, b.len);
    str_free(&b);
}

static void print_speed(const generate_result *r, double load) {
    if (r->text.len && r->text.s[r->text.len - 1] != '\n') cli_out("\n", 1);
    cli_flush();
    fprintf(stderr, "loaded in %.2f s; prompt: %zu token%s, %.1f tokens/s", load, r->prompt_tokens,
            str_plural(r->prompt_tokens), rate(r->prompt_tokens, r->prompt_seconds));
    if (decoded(r))
        fprintf(stderr, "; decode: %zu token%s, %.1f tokens/s", r->n_ids, str_plural(r->n_ids),
                rate(decoded(r), r->decode_seconds));
    fprintf(stderr, " (%s)\n", generate_finish_name(r->finish));
}

static void take_real(const cli_args *a, const char *option, float *to) {
    if (cli_given(a, option)) *to = (float)cli_real(a, option);
}

static generate_options options(const cli_args *a, const lm *m) {
    generate_options o = {.mode = strcmp(cli_text(a, "precision"), "strict") ? RT_FAST : RT_STRICT,
                          .sampling = m->defaults,
                          .max_new = cli_given(a, "max-new-tokens") ? cli_int(a, "max-new-tokens") : -1,
                          .ignore_eos = cli_flag(a, "ignore-eos"),
                          .keep_going = go_on,
                          .cancel = cli_cancel()};
    sampler_options *s = &o.sampling;
    take_real(a, "temperature", &s->temperature);
    take_real(a, "top-p", &s->top_p);
    take_real(a, "min-p", &s->min_p);
    take_real(a, "repetition-penalty", &s->repetition_penalty);
    take_real(a, "presence-penalty", &s->presence_penalty);
    take_real(a, "frequency-penalty", &s->frequency_penalty);
    if (cli_given(a, "top-k")) s->top_k = cli_int(a, "top-k");
    s->seed = (uint64_t)cli_int(a, "seed");
    if (!cli_flag(a, "json")) o.on_token = stream;
    return o;
}

static bool read_prompt(const cli_args *a, const lm *m, int32_t **ids, size_t *n, err *e) {
    if (cli_given(a, "raw-ids")) return cli_read_ids(cli_text(a, "raw-ids"), ids, n, e);
    if (cli_given(a, "prompt"))
        return lm_encode(m, cli_text(a, "prompt"), strlen(cli_text(a, "prompt")), ids, n, e);
    str text = {0};
    bool ok = cli_read_text(&text, cli_text(a, "prompt-file"), e) &&
              lm_encode(m, str_get(&text), text.len, ids, n, e);
    str_free(&text);
    return ok;
}

/* A document that was cut is none. */
static bool check_whole(const matcher *c, const generate_result *r, err *e) {
    return !c || r->finish != GENERATE_LENGTH || matcher_may_end(c) ||
           err_set(e, ERR_LIMIT,
                   "the JSON text is incomplete: it was cut at %zu token%s; --max-new-tokens allows more",
                   r->n_ids, str_plural(r->n_ids));
}

/* Refuses options of the sampler when there is nothing to sample; CLI_OK when all is well. */
static int check_usage(const cli_args *a) {
    static const char *const of_sampler[] = {"top-k", "top-p", "min-p", "seed"};
    if (cli_given(a, "prompt") + cli_given(a, "prompt-file") + cli_given(a, "raw-ids") != 1)
        return cli_usage(a, "give one of --prompt, --prompt-file and --raw-ids");
    if (cli_given(a, "json-schema") && cli_flag(a, "json-object"))
        return cli_usage(a, "give one of --json-object and --json-schema");
    if (cli_flag(a, "ignore-eos") && (cli_given(a, "json-schema") || cli_flag(a, "json-object")))
        return cli_usage(a, "--ignore-eos can't go with JSON, which ends");
    bool samples = cli_given(a, "temperature") && cli_real(a, "temperature") > 0;
    for (size_t i = 0; !samples && i < sizeof of_sampler / sizeof *of_sampler; i++)
        if (cli_given(a, of_sampler[i]))
            return cli_usage(a, "--%s needs a --temperature above 0", of_sampler[i]);
    return CLI_OK;
}

int cmd_run(const cli_args *a) {
    int usage = check_usage(a);
    if (usage != CLI_OK) return usage;
    err e = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    generate_result r = {0};
    bool as_json = cli_flag(a, "json");
    cli_catch_interrupts();
    double start = clock_seconds(), load = 0;
    lm *m = lm_open_as(cli_arg(a, "PACKAGE"), cli_text(a, "tokenizer"), cli_text(a, "contract"), &e);
    bool ok = m && read_prompt(a, m, &ids, &n, &e);
    load = clock_seconds() - start;
    if (ok) {
        generate_options o = options(a, m);
        o.constraint = cli_constraint(a, m, &e);
        ok = e.code == ERR_NONE && generate_run(m, ids, n, &o, &r, &e);
        if (ok && as_json) print_json(m, &r, load);
        ok = ok && check_whole(o.constraint, &r, &e);
        if (!as_json && r.text.len && !ok) cli_out("\n", 1);
        if (!as_json && ok && cli_flush()) print_speed(&r, load);
        matcher_free(o.constraint);
    }
    generate_result_free(&r);
    mem_free(ids);
    lm_close(m);
    if (!ok) return cli_fail(&e);
    return cli_done();
}
