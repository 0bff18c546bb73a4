/* Clients that leave a request that is being served: no token is made for them but the one under way. Counted
 * by what the queue itself counts, with its counters held still while the client goes, so that no clock
 * decides. */
#define _GNU_SOURCE
#include "base/clock.h"
#include "server/queue.h"
#include "tiny.h"
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

enum { NEVER = 900 }; /* tokens: what a request that nobody stops would make */

typedef enum { CLOSE, SHUT, RESET, TOLD } way;

static struct {
    tiny t;
    lm *lm;
    served_model m;
} fixture;

static int make(void **state) {
    static const char *const names[] = {"tiny"};
    err e = {0};
    (void)state;
    if (tiny_make(&fixture.t, NULL) || !(fixture.lm = lm_open(fixture.t.artifact, NULL, &e))) return -1;
    fixture.m = (served_model){
        .m = fixture.lm, .name = names, .n_name = 1, .defaults = SAMPLER_GREEDY, .max_prompt = 1024};
    return 0;
}

static int unmake(void **state) {
    lm_close(fixture.lm);
    return remove_work_dir(state);
}

/* ---- a server's inside: its queue, and clients over TCP ---- */

typedef struct {
    metrics counts;
    queue *q;
} server;

static void begin(server *s, size_t sessions) {
    err e = {0};
    metrics_begin(&s->counts, sessions);
    queue_options o = {.mode = RT_FAST,
                       .sessions = sessions,
                       .waiting = 8,
                       .kept = 64 << 20,
                       .stall_limit = 5,
                       .metrics = &s->counts};
    s->q = queue_new(&fixture.m, &o, &e);
    if (!s->q) fail_msg("%s", e.msg);
}

/* Waits until so many requests have ended. */
static void await(server *s, uint64_t n) {
    uint64_t ended = 0;
    for (; ended < n; usleep(200)) METRICS_DO(&s->counts, ended = s->counts.total.count);
}

/* Behind the last of them. */
static void end(server *s) {
    queue_close(s->q, 600);
    queue_stop(s->q);
    queue_free(s->q);
}

typedef struct {
    int near, far; /* sockets: the server's; the client's, which may be closed: -1 */
    stream *out;
    bool go_at_once; /* it leaves when it is sent something, in the thread that makes it */
} client;

static void connect_pair(client *c) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof a;
    int listening = socket(AF_INET, SOCK_STREAM, 0);
    c->far = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(listening, (struct sockaddr *)&a, sizeof a) | listen(listening, 1), 0);
    getsockname(listening, (struct sockaddr *)&a, &n);
    assert_int_equal(connect(c->far, (struct sockaddr *)&a, n), 0);
    c->near = accept(listening, NULL, NULL);
    assert_true(c->near >= 0);
    close(listening);
}

static void go(client *c, way how) {
    const struct linger none = {1, 0};
    if (how == TOLD) {
        stream_leave(c->out);
        return;
    }
    if (how == SHUT) {
        shutdown(c->far, SHUT_WR);
        return;
    }
    if (how == RESET) setsockopt(c->far, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    close(c->far);
    c->far = -1;
}

static void wake(void *ctx) {
    client *c = ctx;
    if (c->go_at_once && c->far >= 0) go(c, CLOSE);
}

static void no_pause(void *ctx) {
    (void)ctx;
}

/* Sends a completion: n choices of `most` tokens. */
static void send_request(server *s, client *c, int n, int most, bool events, bool go_at_once) {
    char body[300];
    request r;
    api_error e = {0};
    arena *a = arena_new();
    int status;
    snprintf(
        body, sizeof body,
        "{\"prompt\":\"Once upon a time\",\"n\":%d,\"max_tokens\":%d,\"ignore_eos\":true,\"temperature\":1,"
        "\"seed\":1,\"stream\":%s}",
        n, most, events ? "true" : "false");
    if (!request_completion(&r, a, &fixture.m, body, strlen(body), &e)) fail_msg("%s", e.message);
    *c = (client){.go_at_once = go_at_once};
    connect_pair(c);
    c->out = stream_new(wake, c);
    stream_attach(c->out, c->near);
    assert_int_equal(stream_ready(c->out, &status, no_pause, NULL), STREAM_WAIT);
    assert_true(queue_submit(s->q, job_new(&r, &fixture.m, c->out, clock_seconds()), &e));
}

static void count(void *ctx, const stream_counts *c) {
    *(stream_counts *)ctx = *c;
}

/* Behind end(): what was counted of it. */
static size_t tokens_of(client *c) {
    stream_counts n = {0};
    stream_detach(c->out);
    stream_close(c->out, count, &n);
    close(c->near);
    if (c->far >= 0) close(c->far);
    return n.new_tokens;
}

/* Waits for `rounds` rounds, and has the client leave where nothing can be counted; tokens that had been
 * taken in rounds until then. */
static size_t leave_behind(server *s, client *c, uint64_t rounds, way how) {
    for (;; usleep(200)) {
        pthread_mutex_lock(&s->counts.lock);
        bool now = s->counts.rounds >= rounds;
        size_t taken = (size_t)s->counts.batched;
        if (now) go(c, how);
        pthread_mutex_unlock(&s->counts.lock);
        if (now) return taken;
    }
}

/* ---- what is asked for ---- */

/* Streamed or not, one choice or several, however it leaves: one more token of each choice at most. */
static void test_within_one_token(void **state) {
    (void)state;
    static const struct {
        int n;
        bool stream;
        way how;
    } row[] = {{1, false, CLOSE}, {1, true, CLOSE},  {3, false, CLOSE}, {3, true, CLOSE}, {1, false, SHUT},
               {1, true, SHUT},   {1, false, RESET}, {3, true, RESET},  {1, false, TOLD}, {3, true, TOLD}};
    for (size_t i = 0; i < 3 * sizeof row / sizeof *row; i++) {
        server s;
        client c;
        size_t k = i % (sizeof row / sizeof *row), n = (size_t)row[k].n;
        begin(&s, n);
        send_request(&s, &c, row[k].n, NEVER, row[k].stream, false);
        size_t before = n + leave_behind(&s, &c, 3 + i, row[k].how), made;
        await(&s, 1);
        end(&s);
        made = tokens_of(&c);
        if (made > before + n || made + n < before)
            fail_msg("row %zu: %zu tokens, %zu of them before it left", k, made, before);
        assert_int_equal(s.counts.left, 1);
    }
}

/* Who leaves when its first token is sent gets no second one, whoever else is served. */
static void test_beside_others(void **state) {
    (void)state;
    server s;
    client other[2], c;
    begin(&s, 3);
    for (int i = 0; i < 2; i++) send_request(&s, &other[i], 1, 200, i, false);
    send_request(&s, &c, 1, NEVER, true, true);
    await(&s, 3);
    end(&s);
    assert_int_equal(tokens_of(&c), 1);
    for (int i = 0; i < 2; i++) assert_int_equal(tokens_of(&other[i]), 200);
}

/* Who leaves while it waits for a session gets none. */
static void test_waiting(void **state) {
    (void)state;
    server s;
    client busy, c;
    begin(&s, 1);
    send_request(&s, &busy, 1, 300, false, false);
    send_request(&s, &c, 2, NEVER, true, false);
    leave_behind(&s, &c, 3, CLOSE);
    await(&s, 2);
    end(&s);
    assert_int_equal(tokens_of(&c), 0);
    assert_int_equal(tokens_of(&busy), 300);
}

/* What a call that was cut leaves behind is no matter to the next one in that session. */
static void test_the_next_one(void **state) {
    (void)state;
    str text[2] = {{0}, {0}};
    for (int cut = 0; cut < 2; cut++) {
        server s;
        client c;
        begin(&s, 1);
        for (int i = 0; cut && i < 20; i++) {
            uint64_t rounds;
            METRICS_DO(&s.counts, rounds = s.counts.rounds);
            send_request(&s, &c, 1, NEVER, false, false);
            leave_behind(&s, &c, rounds + 2, TOLD);
            await(&s, (uint64_t)i + 1);
            assert_true(tokens_of(&c) < NEVER);
        }
        send_request(&s, &c, 1, 40, false, false);
        await(&s, cut ? 21 : 1);
        end(&s);
        text[cut] = stream_take(c.out);
        assert_int_equal(tokens_of(&c), 40);
    }
    const char *a = strstr(str_get(&text[0]), "\"choices\""), *b = strstr(str_get(&text[1]), "\"choices\"");
    size_t n = strcspn(a, "}");
    assert_true(n > 100 && !strncmp(a, b, n));
    for (int i = 0; i < 2; i++) str_free(&text[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_within_one_token),
        cmocka_unit_test(test_beside_others),
        cmocka_unit_test(test_waiting),
        cmocka_unit_test(test_the_next_one),
    };
    return cmocka_run_group_tests(tests, make, unmake);
}
