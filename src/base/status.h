#ifndef RCCLX_BASE_STATUS_H
#define RCCLX_BASE_STATUS_H

/* What a call came to. Every function that can fail returns one of these.
 *
 * Severity says how much is lost, so that a caller knows what to rebuild: only
 * this CALL, the COMM (its first cause is kept and every later call answers
 * with it), or the PROCESS. The number is the ncclResult_t a user sees.
 *
 *   X(name, severity, ncclResult_t, text) */
#define RCCLX_STATUS_LIST(X)                                                  \
    X(OK,          NONE,    0, "success")                                     \
    X(AGAIN,       NONE,    7, "not finished yet, call again")                \
    X(ARGUMENT,    CALL,    4, "invalid argument")                            \
    X(USAGE,       CALL,    5, "invalid usage")                               \
    X(UNSUPPORTED, CALL,    5, "not supported by this build")                 \
    X(NOMEM,       CALL,    2, "out of memory")                               \
    X(SYSTEM,      CALL,    2, "a system call failed")                        \
    X(MISMATCH,    COMM,    5, "ranks called different operations")           \
    X(PEER_LOST,   COMM,    6, "a peer is gone")                              \
    X(TIMEOUT,     COMM,    6, "the deadline passed")                         \
    X(ABORTED,     COMM,    5, "the communicator was aborted")                \
    X(INTERNAL,    PROCESS, 3, "a fault of this library")

typedef enum {
#define X(name, severity, nccl, text) RCCLX_##name,
    RCCLX_STATUS_LIST(X)
#undef X
    RCCLX_STATUS_COUNT
} rcclx_status;

typedef enum { RCCLX_SEVERITY_NONE, RCCLX_SEVERITY_CALL, RCCLX_SEVERITY_COMM, RCCLX_SEVERITY_PROCESS } rcclx_severity;

const char    *rcclx_status_name(rcclx_status s);
const char    *rcclx_status_text(rcclx_status s);
rcclx_severity rcclx_status_severity(rcclx_status s);
int            rcclx_status_nccl(rcclx_status s);

/* Return early with whatever went wrong below. The only control-flow macro. */
#define RCCLX_TRY(call)                                                       \
    do {                                                                      \
        rcclx_status try_status_ = (call);                                    \
        if (try_status_ != RCCLX_OK)                                          \
            return try_status_;                                               \
    } while (0)

#endif
