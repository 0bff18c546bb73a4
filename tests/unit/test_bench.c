/* What millet bench feeds and refuses. Digests: python3 -c "import hashlib, struct; print(hashlib.sha256(
 * b''.join(struct.pack('<i', (7919 * i + 1) % M) for i in range(128))).hexdigest())" */
#include "base/bandwidth.h"
#include "generate/bench.h"
#include "kernels/rates.h"
#include "test.h"

static void test_ids(void **state) {
    (void)state;
    static const struct {
        int64_t vocab;
        const char *hex;
    } cases[] = {{248320, "fae4153e9f7f4a24b36850aa367de368417927c5304d59f1a5355896f59bdf7a"}, /* M = 4096 */
                 {0, "fae4153e9f7f4a24b36850aa367de368417927c5304d59f1a5355896f59bdf7a"},
                 {300, "c85dc3f9366fb456c6be1300551e8824539b747461a813a721a2b754c1ca6157"}}; /* M = 300 */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char hex[SHA256_HEX];
        bench_ids_sha256(cases[i].vocab, 128, hex);
        assert_string_equal(hex, cases[i].hex);
    }
    for (int64_t i = 0; i < 2000; i++) assert_in_range(bench_id(7, i), 0, 6);
    assert_int_equal(bench_id(1, 5), 0);
}

static void test_fits(void **state) {
    (void)state;
    lm m = {.form.context = 200};
    bench_case c = {.name = "x", .depth = 72, .prompt = 128, .fresh = 1};
    err e = {0};
    assert_true(bench_fits(&m, &c, &e)); /* the new token is not fed */
    c.fresh = 2;
    assert_false(bench_fits(&m, &c, &e));
    assert_int_equal(e.code, ERR_LIMIT);
    assert_non_null(strstr(e.msg, "context of 200"));
}

static void test_machine(void **state) {
    (void)state;
    bandwidth w;
    err e = {0};
    assert_true(bandwidth_read(2, 0, &w, &e));
    assert_true(w.threads >= 1 && w.threads <= 2);
    assert_true(w.median > 0 && w.best >= w.median);
    assert_true(bench_peak_memory() >= BANDWIDTH_BYTES); /* all of it was touched */
    if (bench_reset_peak()) assert_true(bench_peak_memory() < BANDWIDTH_BYTES);
}

/* What does not need an instruction set that is refused; each name once. */
static void test_rates(void **state) {
    (void)state;
    kern_rate list[KERN_RATES_MOST];
    size_t n = kern_rates("portable", list);
    assert_int_equal(n, 1);
    n = kern_rates(NULL, list);
    assert_in_range(n, 1, KERN_RATES_MOST);
    for (size_t i = 0; i < n; i++) {
        list[i].run(3);
        assert_true(list[i].ops >= 2);
        for (size_t k = 0; k < i; k++) assert_string_not_equal(list[k].name, list[i].name);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ids), cmocka_unit_test(test_fits),
                                       cmocka_unit_test(test_machine), cmocka_unit_test(test_rates)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
