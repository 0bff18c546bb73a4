/* The binary interface: sizes of the public structs and offsets of their members, as programs were built
 * with. A member that is added comes behind the last one, never into the padding at a struct's end; nothing
 * here changes then but a SIZE. (Symbols: tests/cli/abi.sh.) And what structs of other sizes do: older and
 * newer callers. */
#include "api/api.h"
#include "test.h"

typedef struct {
    const char *name;
    size_t is, was;
} number;

#define SIZE(type, n)                                                                                        \
    { "sizeof " #type, sizeof(type), n }
#define AT(type, member, n)                                                                                  \
    { #type "." #member, offsetof(type, member), n }

static const number layout[] = {
    SIZE(millet_error, 1004),
    AT(millet_error, code, 0),
    AT(millet_error, message, 4),
    SIZE(millet_allocator, 32),
    AT(millet_allocator, size, 0),
    AT(millet_allocator, alloc, 8),
    AT(millet_allocator, free, 16),
    AT(millet_allocator, ctx, 24),
    SIZE(millet_feature, 272),
    AT(millet_feature, size, 0),
    AT(millet_feature, name, 8),
    AT(millet_feature, dtype, 16),
    AT(millet_feature, rank, 20),
    AT(millet_feature, shape, 24),
    AT(millet_feature, lower, 88),
    AT(millet_feature, upper, 152),
    AT(millet_feature, optional, 216),
    AT(millet_feature, has_default, 217),
    AT(millet_feature, default_value, 224),
    AT(millet_feature, kind, 232),
    AT(millet_feature, n_shapes, 240),
    AT(millet_feature, shapes, 248),
    AT(millet_feature, description, 256),
    AT(millet_feature, ranged, 264),
    AT(millet_feature, default_dtype, 268),
    SIZE(millet_open_options, 40),
    AT(millet_open_options, size, 0),
    AT(millet_open_options, linear, 8),
    AT(millet_open_options, allocator, 16),
    AT(millet_open_options, log, 24),
    AT(millet_open_options, log_ctx, 32),
    SIZE(millet_model_stats, 40),
    AT(millet_model_stats, size, 0),
    AT(millet_model_stats, memory, 8),
    AT(millet_model_stats, memory_peak, 16),
    AT(millet_model_stats, plans, 24),
    AT(millet_model_stats, plan_seconds, 32),
    SIZE(millet_package_info, 16),
    AT(millet_package_info, size, 0),
    AT(millet_package_info, specification_version, 8),
    AT(millet_package_info, multifunction, 12),
    AT(millet_package_info, pipeline, 13),
    SIZE(millet_tensor, 96),
    AT(millet_tensor, name, 0),
    AT(millet_tensor, dtype, 8),
    AT(millet_tensor, rank, 12),
    AT(millet_tensor, shape, 16),
    AT(millet_tensor, data, 80),
    AT(millet_tensor, bytes, 88),
    SIZE(millet_session_options, 16),
    AT(millet_session_options, size, 0),
    AT(millet_session_options, precision, 8),
    AT(millet_session_options, threads, 12),
    SIZE(millet_call, 80),
    AT(millet_call, size, 0),
    AT(millet_call, function, 8),
    AT(millet_call, input, 16),
    AT(millet_call, n_input, 24),
    AT(millet_call, value, 32),
    AT(millet_call, n_value, 40),
    AT(millet_call, output, 48),
    AT(millet_call, max_output, 56),
    AT(millet_call, n_output, 64),
    AT(millet_call, cancel, 72),
    SIZE(millet_stats, 48),
    AT(millet_stats, size, 0),
    AT(millet_stats, calls, 8),
    AT(millet_stats, seconds, 16),
    AT(millet_stats, state_bytes, 24),
    AT(millet_stats, memory, 32),
    AT(millet_stats, memory_peak, 40),
    SIZE(millet_lm_options, 32),
    AT(millet_lm_options, size, 0),
    AT(millet_lm_options, open, 8),
    AT(millet_lm_options, tokenizer, 16),
    AT(millet_lm_options, contract, 24),
    SIZE(millet_generate_options, 128),
    AT(millet_generate_options, size, 0),
    AT(millet_generate_options, precision, 8),
    AT(millet_generate_options, max_new_tokens, 16),
    AT(millet_generate_options, temperature, 24),
    AT(millet_generate_options, top_k, 32),
    AT(millet_generate_options, top_p, 40),
    AT(millet_generate_options, min_p, 48),
    AT(millet_generate_options, repetition_penalty, 56),
    AT(millet_generate_options, presence_penalty, 64),
    AT(millet_generate_options, frequency_penalty, 72),
    AT(millet_generate_options, seed, 80),
    AT(millet_generate_options, ignore_eos, 88),
    AT(millet_generate_options, on_token, 96),
    AT(millet_generate_options, keep_going, 104),
    AT(millet_generate_options, ctx, 112),
    AT(millet_generate_options, cancel, 120),
    SIZE(millet_generation, 64),
    AT(millet_generation, size, 0),
    AT(millet_generation, ids, 8),
    AT(millet_generation, n_ids, 16),
    AT(millet_generation, prompt_tokens, 24),
    AT(millet_generation, finish, 32),
    AT(millet_generation, prompt_seconds, 40),
    AT(millet_generation, decode_seconds, 48),
    AT(millet_generation, reused_tokens, 56),
    SIZE(millet_scores, 32),
    AT(millet_scores, size, 0),
    AT(millet_scores, score, 8),
    AT(millet_scores, id, 16),
    AT(millet_scores, n, 24),
    SIZE(millet_convert_options, 176),
    AT(millet_convert_options, size, 0),
    AT(millet_convert_options, preset, 8),
    AT(millet_convert_options, precision, 16),
    AT(millet_convert_options, state, 24),
    AT(millet_convert_options, context, 32),
    AT(millet_convert_options, top_k, 40),
    AT(millet_convert_options, overwrite, 48),
    AT(millet_convert_options, progress, 56),
    AT(millet_convert_options, ctx, 64),
    AT(millet_convert_options, quantize, 72),
    AT(millet_convert_options, vocab, 80),
    AT(millet_convert_options, recipe, 88),
    AT(millet_convert_options, group_size, 96),
    AT(millet_convert_options, prefill, 104),
    AT(millet_convert_options, chunks, 112),
    AT(millet_convert_options, kv, 120),
    AT(millet_convert_options, table, 128),
    AT(millet_convert_options, max_file_size, 136),
    AT(millet_convert_options, into, 144),
    AT(millet_convert_options, share_weights, 152),
    AT(millet_convert_options, cancel, 160),
    AT(millet_convert_options, open, 168),
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
