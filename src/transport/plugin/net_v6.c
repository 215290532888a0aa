/* Version 6 (NCCL 2.13): sizes are int, eight requests a connection, every one is of the host. See net_body.h. */
#include "transport/plugin/net_abi.h"

#define VERSION 6
#define TABLE rcclx_net_v6
#define DEVICE rcclx_device_v6
#define INTEGER int
#define MEMORY_INTEGER int
#define OFFLOAD(d) 0
#define MAX_BYTES(d) ((size_t)1 << 30)
#define INIT T->init(rcclx_library_log)
#define LISTEN T->listen(dev, handle, comm)
#define CONNECT T->connect(dev, handle, comm)
#define ACCEPT T->accept(listen, comm)
#define SEND T->send(comm, data, nbytes, tag, mr, request)
#define RECV T->recv(comm, n, data, sizes, tags, mrs, request)
#include "transport/plugin/net_body.h"
