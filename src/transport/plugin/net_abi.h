#ifndef RCCLX_TRANSPORT_PLUGIN_NET_ABI_H
#define RCCLX_TRANSPORT_PLUGIN_NET_ABI_H

#include <stddef.h>
#include <stdint.h>

/* The tables that network plug-ins export, ncclNetPlugin_v6 to _v12, as they lie in
 * memory. A version is the one before it with what is said at its head; entries never
 * move, but for those that came in between. A test knows where everything lies.
 *
 *            6     7            8            9            10            11           12
 *   device         +offload     +reg global  +flush,                    +requests    more devices,
 *                                             virtual,                               rail, plane
 *                                             largest
 *   calls          +two of      long sizes   long sizes   +settings of  +context,
 *                   offload     of memory    of messages,  connections,  end,
 *                                             +virtual     parents       attributes
 *
 * Results are ncclResult_t, 0 is success. Pointers to host memory have type 1. */

enum { RCCLX_ABI_HANDLE = 128, RCCLX_ABI_HOST = 1 };

/* Whatever a comm, a request or a registration is to the plug-in. */
typedef void *rcclx_abi_thing;

typedef void (*rcclx_abi_log)(int level, unsigned long subsys, const char *file, int line, const char *format, ...);
typedef int (*rcclx_abi_profile)(void **handle, int type, void *parent, int64_t plugin, void *data);

/* --- what a device is --------------------------------------------------------------- */

/* Type 0 is ours; others are made for kernels that know them. */
typedef struct { int type, version; void *handle; size_t nbytes; int needs_progress; } rcclx_abi_offload;

#define RCCLX_ABI_DEVICE_WHO char *name, *pci; uint64_t guid; int pointers
#define RCCLX_ABI_DEVICE_LINK int speed, port; float latency; int max_comms, max_recvs
#define RCCLX_ABI_DEVICE_OFFLOAD int offload, offload_version
#define RCCLX_ABI_DEVICE_VIRTUAL(n) struct { int ndevs, devs[n]; } parts; size_t max_p2p, max_coll

typedef struct { RCCLX_ABI_DEVICE_WHO; RCCLX_ABI_DEVICE_LINK; } rcclx_device_v6;
typedef struct { RCCLX_ABI_DEVICE_WHO; RCCLX_ABI_DEVICE_LINK; RCCLX_ABI_DEVICE_OFFLOAD; } rcclx_device_v7;
typedef struct { RCCLX_ABI_DEVICE_WHO; int reg_is_global; RCCLX_ABI_DEVICE_LINK; RCCLX_ABI_DEVICE_OFFLOAD; } rcclx_device_v8;
typedef struct {
    RCCLX_ABI_DEVICE_WHO;
    int reg_is_global, force_flush;
    RCCLX_ABI_DEVICE_LINK;
    RCCLX_ABI_DEVICE_OFFLOAD;
    RCCLX_ABI_DEVICE_VIRTUAL(4);
} rcclx_device_v9;
typedef rcclx_device_v9 rcclx_device_v10;
typedef struct {
    RCCLX_ABI_DEVICE_WHO;
    int reg_is_global, force_flush;
    RCCLX_ABI_DEVICE_LINK;
    RCCLX_ABI_DEVICE_OFFLOAD;
    RCCLX_ABI_DEVICE_VIRTUAL(4);
    int max_requests;
} rcclx_device_v11;
typedef struct {
    RCCLX_ABI_DEVICE_WHO;
    int reg_is_global, force_flush;
    RCCLX_ABI_DEVICE_LINK;
    RCCLX_ABI_DEVICE_OFFLOAD;
    RCCLX_ABI_DEVICE_VIRTUAL(8);
    int max_requests;
    int16_t rail, plane; /* -1: not known */
} rcclx_device_v12;

typedef struct { int traffic_class; } rcclx_abi_config; /* -1: the plug-in's own */

/* --- what can be called --------------------------------------------------------------- */

#define RCCLX_ABI_REG_DMABUF                                                                                      \
    int (*reg_dmabuf)(rcclx_abi_thing comm, void *data, size_t nbytes, int type, uint64_t offset, int fd, rcclx_abi_thing *mr); \
    int (*dereg)(rcclx_abi_thing comm, rcclx_abi_thing mr)
#define RCCLX_ABI_AFTERWARDS                                                                                      \
    int (*flush)(rcclx_abi_thing comm, int n, void **data, int *sizes, rcclx_abi_thing *mrs, rcclx_abi_thing *request); \
    int (*test)(rcclx_abi_thing request, int *done, int *sizes);                                                  \
    int (*close_send)(rcclx_abi_thing comm);                                                                      \
    int (*close_recv)(rcclx_abi_thing comm);                                                                      \
    int (*close_listen)(rcclx_abi_thing comm)
#define RCCLX_ABI_OFFLOADED                                                                                       \
    int (*device_mr)(rcclx_abi_thing comm, rcclx_abi_thing mr, void **device);                                    \
    int (*consumed)(rcclx_abi_thing comm, int n, rcclx_abi_thing request)
#define RCCLX_ABI_MESSAGES(integer)                                                                               \
    int (*send)(rcclx_abi_thing comm, void *data, integer nbytes, int tag, rcclx_abi_thing mr, rcclx_abi_thing *request); \
    int (*recv)(rcclx_abi_thing comm, int n, void **data, integer *sizes, int *tags, rcclx_abi_thing *mrs, rcclx_abi_thing *request)
#define RCCLX_ABI_MESSAGES_OF_PARENTS                                                                             \
    int (*send)(rcclx_abi_thing comm, void *data, size_t nbytes, int tag, rcclx_abi_thing mr, void *parent, rcclx_abi_thing *request); \
    int (*recv)(rcclx_abi_thing comm, int n, void **data, size_t *sizes, int *tags, rcclx_abi_thing *mrs, void **parents, \
                rcclx_abi_thing *request)

typedef struct {
    const char *name;
    int (*init)(rcclx_abi_log log);
    int (*devices)(int *n);
    int (*device)(int dev, rcclx_device_v6 *d);
    int (*listen)(int dev, void *handle, rcclx_abi_thing *comm);
    int (*connect)(int dev, void *handle, rcclx_abi_thing *comm);
    int (*accept)(rcclx_abi_thing listen, rcclx_abi_thing *comm);
    int (*reg)(rcclx_abi_thing comm, void *data, int nbytes, int type, rcclx_abi_thing *mr);
    RCCLX_ABI_REG_DMABUF;
    RCCLX_ABI_MESSAGES(int);
    RCCLX_ABI_AFTERWARDS;
} rcclx_net_v6;

typedef struct {
    const char *name;
    int (*init)(rcclx_abi_log log);
    int (*devices)(int *n);
    int (*device)(int dev, rcclx_device_v7 *d);
    int (*listen)(int dev, void *handle, rcclx_abi_thing *comm);
    int (*connect)(int dev, void *handle, rcclx_abi_thing *comm, rcclx_abi_offload **offload);
    int (*accept)(rcclx_abi_thing listen, rcclx_abi_thing *comm, rcclx_abi_offload **offload);
    int (*reg)(rcclx_abi_thing comm, void *data, int nbytes, int type, rcclx_abi_thing *mr);
    RCCLX_ABI_REG_DMABUF;
    RCCLX_ABI_MESSAGES(int);
    RCCLX_ABI_AFTERWARDS;
    RCCLX_ABI_OFFLOADED;
} rcclx_net_v7;

typedef struct {
    const char *name;
    int (*init)(rcclx_abi_log log);
    int (*devices)(int *n);
    int (*device)(int dev, rcclx_device_v8 *d);
    int (*listen)(int dev, void *handle, rcclx_abi_thing *comm);
    int (*connect)(int dev, void *handle, rcclx_abi_thing *comm, rcclx_abi_offload **offload);
    int (*accept)(rcclx_abi_thing listen, rcclx_abi_thing *comm, rcclx_abi_offload **offload);
    int (*reg)(rcclx_abi_thing comm, void *data, size_t nbytes, int type, rcclx_abi_thing *mr);
    RCCLX_ABI_REG_DMABUF;
    RCCLX_ABI_MESSAGES(int);
    RCCLX_ABI_AFTERWARDS;
    RCCLX_ABI_OFFLOADED;
} rcclx_net_v8;

typedef struct {
    const char *name;
    int (*init)(rcclx_abi_log log);
    int (*devices)(int *n);
    int (*device)(int dev, rcclx_device_v9 *d);
    int (*listen)(int dev, void *handle, rcclx_abi_thing *comm);
    int (*connect)(int dev, void *handle, rcclx_abi_thing *comm, rcclx_abi_offload **offload);
    int (*accept)(rcclx_abi_thing listen, rcclx_abi_thing *comm, rcclx_abi_offload **offload);
    int (*reg)(rcclx_abi_thing comm, void *data, size_t nbytes, int type, rcclx_abi_thing *mr);
    RCCLX_ABI_REG_DMABUF;
    RCCLX_ABI_MESSAGES(size_t);
    RCCLX_ABI_AFTERWARDS;
    RCCLX_ABI_OFFLOADED;
    int (*virtual_device)(int *dev, void *parts);
} rcclx_net_v9;

typedef struct {
    const char *name;
    int (*init)(rcclx_abi_log log, rcclx_abi_profile profile);
    int (*devices)(int *n);
    int (*device)(int dev, rcclx_device_v10 *d);
    int (*listen)(int dev, void *handle, rcclx_abi_thing *comm);
    int (*connect)(int dev, rcclx_abi_config *config, void *handle, rcclx_abi_thing *comm, rcclx_abi_offload **offload);
    int (*accept)(rcclx_abi_thing listen, rcclx_abi_thing *comm, rcclx_abi_offload **offload);
    int (*reg)(rcclx_abi_thing comm, void *data, size_t nbytes, int type, rcclx_abi_thing *mr);
    RCCLX_ABI_REG_DMABUF;
    RCCLX_ABI_MESSAGES_OF_PARENTS;
    RCCLX_ABI_AFTERWARDS;
    RCCLX_ABI_OFFLOADED;
    int (*virtual_device)(int *dev, void *parts);
} rcclx_net_v10;

/* 11 and 12 differ in the device only. */
#define RCCLX_ABI_NET_OF_CONTEXTS(device_type)                                                                    \
    const char *name;                                                                                             \
    int (*init)(void **context, uint64_t id, rcclx_abi_config *config, rcclx_abi_log log, rcclx_abi_profile profile); \
    int (*devices)(int *n);                                                                                       \
    int (*device)(int dev, device_type *d);                                                                       \
    int (*listen)(void *context, int dev, void *handle, rcclx_abi_thing *comm);                                   \
    int (*connect)(void *context, int dev, void *handle, rcclx_abi_thing *comm, rcclx_abi_offload **offload);     \
    int (*accept)(rcclx_abi_thing listen, rcclx_abi_thing *comm, rcclx_abi_offload **offload);                    \
    int (*reg)(rcclx_abi_thing comm, void *data, size_t nbytes, int type, rcclx_abi_thing *mr);                   \
    RCCLX_ABI_REG_DMABUF;                                                                                         \
    RCCLX_ABI_MESSAGES_OF_PARENTS;                                                                                \
    RCCLX_ABI_AFTERWARDS;                                                                                         \
    RCCLX_ABI_OFFLOADED;                                                                                          \
    int (*virtual_device)(int *dev, void *parts);                                                                 \
    int (*finalize)(void *context);                                                                               \
    int (*attributes)(void *context, void *attributes)

typedef struct { RCCLX_ABI_NET_OF_CONTEXTS(rcclx_device_v11); } rcclx_net_v11;
typedef struct { RCCLX_ABI_NET_OF_CONTEXTS(rcclx_device_v12); } rcclx_net_v12;

#endif
