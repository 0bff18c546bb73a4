/* Which contract fits the packages at a path: what millet makes, else the conventions of others, else none.
 */
#ifndef GENERATE_FIND_H
#define GENERATE_FIND_H
#include "generate/artifact.h"
#include "generate/lm.h"

/* Opens the packages and fills in m's model, n_model, name, form and dir; also after an error, m's models are
 * lm_close()'s. p: where the parts of an artifact of our own are, else empty. contract_file: only that
 * description counts; NULL: all that are known. */
bool find_packages(lm *m, artifact_paths *p, const char *path, const char *contract_file, err *e);
#endif
