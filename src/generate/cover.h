/* How a prompt is cut into calls of functions that take 1, T1, T2, ... tokens.
 *
 * A call of size T is counted as COVER_CALL + T: the first part is what a call costs whatever its size (the
 * weights are read once), the second the arithmetic of its tokens, padding included. Of all ways to cover the
 * tokens the cheapest is taken; of equal ones, that with the largest first call. Only the last call is
 * padded, and no call ends behind the context. */
#ifndef GENERATE_COVER_H
#define GENERATE_COVER_H
#include "base/err.h"
#include <stddef.h>
#include <stdint.h>

#define COVER_CALL 8

/* size[0] = 1 < size[1] < ..., at most 255 of them. n tokens, and room >= n positions from the first of them
 * to the end of the context. pad: the last call may be larger than what is left. choice[r], r = 1..n: the
 * index of the size to call when r tokens are left. */
bool cover_plan(const int64_t *size, size_t n_size, size_t n, int64_t room, bool pad, uint8_t *choice,
                err *e);
#endif
