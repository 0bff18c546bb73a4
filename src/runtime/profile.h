/* Where the time of a session's plans goes. */
#ifndef RUNTIME_PROFILE_H
#define RUNTIME_PROFILE_H
#include "plan/profile.h"
#include "runtime/session.h"

/* From here on the runs of the session's plans are measured, from zero; false: no longer. Calls of the
 * evaluator are not. */
void rt_session_profile(rt_session *s, bool on);
/* Shows what was measured, plan by plan (a function has one for each size of its inputs). Names and m live
 * until the session's next run. */
typedef void rt_profile_fn(void *ctx, const char *function, const plan_profile *m);
void rt_session_profiles(const rt_session *s, rt_profile_fn *fn, void *ctx);
/* Multiplications and additions of all runs of plans since the session began; a call that is padded counts as
 * a full one. */
plan_work rt_session_work(const rt_session *s);
#endif
