/* How fast an artifact takes prompts and generates, with fixed token ids and the likeliest token each time.
 */
#ifndef GENERATE_BENCH_H
#define GENERATE_BENCH_H
#include "base/sha256.h"
#include "generate/batch.h"
#include "generate/profile.h"

/* Token i of everything that is fed: (7919 i + 1) mod min(vocabulary, 4096); a vocabulary of 0 is not known.
 */
int32_t bench_id(int64_t vocab, int64_t i);
/* Of the first n of these as little-endian int32. */
void bench_ids_sha256(int64_t vocab, int64_t n, char hex[SHA256_HEX]);

typedef struct {
    const char *name;
    int64_t depth;    /* tokens that were fed before, untimed */
    int64_t prompt;   /* > 0: tokens fed then, timed up to the first new token */
    int64_t fresh;    /* > 0: new tokens; all but the first are timed, a call each */
    int64_t sessions; /* > 1: as many decoders generate at the same time, a token each in a step; 0 is 1 */
    int warm, trials; /* runs that don't count; > 0 that do */
} bench_case;

typedef struct {
    double *prompt_seconds, *decode_seconds; /* one a trial, in order; free with bench_result_free() */
    double prompt_median, decode_median;
    bool moved;          /* whether bytes are known: calls of the evaluator move none */
    double bytes;        /* of weights and states for a token in the middle of the generation; what several
                            sessions read together counts for each as its part */
    double prompt_flops; /* multiplications and additions of the calls that took the prompt; 0: not known */
} bench_result;

/* ERR_LIMIT when the case does not fit the context; no work is done. */
bool bench_fits(const lm *m, const bench_case *c, err *e);
/* keep_going as in decoder_hooks (NULL: always); ERR_CANCELLED then. */
bool bench_run(const lm *m, rt_mode mode, const bench_case *c, bool (*keep_going)(void *ctx), bench_result *r,
               err *e);
/* Of more generations of the case, three or as many as its trials, with every step timed (what that costs is
 * in it) the fastest prompt and the fastest rest. Rows live in a. */
typedef struct {
    bool has_prompt, has_decode;
    profile prompt, decode;
} bench_profile;
bool bench_run_profile(const lm *m, rt_mode mode, const bench_case *c, bool (*keep_going)(void *ctx),
                       arena *a, bench_profile *p, err *e);
/* A case for the rate of a prompt, not just of what follows. */
bool bench_takes_prompt(const bench_case *c);
/* A start: the artifact opened and one id fed, after so many seconds. */
typedef struct {
    double opened, first_token;
    uint64_t peak; /* bytes, of the whole process */
} bench_start;
bool bench_run_start(const char *artifact, const char *contract_file, rt_mode mode, bench_start *s, err *e);
void bench_result_free(bench_result *r);
/* Most memory that this process has had resident (VmHWM), bytes; 0 when the system does not say. */
uint64_t bench_peak_memory(void);
/* From here on it counts from what is resident now; false: the system can't. */
bool bench_reset_peak(void);
#endif
