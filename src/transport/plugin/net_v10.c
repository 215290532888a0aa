/* Version 10 (NCCL 2.26): connections have a traffic class, and the plug-in may tell a profiler what it does. See net_body.h. */
#include "transport/plugin/net_abi.h"

#define VERSION 10
#define TABLE rcclx_net_v10
#define DEVICE rcclx_device_v10
#define INTEGER size_t
#define MEMORY_INTEGER size_t
#define OFFLOAD(d) (d).offload
#define MAX_BYTES(d) (d).max_p2p
#define INIT T->init(rcclx_library_log, rcclx_plugin_no_events)
#define LISTEN T->listen(dev, handle, comm)
#define CONNECT T->connect(dev, &(rcclx_abi_config){ -1 }, handle, comm, &(rcclx_abi_offload *){ NULL })
#define ACCEPT T->accept(listen, comm, &(rcclx_abi_offload *){ NULL })
#define SEND T->send(comm, data, nbytes, tag, mr, NULL, request)
#define RECV T->recv(comm, n, data, sizes, tags, mrs, (void *[RCCLX_PLUGIN_GROUP]){ NULL }, request)
#include "transport/plugin/net_body.h"
