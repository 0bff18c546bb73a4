#include "check/figures.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* The text of a token; null without a tokenizer. */
static void add_token(str *s, const char *key, const lm *m, int32_t id) {
    str text = figure_token(m, id);
    str_printf(s, ",\"%s\":", key);
    if (m->text)
        str_json_string(s, str_get(&text), text.len);
    else
        str_adds(s, "null");
    str_free(&text);
}

static void add_number(str *s, const char *key, double v) {
    str_printf(s, ",\"%s\":", key);
    str_json_double(s, v);
}

static void add_count(str *s, const char *key, uint64_t n) {
    str_printf(s, ",\"%s\":%" PRIu64, key, n);
}

static void add_name(str *s, const char *key, const char *name) {
    str_printf(s, ",\"%s\":", key);
    if (name)
        str_json_string(s, name, strlen(name));
    else
        str_adds(s, "null");
}

static void add_line(void *ctx, const char *line, size_t n) {
    str *s = ctx;
    if (s->s[s->len - 1] != '[') str_addc(s, ',');
    str_json_string(s, line, n);
}

static void add_lines(str *s, const char *key, const str *lines) {
    str_printf(s, ",\"%s\":[", key);
    figure_lines(lines, add_line, s);
    str_addc(s, ']');
}

/* Opens a list of objects' next one, with its first member. */
static void next(str *s, bool first) {
    str_adds(s, first ? "{" : ",{");
}

static void add_positions(str *s, const check_report *r, const check_parity *p) {
    str_adds(s, ",\"worst\":[");
    for (size_t i = 0; i < p->n_worst; i++) {
        const check_position *w = &p->worst[i];
        next(s, !i);
        str_adds(s, "\"text\":");
        str_json_string(s, r->texts.text[w->text].name, strlen(r->texts.text[w->text].name));
        str_printf(s, ",\"index\":%zu,\"token\":%d,\"expected\":%d,\"found\":%d", w->index, w->token, w->want,
                   w->got);
        add_token(s, "token_text", r->side[0].m, w->token);
        add_token(s, "expected_text", r->side[0].m, w->want);
        add_token(s, "found_text", r->side[0].m, w->got);
        add_number(s, "kl", w->kl);
        add_number(s, "margin", w->margin);
        str_addc(s, '}');
    }
    str_adds(s, "],\"by_position\":[");
    for (size_t i = 0; i < p->positions; i++) {
        const check_position *w = &p->position[i];
        next(s, !i);
        str_printf(s, "\"text\":%zu,\"index\":%zu,\"agree\":%s", w->text, w->index,
                   w->want == w->got ? "true" : "false");
        add_number(s, "kl", w->kl);
        add_number(s, "margin", w->margin);
        str_addc(s, '}');
    }
    str_addc(s, ']');
}

static void add_scores(str *s, const check_report *r) {
    const check_parity *p = &r->side[0].parity;
    str_printf(s, ",\"candidates\":%lld,\"positions\":%zu", (long long)r->side[0].m->form.top_k,
               p->positions);
    add_number(s, "top1_agreement", p->positions ? figure_share(p->agree, p->positions) : NAN);
    add_count(s, "certain", p->certain);
    add_number(s, "certain_agreement", p->certain ? figure_share(p->certain_agree, p->certain) : NAN);
    add_number(s, "min_agreement", r->min_agreement / 100);
    add_number(s, "mean_cosine", p->cosine);
    add_number(s, "mean_kl", p->kl);
    add_number(s, "largest_error", p->error);
    add_number(s, "range", p->range);
    add_number(s, "perplexity", figure_perplexity(p->nll, p->next));
    add_number(s, "perplexity_reference", figure_perplexity(p->nll_ref, p->next));
    add_count(s, "outside_candidates", p->outside);
    add_count(s, "bad_ids", p->bad_ids);
    add_positions(s, r, p);
}

static void add_layers(str *s, const check_layers *l) {
    str_adds(s, ",\"layers\":[");
    for (size_t i = 0; i < l->n; i++) {
        next(s, !i);
        str_printf(s, "\"layer\":%" PRId64, l->layer[i].layer);
        add_number(s, "error", l->layer[i].error);
        str_addc(s, '}');
    }
    str_adds(s, "],\"boundaries\":[");
    for (size_t i = 0; i < l->n_boundary; i++) {
        next(s, !i);
        str_printf(s, "\"layer\":%" PRId64, l->boundary[i].out.layer);
        add_name(s, "package", l->boundary[i].package);
        add_number(s, "error", l->boundary[i].out.error);
        str_addc(s, '}');
    }
    str_addc(s, ']');
}

static void add_steps(str *s, const check_steps *t) {
    str_printf(
        s, ",\"steps\":{\"steps\":%zu,\"agree\":%zu,\"own_agree\":%zu,\"certain\":%zu,\"certain_agree\":%zu",
        t->steps, t->agree, t->own_agree, t->certain, t->certain_agree);
    add_number(s, "kl", t->kl);
    add_number(s, "own_kl", t->own_kl);
    add_number(s, "largest_error", t->error);
    str_addc(s, '}');
}

static void add_prefill(str *s, const check_prefill *p) {
    str_printf(s, ",\"prefill\":{\"cases\":%zu,\"failed\":%zu,\"skipped\":%zu,\"longest\":%zu,\"tests\":[",
               p->n, p->failed, p->skipped, p->longest);
    for (size_t i = 0; i < p->n; i++) {
        const check_prefill_case *c = &p->test[i];
        next(s, !i);
        str_printf(s, "\"tokens\":%zu,\"expected\":%d,\"found\":%d,\"scores_ok\":%s,\"states_ok\":%s",
                   c->tokens, c->want, c->got, c->scores_ok ? "true" : "false",
                   c->states_ok ? "true" : "false");
        add_name(s, "text", c->text);
        add_name(s, "sizes", c->sizes);
        add_number(s, "margin", c->margin);
        add_number(s, "kl", c->kl);
        add_number(s, "largest_error", c->error);
        add_name(s, "state", c->state);
        add_number(s, "state_error", c->state_error);
        str_addc(s, '}');
    }
    str_adds(s, "]}");
}

static void add_weights(str *s, const check_weights *w) {
    str_printf(s, ",\"weights\":{\"exact\":%zu,\"compressed\":%zu,\"unmatched\":%zu,\"missing\":%zu",
               w->exact, w->compressed, w->unmatched, w->missing);
    add_name(s, "first_unmatched", w->first_unmatched);
    add_name(s, "first_missing", w->first_missing);
    add_name(s, "worst", w->worst);
    add_number(s, "worst_error", w->worst_error);
    str_adds(s, ",\"bad\":[");
    for (size_t i = 0; i < w->n_bad; i++) {
        next(s, !i);
        str_printf(s, "\"differ\":%" PRIu64 ",\"first\":%" PRIu64 ",\"row\":%" PRId64, w->bad[i].differ,
                   w->bad[i].first, w->bad[i].row);
        add_name(s, "name", w->bad[i].name);
        add_number(s, "error", w->bad[i].error);
        add_number(s, "row_error", w->bad[i].row_error);
        str_addc(s, '}');
    }
    str_adds(s, "]}");
}

static void add_ranges(str *s, const check_ranges *r) {
    static const char *const keep[] = {"no", "range", "subnormal"};
    str_printf(s, ",\"ranges\":{\"ops\":%zu,\"tokens\":%zu,\"beyond_fp16\":%zu", r->n, r->tokens, r->beyond);
    add_count(s, "nonfinite", r->nonfinite);
    add_count(s, "hidden", r->hidden);
    add_name(s, "first_nonfinite", r->first_nonfinite);
    add_name(s, "first_path", r->first_path.len ? str_get(&r->first_path) : NULL);
    str_adds(s, ",\"values\":[");
    for (size_t i = 0; i < r->n; i++) {
        const check_range *v = &r->row[i];
        next(s, !i);
        str_printf(s, "\"op\":\"%s\",\"dtype\":\"%s\",\"keep_fp32\":\"%s\"", v->op, dtype_name(v->dtype),
                   keep[check_range_keep(v)]);
        add_name(s, "name", v->name);
        add_name(s, "function", v->function);
        add_name(s, "package", v->package);
        add_count(s, "count", v->values);
        add_count(s, "nonfinite", v->nonfinite);
        add_count(s, "hidden", v->hidden);
        add_number(s, "largest", v->largest);
        add_number(s, "head_room", figure_head_room(v));
        add_number(s, "subnormal", v->values ? (double)v->subnormal / (double)v->values : 0);
        add_number(s, "reference", v->reference);
        add_number(s, "subnormal_loss", v->loss);
        str_addc(s, '}');
    }
    str_adds(s, "]}");
}

static void add_repetition(str *s, const char *key, const check_repetition *r) {
    str_printf(s, ",\"%s\":{\"prompts\":%zu,\"tokens\":%zu,\"longest_run\":%zu", key, r->prompts, r->tokens,
               r->run);
    add_number(s, "repeated_tokens", figure_share(r->repeated_tokens, r->tokens));
    add_number(s, "repeated_characters", figure_share(r->repeated_characters, r->characters));
    add_number(s, "repeated_trigrams", figure_share(r->repeated_trigrams, r->trigrams));
    str_addc(s, '}');
}

static void add_structure(str *s, const check_structure *t) {
    str_printf(s, ",\"structure\":{\"states\":%zu,\"checked_files\":%zu", t->states, t->checked_files);
    add_count(s, "bytes", t->file_bytes);
    add_number(s, "bits_per_weight", figure_bits(t));
    str_adds(s, ",\"packages\":[");
    for (size_t i = 0; i < t->n; i++) {
        next(s, !i);
        str_printf(s, "\"functions\":%zu", t->package[i].functions);
        add_name(s, "name", t->package[i].name);
        add_count(s, "bytes", t->package[i].bytes);
        add_count(s, "shared_bytes", t->package[i].shared_bytes);
        add_count(s, "stored_twice", t->package[i].double_bytes);
        str_addc(s, '}');
    }
    if (t->composites.n) str_adds(s, "],\"composites\":[");
    for (size_t i = 0; i < t->composites.n; i++) {
        const check_composite *c = &t->composites.kind[i];
        next(s, !i);
        str_printf(s, "\"graphs\":%zu,\"declared\":%zu", c->graphs, c->declared);
        add_name(s, "kind", c->kind);
        add_number(s, "error", c->error);
        str_addc(s, '}');
    }
    str_adds(s, "],\"classes\":[");
    for (int i = 0; i < CHECK_CLASSES; i++) {
        next(s, !i);
        str_printf(s, "\"class\":\"%s\"", check_class_name[i]);
        add_count(s, "values", t->values[i]);
        add_count(s, "bytes", t->bytes[i]);
        str_addc(s, '}');
    }
    str_adds(s, "]}");
}

static void add_sides(str *s, const check_report *r) {
    str_adds(s, ",\"artifacts\":[");
    for (size_t i = 0; i < r->n_side; i++) {
        next(s, !i);
        str_adds(s, "\"path\":");
        str_json_string(s, r->side[i].path, strlen(r->side[i].path));
        for (size_t k = 0; k < FIGURES; k++)
            add_number(s, figure_rows[k].key, figure_rows[k].of(&r->side[i]));
        str_addc(s, '}');
    }
    str_addc(s, ']');
}

void check_report_json(const check_report *r, str *s) {
    str_printf(s, "{\"passed\":%s", check_passed(r) ? "true" : "false");
    add_lines(s, "failures", &r->failures);
    add_lines(s, "skipped", &r->skipped);
    if (r->measures & CHECK_SCORES) {
        add_scores(s, r);
        add_layers(s, &r->layers);
    }
    if (r->measures & CHECK_SINGLE_STEPS) add_steps(s, &r->steps);
    if (r->measures & CHECK_PREFILL) add_prefill(s, &r->prefill);
    if (r->measures & CHECK_WEIGHTS) add_weights(s, &r->weights);
    if (r->measures & CHECK_IDS)
        str_printf(s, ",\"ids\":{\"pieces\":%lld,\"rows\":%lld,\"audited\":%lld,\"wrong\":%lld}",
                   (long long)r->ids.pieces, (long long)r->ids.rows, (long long)r->ids.audited,
                   (long long)r->ids.wrong);
    if (r->measures & CHECK_RANGES) add_ranges(s, &r->ranges);
    if (r->measures & CHECK_REPETITION) {
        add_repetition(s, "repetition", &r->side[0].repetition);
        add_repetition(s, "repetition_reference", &r->reference);
    }
    if (r->measures & CHECK_STRUCTURE) add_structure(s, &r->side[0].structure);
    add_sides(s, r);
    add_number(s, "seconds", r->seconds);
    str_adds(s, "}\n");
}
