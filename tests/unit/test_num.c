#include "base/num.h"
#include "test.h"
#include <math.h>

/* IEEE 754 binary16, from the definition: sign, 5 exponent bits, 10 fraction bits. */
static double f16_by_definition(unsigned h) {
    int e = h >> 10 & 31, m = h & 1023;
    double v = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
    return h >> 15 ? -v : v;
}

static void every_half_converts_exactly(void **s) {
    (void)s;
    for (unsigned h = 0; h < 65536; h++) {
        double want = f16_by_definition(h);
        float got = num_f16_f32((uint16_t)h);
        if (isnan(want)) {
            assert_true(isnan(got));
            continue;
        }
        assert_true((double)got == want && !signbit(got) == !signbit(want));
        assert_int_equal(num_f32_f16(got), h);
    }
}

/* Between two neighbouring halves: nearest wins, the middle goes to the even one. */
static void rounding_is_to_nearest_even(void **s) {
    (void)s;
    for (unsigned h = 0; h < 0x7BFF; h++) {
        double a = f16_by_definition(h), b = f16_by_definition(h + 1), mid = (a + b) / 2;
        assert_int_equal(num_f32_f16((float)mid), h & 1 ? h + 1 : h);
        assert_int_equal(num_f32_f16(nextafterf((float)mid, 0)), h);
        assert_int_equal(num_f32_f16(nextafterf((float)mid, INFINITY)), h + 1);
    }
    assert_int_equal(num_f32_f16(65519.996f), 0x7BFF);
    assert_int_equal(num_f32_f16(65520.f), 0x7C00);
}

static void codes_pack_and_unpack(void **s) {
    (void)s;
    /* coreml weight.bin, int4 [3,3] holding 1..-7: low nibble first */
    const uint8_t in[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    uint8_t packed[40] = {0};
    num_pack(packed, in, 9, 4);
    assert_memory_equal(packed, ((const uint8_t[]){0x21, 0x43, 0x65, 0x87, 0x09}), 5);
    for (unsigned bits = 1; bits <= 8; bits++) {
        uint8_t code[37], back[37];
        for (unsigned i = 0; i < 37; i++) code[i] = (uint8_t)(i * 73 + 11) & ((1u << bits) - 1);
        num_pack(packed, code, 37, bits);
        for (size_t first = 0; first < 37; first += 5) {
            num_unpack(back, packed, first, 37 - first, bits);
            assert_memory_equal(back, code + first, 37 - first);
        }
    }
    assert_int_equal(num_sign_extend(8, 4), -8);
    assert_int_equal(num_sign_extend(7, 4), 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_converts_exactly),
        cmocka_unit_test(rounding_is_to_nearest_even),
        cmocka_unit_test(codes_pack_and_unpack),
    };
    return cmocka_run_group_tests_name("num", tests, NULL, NULL);
}
