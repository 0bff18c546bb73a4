/* How prompts are cut into calls: against all ways to cut them, tried one by one. */
#include "generate/cover.h"
#include "test.h"

#define NONE UINT64_MAX

/* The least cost of covering n tokens with room positions left, by trying every first call. */
static uint64_t least(const int64_t *size, size_t n_size, int64_t n, int64_t room) {
    uint64_t best = NONE;
    for (size_t i = 0; n > 0 && i < n_size; i++) {
        if (size[i] > room) continue;
        int64_t done = size[i] < n ? size[i] : n;
        uint64_t rest = least(size, n_size, n - done, room - done);
        if (rest != NONE && rest + COVER_CALL + (uint64_t)size[i] < best)
            best = rest + COVER_CALL + (uint64_t)size[i];
    }
    return n > 0 ? best : 0;
}

static uint64_t cost_of(const int64_t *size, const uint8_t *choice, int64_t n, int64_t room) {
    uint64_t cost = 0;
    for (int64_t done; n > 0; n -= done, room -= done) {
        int64_t s = size[choice[n]];
        assert_true(s <= room); /* never behind the end of the context */
        done = s < n ? s : n;
        cost += COVER_CALL + (uint64_t)s;
    }
    return cost;
}

static void cheapest(void **state) {
    (void)state;
    static const int64_t size[][4] = {{1, 4, 16}, {1, 2, 3, 7}, {1, 5}, {1}};
    static const size_t n_size[] = {3, 4, 2, 1};
    uint8_t choice[64];
    err e = {0};
    for (size_t i = 0; i < 4; i++)
        for (int64_t n = 1; n <= 20; n++)
            for (int64_t more = 0; more <= 17; more++) {
                assert_true(cover_plan(size[i], n_size[i], (size_t)n, n + more, true, choice, &e));
                assert_int_equal(cost_of(size[i], choice, n, n + more),
                                 least(size[i], n_size[i], n, n + more));
            }
}

/* The sizes that the documentation speaks of. */
static void examples(void **state) {
    (void)state;
    static const int64_t size[] = {1, 4, 16, 64, 256};
    static const struct {
        int64_t n, room, call[8];
    } cases[] = {
        {1, 2048, {1}},
        {3, 2048, {4}},    /* padded by one */
        {3, 3, {1, 1, 1}}, /* no room to pad */
        {5, 2048, {4, 1}},
        {130, 2048, {64, 64, 4}},
        {300, 2048, {256, 64}},            /* padded by 20: cheaper than 16, 16, 4, 4, 4 */
        {300, 300, {256, 16, 16, 4, 4, 4}} /* the same without room */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t choice[512];
        err e = {0};
        assert_true(cover_plan(size, 5, (size_t)cases[i].n, cases[i].room, true, choice, &e));
        size_t k = 0;
        for (int64_t left = cases[i].n; left > 0; left -= size[choice[left]], k++) {
            assert_true(k < 8);
            assert_int_equal(size[choice[left]], cases[i].call[k]);
        }
        assert_true(k == 8 || !cases[i].call[k]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(cheapest), cmocka_unit_test(examples)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
