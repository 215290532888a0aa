/* Version 12 (NCCL 2.30): devices of up to eight parts, which know their rail and plane. See net_body.h. */
#include "transport/plugin/net_abi.h"

#define VERSION 12
#define TABLE rcclx_net_v12
#define DEVICE rcclx_device_v12
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
