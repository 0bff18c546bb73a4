/* SHA-256: the examples of FIPS 180-4 ("SHA256.pdf" of NIST's examples with intermediate values), the secure
 * hash standard's million letters a, and lengths around the block from python3 -c "import hashlib;
 * print(hashlib.sha256(bytes(i * 7 & 255 for i in range(n))).hexdigest())". */
#define _GNU_SOURCE
#include "base/file.h"
#include "base/sha256.h"
#include "test.h"
#include <unistd.h>

static const char *digest(const void *data, size_t n, size_t piece) {
    static char hex[SHA256_HEX];
    sha256 h;
    sha256_init(&h);
    for (size_t at = 0; at < n; at += piece)
        sha256_update(&h, (const char *)data + at, n - at < piece ? n - at : piece);
    sha256_final(&h, hex);
    return hex;
}

static void test_standard(void **state) {
    (void)state;
    assert_string_equal(digest("", 0, 1), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_string_equal(digest("abc", 3, 3),
                        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    const char *two = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    assert_string_equal(digest(two, 56, 56),
                        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    char *million = malloc(1000000);
    memset(million, 'a', 1000000);
    assert_string_equal(digest(million, 1000000, 999),
                        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    free(million);
}

static void test_lengths(void **state) {
    (void)state;
    static const struct {
        size_t n;
        const char *hex;
    } cases[] = {{1, "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"},
                 {55, "576a1bf8d4478657e6dc4af9398544765c2a92cde28478b019235cfed315fc09"},
                 {56, "9b20501dfd1d99161c257950f3444f3e49230c351c5c8e0943ef369f85f5205d"},
                 {57, "a5534a9d0694341dfde5b1bb3d8addcb38bd46f44a629dc97b3f8fb2721b0720"},
                 {63, "30b345906b493f06f69444b6521113511c242f30e29840462950035043682f1e"},
                 {64, "d8bc63b4fc1156e5e7d95a418b9bf54cd3174bedbc2db40f74895349b229b3c0"},
                 {65, "1ee23b0fbcaecc1aff4a9e8f1645f35ab2c8e13609cd73b68df8b5e3f63ce073"},
                 {119, "7a6589821178918ca8d9edaba5abfc1e9b2669564f4469b66885379c1530b2c8"},
                 {120, "655250427d56b1b0eeb8497d21428704273458a01772d6881b65c0abac0f8a98"},
                 {127, "67d79933e3c9aa8e89f481e071cfca1e9a16c09d7263b5efa3bb01f1a9f8d065"},
                 {128, "54c9eb041badfd7064645067b107661fed6113197ce2dd066ba69618abd3732f"},
                 {129, "5b55715b51c54661ed0cbd75ba5b00cf1ffee3b7c113a636eca613d9425116a6"},
                 {200, "b531abd8dae7232c861ac9f50aff9952d29c8d4c3772551cc5bce5d39d2cd08d"}};
    uint8_t data[200];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)(i * 7);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t piece = 1; piece <= 130; piece += 43)
            assert_string_equal(digest(data, cases[i].n, piece), cases[i].hex);
}

static void test_file(void **state) {
    (void)state;
    char path[] = "/tmp/millet-sha256-XXXXXX", hex[SHA256_HEX];
    close(mkstemp(path));
    err e = {0};
    uint64_t bytes = 1;
    assert_true(sha256_file(path, hex, &bytes, &e));
    assert_int_equal(bytes, 0);
    assert_string_equal(hex, digest("", 0, 1));
    size_t n = ((size_t)8 << 20) + 5; /* more than one piece */
    char *data = malloc(n);
    memset(data, 'm', n);
    assert_true(file_write(path, data, n, &e));
    assert_true(sha256_file(path, hex, &bytes, &e));
    assert_int_equal(bytes, n);
    /* head -c 8388613 /dev/zero | tr '\0' m | sha256sum */
    assert_string_equal(hex, "efce9ed16660e1ef26fa0da33043a3dc22d217f624fa1a32c7be5deb5da20b67");
    free(data);
    unlink(path);
    assert_false(sha256_file(path, hex, &bytes, &e));
    assert_non_null(strstr(e.msg, path));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_standard),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
