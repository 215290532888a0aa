#ifndef RCCLX_ALGO_TUNE_H
#define RCCLX_ALGO_TUNE_H

#include "algo/algo.h"

/* Measured choices. The file RCCLX_TUNE_FILE names has a line each:
 *
 *   # kind        nranks  min_bytes  max_bytes  algo
 *   all_reduce    2       0          4K         slot
 *   broadcast     *       1M         -          ring
 *
 * Both bounds belong to the row; "*" is any number of ranks, "-" no upper bound;
 * sizes take K, M, G. The first row that applies wins. */
typedef struct {
    rcclx_kind        kind;
    int               nranks; /* 0: any */
    size_t            min_bytes, max_bytes;
    const rcclx_algo *algo;
} rcclx_tune_row;

typedef struct {
    rcclx_tune_row *rows;
    size_t          nrows;
    uint64_t        hash; /* of the rows; 0 for none: ranks compare it at init */
} rcclx_tune;

/* On failure the table is empty and *bad_line says where (from 1). */
rcclx_status rcclx_tune_parse(rcclx_tune *t, const char *text, size_t nbytes, int *bad_line);
void         rcclx_tune_fini(rcclx_tune *t);

const rcclx_algo *rcclx_tune_find(const rcclx_tune *t, const rcclx_shape *s, size_t nbytes); /* NULL: none */

/* The process' table: the file is read at the first call. A file that cannot be
 * read or parsed gives one warning and an empty table. */
const rcclx_tune *rcclx_tune_table(void);

#endif
