#ifndef RCCLX_PLAN_TALK_H
#define RCCLX_PLAN_TALK_H

#include "plan/plan.h"

enum { RCCLX_TALKERS = 64 };

/* Who has to do with whom over the network, in one plan of at most RCCLX_TALKERS ranks. Where ranks are on several machines, a rank waits
 * (WAIT ALL 0) for the headers of those of its own machine and of those that it exchanges anything with, and
 * sends its own to no others.
 *
 *   the last operation's plan   reads   4-0 5-1        ranks of one machine always meet
 *   this one's                  heard   4-0            5 may not have read all yet of 1's scratch: all meet first
 *
 * In larger communicators all talk to all. Bit q of word r. `reads` and `heard` are the same from both sides. */
typedef struct {
    uint64_t reads[RCCLX_TALKERS]; /* far ranks of which one touches the other's memory, but for LL slots, or waits for its signals */
    uint64_t heard[RCCLX_TALKERS]; /* far ranks that both have heard from each other before they write scratch */
    uint64_t tells[RCCLX_TALKERS]; /* far ranks that r's header goes to */
    bool     writes;    /* somebody writes scratch */
} rcclx_talk;

/* plans: of all ranks; node: their machines. */
void rcclx_talk_find(rcclx_talk *t, const rcclx_plan *plans, int nranks, const uint8_t *node);

/* Must all ranks have finished the operation before this one begins? since[r]: far ranks that may still read r's
 * scratch, or r theirs; brought up to date for the operation after this one. t NULL: all talk to all. */
bool rcclx_talk_meets(const rcclx_talk *t, int nranks, uint64_t *since);

#endif
