/* The binary interface: the layout of the public structs (abi.def; symbols: tests/cli/abi.sh), and what
 * structs of other sizes do: older and newer callers. */
#include "api/api.h"
#include "test.h"

typedef struct {
    const char *name;
    size_t is, was;
} number;

static const number layout[] = {
#define SIZE(type, n)       {"sizeof " #type, sizeof(type), n},
#define AT(type, member, n) {#type "." #member, offsetof(type, member), n},
#include "abi.def"
};

static void structs_are_as_they_were(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof layout / sizeof *layout; i++)
        if (layout[i].is != layout[i].was)
            fail_msg("%s is %zu, was %zu", layout[i].name, layout[i].is, layout[i].was);
}

typedef struct {
    size_t size;
    int64_t first, second;
} known;

static void older_and_newer_callers(void **state) {
    (void)state;
    err e = {0};
    known to, from = {offsetof(known, second), 1, 2};
    assert_true(api_struct_in(&to, sizeof to, &from, "known", &e)); /* an older one: what it has */
    assert_int_equal(to.first, 1);
    assert_int_equal(to.second, 0);
    struct {
        known k;
        int64_t third;
    } newer = {{sizeof newer, 3, 4}, 5};
    assert_true(api_struct_in(&to, sizeof to, &newer, "known", &e)); /* a newer one: what we know */
    assert_int_equal(to.second, 4);
    assert_true(api_struct_in(&to, sizeof to, NULL, "known", &e));
    assert_int_equal(to.first, 0);
    from = (known){0, 1, 2};
    assert_false(api_struct_in(&to, sizeof to, &from, "known", &e));
    assert_non_null(strstr(e.msg, "known: set its size member"));

    known result = {offsetof(known, second), 7, 8};
    api_struct_out(&result, &(known){.first = 1, .second = 2}, sizeof result);
    assert_int_equal(result.size, offsetof(known, second));
    assert_int_equal(result.first, 1);
    assert_int_equal(result.second, 8); /* not the older caller's memory */
    api_struct_out(&newer, &(known){.first = 1, .second = 2}, sizeof result);
    assert_int_equal(newer.k.second, 2);
    assert_int_equal(newer.third, 0);
}

static void the_library_says_its_number(void **state) {
    (void)state;
    assert_int_equal(millet_abi(), MILLET_ABI);
    assert_string_equal(millet_version(), MILLET_VERSION);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(structs_are_as_they_were),
        cmocka_unit_test(older_and_newer_callers),
        cmocka_unit_test(the_library_says_its_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
