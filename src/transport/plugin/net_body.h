/* What all versions of network plug-ins share; no include guard: net_v6.c to net_v12.c include it
 * once each, after they have said what is their own:
 *
 *   VERSION, TABLE, DEVICE   the number, the table's type, its devices' type
 *   INTEGER MEMORY_INTEGER   of sizes of messages; of memory
 *   INIT CONNECT ACCEPT LISTEN SEND RECV FINALIZE   the calls that have changed over time
 *   OFFLOAD(d) MAX_BYTES(d)  of a device */
#include "base/library.h"
#include "transport/plugin/net_abi.h"
#include "transport/plugin/plugin_inside.h"

#include <stdio.h>
#include <string.h>

#define T ((const TABLE *)table)
#define JOIN(a, b) a##b
#define NAMED(a, b) JOIN(a, b)
#define TEXT(a) #a
#define SYMBOL(version) "ncclNetPlugin_v" TEXT(version)

static bool whole(const void *table)
{
    return T->name && T->init && T->devices && T->device && T->listen && T->connect && T->accept && T->reg && T->dereg &&
           T->send && T->recv && T->test && T->close_send && T->close_recv && T->close_listen;
}

static const char *name(const void *table)
{
    return T->name;
}

static int init(const void *table, void **context, uint64_t id)
{
    (void)id;
    *context = NULL;
    return INIT;
}

static int devices(const void *table, int *n)
{
    return T->devices(n);
}

static int device(const void *table, int dev, rcclx_plugin_device *d)
{
    DEVICE its;

    memset(&its, 0, sizeof(its));
    const int r = T->device(dev, &its);
    if (r)
        return r;
    *d = (rcclx_plugin_device){ .speed = its.speed, .pointers = its.pointers, .offload = OFFLOAD(its), .max_recvs = its.max_recvs,
                                .max_bytes = MAX_BYTES(its) };
    snprintf(d->name, sizeof(d->name), "%s", its.name ? its.name : "");
    return 0;
}

static int listen_at(const void *table, void *context, int dev, void *handle, void **comm)
{
    (void)context;
    return LISTEN;
}

static int connect_to(const void *table, void *context, int dev, void *handle, void **comm)
{
    (void)context;
    return CONNECT;
}

static int accept_one(const void *table, void *listen, void **comm)
{
    return ACCEPT;
}

static int reg(const void *table, void *comm, void *data, size_t nbytes, void **mr)
{
    return T->reg(comm, data, (MEMORY_INTEGER)nbytes, RCCLX_ABI_HOST, mr);
}

static int dereg(const void *table, void *comm, void *mr)
{
    return T->dereg(comm, mr);
}

static int send_one(const void *table, void *comm, void *data, size_t size, int tag, void *mr, void **request)
{
    const INTEGER nbytes = (INTEGER)size;

    return SEND;
}

static int recv_some(const void *table, void *comm, int n, void **data, const size_t *bytes, int *tags, void **mrs, void **request)
{
    INTEGER sizes[RCCLX_PLUGIN_GROUP];

    for (int i = 0; i < n; i++)
        sizes[i] = (INTEGER)bytes[i];
    return RECV;
}

static int test(const void *table, void *request, int *done, int *sizes)
{
    return T->test(request, done, sizes);
}

static int close_send(const void *table, void *comm)
{
    return T->close_send(comm);
}

static int close_recv(const void *table, void *comm)
{
    return T->close_recv(comm);
}

static int close_listen(const void *table, void *comm)
{
    return T->close_listen(comm);
}

#ifdef FINALIZE
static int end_context(const void *table, void *context)
{
    return FINALIZE;
}
#else
#define end_context NULL
#endif

extern const rcclx_plugin_version NAMED(rcclx_plugin_v, VERSION);
const rcclx_plugin_version NAMED(rcclx_plugin_v, VERSION) = {
    .version = VERSION, .symbol = SYMBOL(VERSION), .whole = whole, .name = name, .init = init,
    .devices = devices, .device = device, .listen = listen_at, .connect = connect_to, .accept = accept_one, .reg = reg,
    .dereg = dereg, .send = send_one, .recv = recv_some, .test = test, .close_send = close_send, .close_recv = close_recv,
    .close_listen = close_listen, .finalize = end_context,
};
