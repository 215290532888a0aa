/* Version 8 (NCCL 2.20): registered memory may be larger than an int says. See net_body.h. */
#include "transport/plugin/net_abi.h"

#define VERSION 8
#define TABLE rcclx_net_v8
#define DEVICE rcclx_device_v8
#define INTEGER int
#define MEMORY_INTEGER size_t
#define OFFLOAD(d) (d).offload
#define MAX_BYTES(d) ((size_t)1 << 30)
#define INIT T->init(rcclx_library_log)
#define LISTEN T->listen(dev, handle, comm)
#define CONNECT T->connect(dev, handle, comm, &(rcclx_abi_offload *){ NULL })
#define ACCEPT T->accept(listen, comm, &(rcclx_abi_offload *){ NULL })
#define SEND T->send(comm, data, nbytes, tag, mr, request)
#define RECV T->recv(comm, n, data, sizes, tags, mrs, request)
#include "transport/plugin/net_body.h"
