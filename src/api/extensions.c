/* rcclx.h: streams of the host, ranks from the launcher, a look inside. */
#include "api/argcheck.h"
#include "api/communicator.h"
#include "api/envrank.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/option.h"
#include "base/process.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>

/* --- streams -------------------------------------------------------------------- */

RCCLX_EXPORT ncclResult_t rcclxStreamCreate(cudaStream_t *stream)
{
    void        *made = NULL;
    rcclx_status s    = rcclx_args_need("rcclxStreamCreate", "stream", stream);

    if (s == RCCLX_OK)
        s = rcclx_stream_create(&made);
    if (s == RCCLX_OK)
        *stream = (cudaStream_t)made;
    return rcclx_result(s);
}

static ncclResult_t with_stream(const char *call, cudaStream_t stream, rcclx_status (*verb)(void *))
{
    if (!stream)
        return ncclSuccess;
    if (!rcclx_stream_known(stream))
        return rcclx_result(RCCLX_FAIL(RCCLX_ARGUMENT, "%s: stream %p is none of rcclxStreamCreate's, or was destroyed", call,
                                       (void *)stream));
    return rcclx_result(verb((void *)stream));
}

RCCLX_EXPORT ncclResult_t rcclxStreamSynchronize(cudaStream_t stream)
{
    return with_stream("rcclxStreamSynchronize", stream, rcclx_stream_synchronize);
}

RCCLX_EXPORT ncclResult_t rcclxStreamQuery(cudaStream_t stream)
{
    return with_stream("rcclxStreamQuery", stream, rcclx_stream_query);
}

RCCLX_EXPORT ncclResult_t rcclxStreamDestroy(cudaStream_t stream)
{
    return with_stream("rcclxStreamDestroy", stream, rcclx_stream_destroy);
}

RCCLX_EXPORT ncclResult_t rcclxStreamPosition(cudaStream_t stream, uint64_t *position)
{
    rcclx_status s = rcclx_args_need("rcclxStreamPosition", "position", position);

    if (s == RCCLX_OK)
        s = rcclx_stream_position((void *)stream, position);
    return rcclx_result(s);
}

static struct timespec after(double seconds)
{
    const uint64_t ns = rcclx_clock_ns() + (uint64_t)(seconds * 1e9);

    return (struct timespec){ (time_t)(ns / 1000000000), (long)(ns % 1000000000) };
}

RCCLX_EXPORT ncclResult_t rcclxStreamWait(cudaStream_t stream, uint64_t position, double seconds)
{
    static const double ages = 1e9; /* as good as for ever, and within what a clock can say */
    struct timespec deadline;

    if (isnan(seconds))
        return rcclx_result(RCCLX_FAIL(RCCLX_ARGUMENT, "rcclxStreamWait: seconds is no number; a negative one waits without "
                                       "limit"));
    if (seconds >= 0)
        deadline = after(seconds < ages ? seconds : ages);
    return rcclx_result(rcclx_stream_wait((void *)stream, position, seconds >= 0 ? &deadline : NULL));
}

/* --- deadlines ------------------------------------------------------------------- */

RCCLX_EXPORT ncclResult_t rcclxCommSetTimeout(ncclComm_t comm, double seconds)
{
    static const char call[] = "rcclxCommSetTimeout";
    rcclx_status      s;
    rcclx_comm       *c = rcclx_comm_acquire_ready(comm, call, &s);

    if (c) {
        if (seconds >= 0 && seconds <= 1e9)
            rcclx_team_set_timeout(&c->team, seconds);
        else
            s = RCCLX_FAIL(RCCLX_ARGUMENT, "%s: %g seconds is outside 0..1e9; 0 waits without limit", call, seconds);
        rcclx_comm_release(c);
    }
    return rcclx_api_result(s);
}

/* --- ranks from the launcher ------------------------------------------------------ */

RCCLX_EXPORT ncclResult_t rcclxEnvRank(rcclxEnv_t *env)
{
    const rcclx_status s = rcclx_args_need("rcclxEnvRank", "env", env);

    return rcclx_result(s == RCCLX_OK ? rcclx_envrank_get(env) : s);
}

/* The id all ranks make for themselves; rank 0 answers at it. */
static rcclx_status meet(const rcclxEnv_t *env, rcclx_unique_id *id)
{
    char address[300], words[400];

    if (env->size == 1)
        return rcclx_unique_id_create(id, rcclx_option_str(RCCLX_OPT_COMM_ID));
    RCCLX_TRY(rcclx_envrank_place(env, address, sizeof address, words, sizeof words));
    RCCLX_TRY(rcclx_unique_id_at(id, address, words));
    return env->rank == 0 ? rcclx_unique_id_serve(id) : RCCLX_OK;
}

static rcclx_status init_env(ncclComm_t *comm, const ncclConfig_t *config)
{
    static const char call[] = "rcclxCommInitEnv";
    rcclxEnv_t        env;
    rcclx_unique_id   id;
    ncclUniqueId      up;

    RCCLX_TRY(rcclx_args_need(call, "comm", comm));
    RCCLX_TRY(rcclx_envrank_get(&env));
    RCCLX_TRY(meet(&env, &id));
    memcpy(&up, &id, sizeof up);
    return rcclx_api_init(call, comm, env.size, &up, env.rank, NULL, env.localRank < 0 ? 0 : env.localRank, config);
}

RCCLX_EXPORT ncclResult_t rcclxCommInitEnv(ncclComm_t *comm, ncclConfig_t *config)
{
    return rcclx_api_result(init_env(comm, config));
}

/* --- looking inside ----------------------------------------------------------------- */

static void dump_process(FILE *out, bool json)
{
    const rcclx_process_state *p = rcclx_process();

    if (!json) {
        fprintf(out, "process %d: %d communicators, %zu bytes of ncclMemAlloc, %zu blocks of memory\n", p->pid,
                rcclx_comm_count(), rcclx_arena_held(), rcclx_mem_held());
        return;
    }
    rcclx_json j;
    rcclx_json_init(&j, out);
    rcclx_json_object_open(&j, NULL);
    rcclx_json_int(&j, "pid", p->pid);
    rcclx_json_int(&j, "communicators", rcclx_comm_count());
    rcclx_json_int(&j, "arena_bytes", (int64_t)rcclx_arena_held());
    rcclx_json_int(&j, "blocks", (int64_t)rcclx_mem_held());
    rcclx_json_object_close(&j);
}

static rcclx_status dump_comm(FILE *out, ncclComm_t comm, bool json)
{
    rcclx_status s;
    rcclx_comm  *c = rcclx_comm_acquire(comm, "rcclxDump", &s);

    if (!c)
        return s;
    rcclx_comm_dump(out, c, json);
    rcclx_comm_release(c);
    return RCCLX_OK;
}

static rcclx_status dump(FILE *out, const char *what, ncclComm_t comm, bool json)
{
    if (strcmp(what, "comm") == 0)
        return dump_comm(out, comm, json);
    if (strcmp(what, "options") == 0)
        rcclx_option_dump(out, json);
    else if (strcmp(what, "process") == 0)
        dump_process(out, json);
    else
        return RCCLX_FAIL(RCCLX_ARGUMENT, "rcclxDump: what is '%s'; there are options, process and comm", what);
    return RCCLX_OK;
}

/* What is written goes into the caller's memory as far as it reaches, and is
 * counted as far as it goes. */
typedef struct {
    char  *buf;
    size_t n, len;
} sink;

static ssize_t swallow(void *cookie, const char *text, size_t nbytes)
{
    sink *to = cookie;

    if (to->len + 1 < to->n) {
        const size_t room = to->n - 1 - to->len;
        memcpy(to->buf + to->len, text, nbytes < room ? nbytes : room);
    }
    to->len += nbytes;
    return (ssize_t)nbytes;
}

RCCLX_EXPORT ncclResult_t rcclxDump(const char *what, ncclComm_t comm, int json, char *buf, size_t n, size_t *needed)
{
    sink         to = { buf, buf ? n : 0, 0 };
    rcclx_status s;

    if (!what)
        return rcclx_result(RCCLX_FAIL(RCCLX_ARGUMENT, "rcclxDump: what is NULL; pass options, process or comm"));
    FILE *out = fopencookie(&to, "w", (cookie_io_functions_t){ .write = swallow });
    if (!out)
        return rcclx_result(RCCLX_FAIL_ERRNO("rcclxDump: no stream for the text"));
    s = dump(out, what, comm, json != 0);
    fclose(out);
    if (s != RCCLX_OK)
        return rcclx_result(s);
    if (to.n)
        buf[to.len < n ? to.len : n - 1] = 0;
    if (needed)
        *needed = to.len + 1;
    return ncclSuccess;
}
