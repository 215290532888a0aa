#ifndef RCCLX_ALGO_TUNER_LIFT_H
#define RCCLX_ALGO_TUNER_LIFT_H

/* Private to tuner*.c: what a tuner of any version is to us. */
#include "algo/tuner.h"
#include "algo/tuner_abi.h"

#include "base/library.h"

typedef float rcclx_tuner_costs[RCCLX_TUNER_ALGOS][RCCLX_TUNER_PROTOS];

/* Calls take the plug-in's own table first and return ncclResult_t; ask also -1: the answer makes no sense. */
typedef struct {
    int         version;
    const char *symbol;
    const char *(*name)(const void *table);
    int (*init)(const void *table, const rcclx_tuner_job *job, void **context);
    int (*ask)(const void *table, void *context, int func, size_t nbytes, rcclx_tuner_costs cost);
    int (*end)(const void *table, void *context);
} rcclx_tuner_version;

extern const rcclx_tuner_version rcclx_tuner_versions[]; /* newest first; ends with version 0 */

#endif
