#ifndef RCCLX_ALGO_LIST_H
#define RCCLX_ALGO_LIST_H

#include "algo/algo.h"

/* What a list of forced algorithms says about one kind of collective. */
typedef struct {
    bool     forces;    /* it says anything at all */
    unsigned allowed;   /* bit i: row i of rcclx_algos may be chosen */
} rcclx_algo_wish;

/* Words that nobody knows count for nothing here; rcclx_algo_list_check finds them. */
rcclx_algo_wish rcclx_algo_list_wish(const char *forced, rcclx_kind k);

#endif
