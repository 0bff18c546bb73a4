/* Where prompts are cut. What a prompt's numbers are depends, in their last digits, on the calls it is cut
 * into; states of earlier requests can only be taken over where both were cut. So cuts are made by the ids
 * alone, at points that prompts with the same beginning have in common: in front of each turn of the
 * assistant, where the request before it ended, and every CUT_SPACING ids. Then it makes no difference
 * whether states were taken over. */
#ifndef SERVER_CUTS_H
#define SERVER_CUTS_H
#include "server/request.h"

#define CUT_SPACING 512

void cuts_make(request_prompt *p, arena *a, const lm *m);
/* Whether to keep what was fed up to cut k: the last ones, and a few of those before. */
bool cuts_keep(const request_prompt *p, size_t k);
#endif
