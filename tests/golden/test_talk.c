/* Conversations. Replies to the oracle's questions are transformers' (oracles/X/oracle.json: chat); those of
 * later turns are what a run from fresh states gives for the same ids, one token a call, so that nothing may
 * differ. */
#define _GNU_SOURCE
#include "base/file.h"
#include "chat/loops.h"
#include "chat/talk.h"
#include "chat/tasks.h"
#include "converted.h"
#include "golden/oracle.h"
#include <unistd.h>

static lm *open_model(const char *checkpoint, int64_t context) {
    err e = {0};
    char name[100];
    const convert_options o = {.preset = "chunks", .precision = "mixed", .context = context};
    bool own = !strcmp(checkpoint, own_model()); /* a checkpoint of the shared cases has the same name */
    snprintf(name, sizeof name, "%s-%s-%d", own ? "own" : "case", strrchr(checkpoint, '/') + 1, (int)context);
    lm *m = lm_open(converted(name, checkpoint, &o), NULL, &e);
    if (!m) fail_msg("%s", e.msg);
    return m;
}

static talk_options greedy(void) {
    return (talk_options){
        .mode = RT_FAST, .sampling = SAMPLER_GREEDY, .max_new = 60, .budget = PREFIX_BUDGET};
}

static talk *open_talk(const lm *m, talk_options o) {
    err e = {0};
    talk *t = talk_open(m, &o, &e);
    if (!t) fail_msg("%s", e.msg);
    return t;
}

/* What a watcher saw. */
typedef struct {
    str reasoning, answer;
    size_t stop_at; /* bytes of the answer; 0: never */
} seen;

static bool see(void *ctx, talk_kind kind, const char *s, size_t n) {
    seen *x = ctx;
    str_add(kind == TALK_REASONING ? &x->reasoning : &x->answer, s, n);
    return !x->stop_at || x->answer.len < x->stop_at;
}

static void forget(seen *x) {
    str_free(&x->reasoning);
    str_free(&x->answer);
}

static talk_turn ask(talk *t, const char *question, seen *x) {
    err e = {0};
    talk_turn turn;
    const talk_watch w = {.text = see, .ctx = x};
    if (!talk_ask(t, question, strlen(question), x ? &w : NULL, &turn, &e)) fail_msg("%s", e.msg);
    return turn;
}

static const char *last(const talk *t) {
    return str_get(&talk_at(t, talk_count(t) - 1)->content);
}

/* ---- transformers' replies ---- */

static void one_case(const lm *m, const json *c) {
    const json *first = json_get(c, "messages")->child, *switched;
    const char *text = json_str(c, "greedy_text", NULL);
    if (!text || json_get(c, "messages")->len != 1) return;
    switched = json_get_kind(c, "enable_thinking", JSON_BOOL);
    talk_options o = greedy();
    if (switched) o.thinking = switched->i ? CHAT_THINK_ON : CHAT_THINK_OFF;
    talk *t = open_talk(m, o);
    seen x = {0};
    talk_turn turn = ask(t, json_str(first, "content", ""), &x);
    /* "thoughts\n</think>\n\nanswer<|im_end|>" */
    const char *close = strstr(text, "\n</think>\n\n"), *answer = close ? close + 11 : text;
    size_t n = strlen(answer) - strlen("<|im_end|>");
    assert_int_equal(turn.end, TALK_END);
    assert_int_equal(turn.prompt, json_get(c, "ids")->len);
    assert_int_equal(turn.written, json_int(c, "greedy_first_stop", -1) + 1);
    assert_int_equal(x.answer.len, n);
    assert_memory_equal(x.answer.s, answer, n);
    assert_int_equal(x.reasoning.len, close ? close - text : 0);
    if (close) assert_memory_equal(x.reasoning.s, text, x.reasoning.len);
    assert_string_equal(last(t), str_get(&x.answer));
    forget(&x);
    talk_close(t);
}

static void test_oracle(void **s) {
    (void)s;
    const char *names[] = {"tiny-qwen3.5", "tiny-qwen3"};
    for (int i = 0; i < 2; i++) {
        oracle o = open_oracle(names[i]);
        lm *m = open_model(test_case_path(arena_printf(o.a, "models/%s", names[i])), 256);
        int n = 0;
        JSON_EACH(c, json_get(o.text, "chat")) {
            one_case(m, c);
            n += json_str(c, "greedy_text", NULL) != NULL;
        }
        assert_true(n >= 2);
        lm_close(m);
        close_oracle(&o);
    }
}

/* ---- later turns ---- */

/* The reply that a run from fresh states gives to the messages but the last one, which is compared. */
static void expect_as_fresh(const lm *m, talk *t) {
    const talk_options *o = talk_options_of(t);
    str b = {0};
    for (size_t i = 0; i + 1 < talk_count(t); i++) {
        const talk_message *x = talk_at(t, i);
        str_printf(&b, "%s{\"role\":\"%s\",\"content\":", i ? "," : "[",
                   x->role == TALK_SYSTEM ? "system"
                   : x->role == TALK_USER ? "user"
                                          : "assistant");
        str_json_string(&b, str_get(&x->content), x->content.len);
        str_adds(&b, ",\"reasoning_content\":");
        str_json_string(&b, str_get(&x->reasoning), x->reasoning.len);
        str_addc(&b, '}');
    }
    str_addc(&b, ']');
    err e = {0};
    arena *a = arena_new();
    chat_prompt p = {0};
    token_list ids = {0};
    generate_result r = {0};
    const chat_options co = {.generation = true, .thinking = o->thinking, .keep_thinking = o->keep_thinking};
    const generate_options go = {.mode = RT_FAST, .sampling = SAMPLER_GREEDY, .max_new = o->max_new};
    const json *j = json_parse(a, "messages", b.s, b.len, &e);
    if (!j || !chat_render(talk_template(t), j, &co, &p, &e) || !chat_encode(&p, m->text, false, &ids, &e) ||
        !generate_run(m, ids.ids, ids.n, &go, &r, &e))
        fail_msg("%s", e.msg);
    const talk_message *got = talk_at(t, talk_count(t) - 1);
    if (got->reasoning.len) {
        assert_true(r.text.len > got->reasoning.len);
        assert_memory_equal(r.text.s, got->reasoning.s, got->reasoning.len);
    }
    assert_true(r.text.len >= got->content.len);
    assert_string_equal(str_get(&r.text) + r.text.len - got->content.len, str_get(&got->content));
    generate_result_free(&r);
    token_list_free(&ids);
    chat_prompt_free(&p);
    arena_free(a);
    str_free(&b);
}

static const char *const questions[] = {
    "What is the capital of France?", "Tell me a story about a little snail.", "What is the capital of Peru?",
    "And what did she find? \xF0\x9F\x98\x80"};

/* A hybrid whose template drops earlier thoughts, and one that leaves replies as they are. */
static void test_turns(void **s) {
    (void)s;
    const char *templates[] = {NULL, "chatml", "qwen3"};
    for (int k = 0; k < 3; k++)
        for (int think = 0; think < 2; think++) {
            lm *m = open_model(own_model(), 512);
            talk_options o = greedy();
            o.template_name = templates[k];
            o.thinking = think ? CHAT_THINK_ON : CHAT_THINK_OFF;
            talk *t = open_talk(m, o);
            size_t had = 0;
            talk_system(t, "You are a helpful snail.");
            for (int i = 0; i < 4; i++) {
                talk_turn turn = ask(t, questions[i], NULL);
                expect_as_fresh(m, t);
                if (!i) assert_int_equal(turn.reused, 0);
                if (i && k == 1) assert_true(turn.reused >= had - 1); /* nothing but what is new */
                if (i) assert_true(turn.reused > 10);
                had = talk_position(t);
            }
            talk_close(t);
            lm_close(m);
        }
}

static bool never(void *ctx) {
    (void)ctx;
    return false;
}

static void test_stops(void **s) {
    (void)s;
    lm *m = open_model(own_model(), 512);
    talk *t = open_talk(m, greedy());
    err e = {0};
    talk_turn turn;
    seen x = {.stop_at = 20};
    turn = ask(t, questions[1], &x);
    assert_int_equal(turn.end, TALK_STOPPED);
    assert_int_equal(talk_count(t), 2);
    assert_true(strlen(last(t)) >= 20 && strlen(last(t)) < 40);
    ask(t, questions[0], NULL);
    expect_as_fresh(m, t);
    /* before the first token */
    const talk_watch w = {.keep_going = never};
    assert_true(talk_ask(t, "x", 1, &w, &turn, &e));
    assert_int_equal(turn.end, TALK_STOPPED);
    assert_int_equal(talk_count(t), 4);
    /* the last reply stays where no other comes */
    assert_true(talk_again(t, &w, &turn, &e));
    assert_int_equal(talk_count(t), 4);
    assert_string_equal(str_get(&talk_at(t, 2)->content), questions[0]);
    assert_true(talk_again(t, NULL, &turn, &e));
    assert_int_equal(talk_count(t), 4);
    expect_as_fresh(m, t);
    talk_options_of(t)->max_new = 3;
    turn = ask(t, questions[1], NULL);
    assert_int_equal(turn.end, TALK_LENGTH);
    assert_int_equal(turn.written, 3);
    talk_options_of(t)->max_new = 60;
    ask(t, questions[2], NULL);
    expect_as_fresh(m, t);
    forget(&x);
    talk_close(t);
    lm_close(m);
}

static bool count_down(void *ctx) {
    int *calls = ctx;
    return (*calls)-- > 0;
}

/* A prompt that is stopped within: what was fed, and what the conversation takes, is said as it is. */
static void test_stopped_prompt(void **s) {
    (void)s;
    lm *m = open_model(own_model(), 512);
    talk_options o = greedy();
    o.template_name = "chatml";
    talk *t = open_talk(m, o);
    err e = {0};
    talk_turn turn;
    char question[400] = "";
    assert_int_equal(talk_size(t), 0);
    talk_turn first = ask(t, questions[0], NULL);
    assert_int_equal(first.end, TALK_END);
    assert_int_equal(first.fed, first.prompt);
    size_t size = talk_size(t);
    assert_int_equal(size, first.prompt + first.written - 1); /* the end token is not fed */
    for (int i = 0; i < 60; i++) strcat(question, "snail ");
    talk_ask(t, questions[1], strlen(questions[1]), NULL, &turn, &e);
    assert_true(talk_undo(t, NULL));
    size_t alone = talk_size(t);
    assert_int_equal(alone, size + 2); /* and a newline */
    int calls = 2;
    const talk_watch w = {.keep_going = count_down, .ctx = &calls};
    assert_true(talk_ask(t, question, strlen(question), &w, &turn, &e));
    assert_int_equal(turn.end, TALK_STOPPED);
    assert_int_equal(turn.written, 0);
    assert_true(turn.fed > 0 && turn.reused + turn.fed < turn.prompt && turn.prompt_seconds > 0);
    assert_int_equal(turn.reused + turn.fed, talk_position(t));
    assert_int_equal(talk_size(t), alone);
    talk_reset(t);
    assert_int_equal(talk_size(t), 0);
    talk_system(t, "Be brief.");
    size_t system = talk_size(t);
    assert_true(system > 3 && system < 20);
    talk_close(t);
    lm_close(m);
}

/* Asks and has the reply once more. */
static void two_replies(talk *t, char *reply[2]) {
    err e = {0};
    talk_turn turn;
    ask(t, questions[1], NULL);
    reply[0] = strdup(last(t));
    /* what leaves no message takes no seed */
    const talk_watch w = {.keep_going = never};
    assert_true(talk_ask(t, "x", 1, &w, &turn, &e));
    assert_true(talk_again(t, NULL, &turn, &e));
    reply[1] = strdup(last(t));
}

static void test_seeds(void **s) {
    (void)s;
    lm *m = open_model(own_model(), 512);
    talk_options o = greedy();
    o.mode = RT_STRICT;
    o.sampling.temperature = 1.5f;
    o.sampling.seed = 7;
    o.max_new = 12;
    talk *t = open_talk(m, o);
    char *reply[4][2];
    for (int i = 0; i < 4; i++) { /* as opened; after a reset; another seed; the first again */
        if (i) talk_reset(t);
        if (i > 1) talk_seed(t, i == 2 ? 8 : 7);
        two_replies(t, reply[i]);
    }
    for (int k = 0; k < 2; k++) {
        assert_string_equal(reply[1][k], reply[0][k]);
        assert_string_equal(reply[3][k], reply[0][k]);
    }
    assert_string_not_equal(reply[0][0], reply[0][1]);
    assert_string_not_equal(reply[2][0], reply[0][1]); /* neighbouring seeds have nothing in common */
    assert_string_not_equal(reply[2][0], reply[0][0]);
    for (int i = 0; i < 8; i++) free(reply[i / 2][i % 2]);
    talk_close(t);
    lm_close(m);
}

static void test_undo(void **s) {
    (void)s;
    lm *m = open_model(own_model(), 512);
    talk *t = open_talk(m, greedy());
    err e = {0};
    talk_turn turn;
    str text = {0};
    assert_false(talk_undo(t, NULL));
    assert_false(talk_again(t, NULL, &turn, &e));
    assert_int_equal(e.code, ERR_USAGE);
    talk_system(t, "Be brief.");
    ask(t, questions[0], NULL);
    ask(t, questions[1], NULL);
    assert_true(talk_undo(t, &text));
    assert_string_equal(str_get(&text), questions[1]);
    assert_int_equal(talk_count(t), 3);
    ask(t, questions[2], NULL);
    expect_as_fresh(m, t);
    talk_system(t, NULL);
    assert_int_equal(talk_count(t), 4);
    assert_null(talk_system_text(t));
    ask(t, questions[0], NULL);
    expect_as_fresh(m, t);
    talk_system(t, "Other.");
    talk_reset(t);
    assert_int_equal(talk_count(t), 1);
    ask(t, questions[0], NULL);
    expect_as_fresh(m, t);
    talk_reset(t);
    assert_true(ask(t, questions[1], NULL).reused > 5); /* the system message */
    expect_as_fresh(m, t);
    str_free(&text);
    talk_close(t);
    lm_close(m);
}

static void test_full_context(void **s) {
    (void)s;
    lm *m = open_model(own_model(), 128);
    talk_options o = greedy();
    o.max_new = -1;
    talk *t = open_talk(m, o);
    err e = {0};
    talk_turn turn = {0};
    size_t n, dropped;
    int turns = 0;
    talk_system(t, "Be kind.");
    while (talk_ask(t, questions[0], strlen(questions[0]), NULL, &turn, &e) && turns++ < 20) {
    }
    assert_int_equal(e.code, ERR_LIMIT);
    assert_non_null(strstr(e.msg, "the context is full"));
    assert_true(turns > 2 && turns < 20);
    size_t before = talk_count(t);
    e = (err){0};
    assert_true(talk_drop(t, questions[0], strlen(questions[0]), &dropped, &e));
    assert_true(dropped > 0);
    assert_int_equal(talk_count(t), before - 2 * dropped);
    assert_string_equal(talk_system_text(t), "Be kind.");
    assert_true(talk_tokens(t, questions[0], strlen(questions[0]), &n, &e));
    assert_true(n <= 96);
    ask(t, questions[0], NULL);
    expect_as_fresh(m, t);
    /* a reply that runs to the end */
    turn = ask(t, questions[1], NULL);
    if (turn.end != TALK_END) assert_int_equal(turn.end, TALK_FULL);
    /* a question that is too long whatever is dropped */
    char *text = malloc(2000);
    memset(text, 'x', 1999);
    text[1999] = 0;
    e = (err){0};
    assert_true(talk_drop(t, text, 1999, &dropped, &e));
    assert_int_equal(talk_count(t), 1);
    assert_false(talk_ask(t, text, 1999, NULL, &turn, &e));
    assert_int_equal(e.code, ERR_LIMIT);
    free(text);
    talk_close(t);
    lm_close(m);
}

/* ---- on disk ---- */

static void test_save_and_load(void **s) {
    (void)s;
    lm *m = open_model(own_model(), 512);
    for (int stopped = 0; stopped < 2; stopped++) {
        talk *t = open_talk(m, greedy());
        err e = {0};
        bool reread;
        seen x = {.stop_at = stopped ? 15 : 0};
        talk_system(t, "Be brief.");
        ask(t, questions[0], NULL);
        ask(t, questions[1], &x);
        if (!talk_save(t, in_work("saved"), &e)) fail_msg("%s", e.msg);
        size_t position = talk_position(t), n = talk_count(t);
        char *reply = strdup(last(t));
        talk_close(t);

        t = open_talk(m, greedy());
        if (!talk_load(t, in_work("saved"), &reread, &e)) fail_msg("%s", e.msg);
        assert_false(reread);
        assert_int_equal(talk_count(t), n);
        assert_string_equal(last(t), reply);
        assert_string_equal(talk_system_text(t), "Be brief.");
        assert_int_equal(talk_position(t), position);
        talk_turn turn = ask(t, questions[2], NULL);
        assert_true(turn.reused > 20); /* at least to the question before */
        expect_as_fresh(m, t);
        /* what can't be read leaves everything */
        n = talk_count(t);
        assert_false(talk_load(t, in_work("nothing"), &reread, &e));
        assert_int_equal(talk_count(t), n);
        free(reply);
        forget(&x);
        talk_close(t);
    }
    lm_close(m);
    /* another artifact: the text is taken, and read again */
    m = open_model(own_model(), 256);
    talk *t = open_talk(m, greedy());
    err e = {0};
    bool reread;
    if (!talk_load(t, in_work("saved"), &reread, &e)) fail_msg("%s", e.msg);
    assert_true(reread);
    assert_int_equal(talk_count(t), 5);
    assert_int_equal(ask(t, questions[2], NULL).reused, 0);
    expect_as_fresh(m, t);
    /* a file without a conversation */
    prefix_cache *c = prefix_new(m, 0, &e);
    decoder *d = decoder_new(m, RT_FAST, &e);
    const char *notes[] = {
        "",
        "{}",
        "[1]",
        "{\"format\":\"millet conversation\",\"version\":1}",
        "{\"format\":\"millet conversation\",\"version\":2,\"messages\":[]}",
        ("{\"format\":\"millet conversation\",\"version\":1,\"messages\":[{\"role\":\"x\","
         "\"content\":\"\"}]}"),
        "{\"format\":\"millet conversation\",\"version\":1,\"messages\":[{\"role\":\"user\"}]}"};
    for (size_t i = 0; i < sizeof notes / sizeof *notes; i++) {
        if (!prefix_save(c, d, in_work("bad"), notes[i], strlen(notes[i]), &e)) fail_msg("%s", e.msg);
        assert_false(talk_load(t, in_work("bad"), &reread, &e));
        assert_true(e.code == ERR_FORMAT || e.code == ERR_UNSUPPORTED);
        e = (err){0};
    }
    assert_int_equal(talk_count(t), 7);
    decoder_free(d);
    prefix_free(c);
    talk_close(t);
    lm_close(m);
}

/* ---- tasks ---- */

/* Probabilities of letters are a softmax over the scores that a fresh decoder gives for the prompt. */
static void test_decide(void **s) {
    (void)s;
    lm *m = open_model(own_model(), 512);
    talk *t = open_talk(m, greedy());
    const char *options[] = {"a ball", "a horse", "nothing"};
    str question = {0};
    double p[3], share, want[3], sum = 0, all = 0;
    err e = {0};
    talk_system(t, "Answer with the letter alone.");
    task_question(&question, "Ben found a ball.", 17, "What did he find?", options, 3);
    assert_string_equal(str_get(&question),
                        "Ben found a ball.\n\nWhat did he find?\nA) a ball\nB) a horse\nC) nothing\n");
    if (!task_decide(t, str_get(&question), question.len, 3, NULL, p, &share, &e)) fail_msg("%s", e.msg);

    arena *a = arena_new();
    str b = {0};
    chat_prompt prompt = {0};
    token_list ids = {0};
    decoder_row row;
    str_adds(&b, "[{\"role\":\"system\",\"content\":\"Answer with the letter "
                 "alone.\"},{\"role\":\"user\",\"content\":");
    str_json_string(&b, str_get(&question), question.len);
    str_adds(&b, "}]");
    const json *j = json_parse(a, "messages", b.s, b.len, &e);
    decoder *d = decoder_new(m, RT_FAST, &e);
    if (!j || !d || !chat_render(talk_template(t), j, &CHAT_OPTIONS, &prompt, &e) ||
        !chat_encode(&prompt, m->text, false, &ids, &e) || !decoder_feed(d, ids.ids, ids.n, NULL, &row, &e))
        fail_msg("%s", e.msg);
    for (size_t i = 0; i < row.n; i++) all += exp((double)row.score[i]);
    for (int i = 0; i < 3; i++) {
        const char letter = (char)('A' + i);
        int32_t id = tokenizer_find(m->text, &letter, 1);
        assert_true(id >= 0);
        sum += want[i] = exp((double)row.score[id]);
    }
    /* sums in doubles over scores that are equal to the bit */
    for (int i = 0; i < 3; i++) assert_true(fabs(p[i] - want[i] / sum) < 1e-12);
    assert_true(fabs(share - sum / all) < 1e-12);
    decoder_free(d);
    token_list_free(&ids);
    chat_prompt_free(&prompt);
    arena_free(a);
    str_free(&b);
    str_free(&question);
    talk_close(t);
    lm_close(m);
}

/* ---- loops ---- */

static size_t looped_after(int32_t period, int32_t noise) {
    loops l = {0};
    for (size_t i = 0; i < 3000; i++) {
        int32_t id = (int32_t)(i % (size_t)period);
        if (noise && i % (size_t)noise == 0) id = (int32_t)(5000 + i);
        if (loops_add(&l, id)) return i + 1;
    }
    return 0;
}

static void test_loops(void **s) {
    (void)s;
    assert_int_equal(looped_after(1, 0), 161);
    assert_int_equal(looped_after(2, 0), 162);
    assert_int_equal(looped_after(100, 0), 800); /* eight times */
    assert_int_equal(looped_after(128, 0), 1024);
    assert_int_equal(looped_after(129, 0), 0); /* longer than what is looked at */
    assert_int_equal(looped_after(4, 50), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_oracle),       cmocka_unit_test(test_turns),
        cmocka_unit_test(test_stops),        cmocka_unit_test(test_undo),
        cmocka_unit_test(test_full_context), cmocka_unit_test(test_save_and_load),
        cmocka_unit_test(test_decide),       cmocka_unit_test(test_loops),
        cmocka_unit_test(test_seeds),        cmocka_unit_test(test_stopped_prompt),
    };
    return cmocka_run_group_tests_name("talk", tests, make_work_dir, remove_work_dir);
}
