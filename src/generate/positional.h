/* Which states are caches by position, proved from the programs: whatever a call does, it leaves what lies
 * before its position as it was. So the part of such a state in front of position p belongs to the first p
 * tokens alone, whatever was fed behind them, and a timeline goes back to p by clearing the rest.
 *
 * A state counts when every function writes it only as slices of its own former value that begin at the
 * call's position on one axis, always the same. Whatever else happens to a state, inside of loops and
 * branches too, makes it one of which nothing is known. */
#ifndef GENERATE_POSITIONAL_H
#define GENERATE_POSITIONAL_H
#include "generate/lm.h"

/* The axis of that state of package i which counts positions; -1: nothing is known. Where packages share
 * their states the proof is over all of them. */
int positional_axis(const lm *m, size_t i, const char *state);
#endif
