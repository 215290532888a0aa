/* Version 11 (NCCL 2.28): a context for each communicator, which is handed back when that is done. See net_body.h. */
#include "transport/plugin/net_abi.h"

#define VERSION 11
#define TABLE rcclx_net_v11
#define DEVICE rcclx_device_v11
#define INTEGER size_t
#define MEMORY_INTEGER size_t
#define OFFLOAD(d) (d).offload
#define MAX_BYTES(d) (d).max_p2p
#define INIT T->init(context, id, &(rcclx_abi_config){ -1 }, rcclx_library_log, rcclx_plugin_no_events)
#define LISTEN T->listen(context, dev, handle, comm)
#define CONNECT T->connect(context, dev, handle, comm, &(rcclx_abi_offload *){ NULL })
#define ACCEPT T->accept(listen, comm, &(rcclx_abi_offload *){ NULL })
#define SEND T->send(comm, data, nbytes, tag, mr, NULL, request)
#define RECV T->recv(comm, n, data, sizes, tags, mrs, (void *[RCCLX_PLUGIN_GROUP]){ NULL }, request)
#define FINALIZE T->finalize ? T->finalize(context) : 0
#include "transport/plugin/net_body.h"
