/* Version 9 (NCCL 2.24): messages, too, and devices say how large they may be. See net_body.h. */
#include "transport/plugin/net_abi.h"

#define VERSION 9
#define TABLE rcclx_net_v9
#define DEVICE rcclx_device_v9
#define INTEGER size_t
#define MEMORY_INTEGER size_t
#define OFFLOAD(d) (d).offload
#define MAX_BYTES(d) (d).max_p2p
#define INIT T->init(rcclx_library_log)
#define LISTEN T->listen(dev, handle, comm)
#define CONNECT T->connect(dev, handle, comm, &(rcclx_abi_offload *){ NULL })
#define ACCEPT T->accept(listen, comm, &(rcclx_abi_offload *){ NULL })
#define SEND T->send(comm, data, nbytes, tag, mr, request)
#define RECV T->recv(comm, n, data, sizes, tags, mrs, request)
#include "transport/plugin/net_body.h"
