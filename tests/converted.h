/* Packages for tests, converted once in a program. */
#ifndef TESTS_CONVERTED_H
#define TESTS_CONVERTED_H
#include "convert/convert.h"
#include "work_dir.h"

/* What the checkpoint becomes with o, in the work directory by this name: converted for the first who asks,
 * so a name stands for one checkpoint and the same options. Nobody writes into it. Holds as in_work() does.
 */
static inline const char *converted(const char *name, const char *checkpoint, const convert_options *o) {
    err e = {0};
    const char *out = in_work(name);
    if (!file_exists(out) && !convert_checkpoint(checkpoint, out, o, NULL, &e))
        fail_msg("%s: %s", name, e.msg);
    return out;
}
#endif
