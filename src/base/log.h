#ifndef RCCLX_BASE_LOG_H
#define RCCLX_BASE_LOG_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

/* The log users know from NCCL:
 *
 *   host:pid:tid [dev] NCCL INFO text
 *   [time] host:pid:tid [dev] file:line NCCL WARN text
 *
 * switched on by NCCL_DEBUG (VERSION, WARN, INFO, ABORT, TRACE; NONE is
 * silent), narrowed by NCCL_DEBUG_SUBSYS, sent to NCCL_DEBUG_FILE (%h host,
 * %p pid; standard output without). All are rows of options.h. */
typedef enum { RCCLX_LOG_NONE, RCCLX_LOG_VERSION, RCCLX_LOG_WARN, RCCLX_LOG_INFO, RCCLX_LOG_ABORT, RCCLX_LOG_TRACE } rcclx_log_level;

/* Subsystems, with NCCL's bits (plug-ins are handed them). */
#define RCCLX_SUBSYS_LIST(X)                                                  \
    X(INIT, 0x1) X(COLL, 0x2) X(P2P, 0x4) X(SHM, 0x8) X(NET, 0x10)            \
    X(GRAPH, 0x20) X(TUNING, 0x40) X(ENV, 0x80) X(ALLOC, 0x100)               \
    X(CALL, 0x200) X(PROXY, 0x400) X(NVLS, 0x800) X(BOOTSTRAP, 0x1000)        \
    X(REG, 0x2000) X(PROFILE, 0x4000) X(RAS, 0x8000) X(DESTROY, 0x10000)      \
    X(ALLOC_HOST, 0x20000)
typedef enum {
#define X(name, bit) RCCLX_##name = bit,
    RCCLX_SUBSYS_LIST(X)
#undef X
    RCCLX_SUBSYS_ALL = 0x3ffff
} rcclx_subsys;

/* True when a message would be printed: guard costly arguments with it. */
bool rcclx_log_on(rcclx_log_level level, unsigned subsys);

/* The device number shown in brackets in this thread's lines; -1 for none. */
void rcclx_log_device(int dev);

void rcclx_log(rcclx_log_level level, unsigned subsys, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

#define RCCLX_WARN_LOG(...)         rcclx_log(RCCLX_LOG_WARN, RCCLX_SUBSYS_ALL, __FILE__, __LINE__, __VA_ARGS__)
#define RCCLX_INFO_LOG(subsys, ...) rcclx_log(RCCLX_LOG_INFO, RCCLX_##subsys, __FILE__, __LINE__, __VA_ARGS__)
#define RCCLX_TRACE_LOG(subsys, ...)                                          \
    do {                                                                      \
        if (rcclx_log_on(RCCLX_LOG_TRACE, RCCLX_##subsys))                    \
            rcclx_log(RCCLX_LOG_TRACE, RCCLX_##subsys, __FILE__, __LINE__, __VA_ARGS__); \
    } while (0)

/* Who detects a failure says so here, once: the text becomes the last error
 * (ncclGetLastError) and one WARN line, and the status is handed back:
 *
 *   return RCCLX_FAIL(RCCLX_ARGUMENT, "rank %d: AllReduce: root %d ...", ...);
 *
 * A text names rank, operation, peer, cause, and one thing to try. */
rcclx_status rcclx_fail(rcclx_status s, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
#define RCCLX_FAIL(status, ...) rcclx_fail(status, __FILE__, __LINE__, __VA_ARGS__)

/* The border to the C library: turn errno into a status, saying what failed. */
rcclx_status rcclx_fail_errno(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));
#define RCCLX_FAIL_ERRNO(...) rcclx_fail_errno(__FILE__, __LINE__, __VA_ARGS__)

/* What an operator must see even when NCCL_DEBUG is not set: a dead peer, a
 * long wait, a setting that is ignored. A WARN line; on standard error while
 * WARN is off. Only NCCL_DEBUG=NONE silences it. */
void rcclx_alert(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));
#define RCCLX_ALERT(...) rcclx_alert(__FILE__, __LINE__, __VA_ARGS__)

/* Read the log's settings again; rcclx_option_reload does. */
void rcclx_log_reload(void);

/* The newest error text of the process ("" when there was none). The pointer
 * stays valid until this thread asks again. Setting it does not log. */
const char *rcclx_last_error(void);
void        rcclx_last_error_set(const char *text);

#endif
