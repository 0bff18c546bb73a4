/* Numbers with bounds as regular sets of their decimal texts. */
#ifndef STRUCTURED_NUMBER_H
#define STRUCTURED_NUMBER_H
#include "base/json.h"
#include "structured/dfa.h"

/* Numbers from low to high (NULL: no bound; exclusive: the bound itself is none), in texts without exponent.
 * whole: without a fraction, up to LEX_DIGITS digits; else at most 15 digits in all, so that comparing texts
 * is comparing what they are read as. */
const rx *number_range(arena *a, const json *low, bool low_exclusive, const json *high, bool high_exclusive,
                       bool whole);
/* Whole numbers that are multiples of n > 0. */
bool number_multiples(dfa_maker *m, dfa *d, uint32_t n);
#endif
