/* Where everything lies in the tables of network plug-ins, version by version: what plug-ins that exist were built with
 * (the headers that NCCL publishes for them), and what src/transport/plugin/net_abi.h must never leave. */
#include "check.h"

#include "transport/plugin/net_abi.h"

#define AT(type, field, bytes)                                                                                     \
    CHECK(offsetof(type, field) == (bytes), #type "." #field " lies at %zu, not at %d", offsetof(type, field), bytes)
#define CALL(type, field, nth) AT(type, field, 8 * (nth))
#define SIZE(type, bytes) CHECK(sizeof(type) == (bytes), #type " has %zu bytes, not %d", sizeof(type), bytes)

TEST(devices)
{
    AT(rcclx_device_v6, name, 0);
    AT(rcclx_device_v6, pci, 8);
    AT(rcclx_device_v6, guid, 16);
    AT(rcclx_device_v6, pointers, 24);
    AT(rcclx_device_v6, speed, 28);
    AT(rcclx_device_v6, port, 32);
    AT(rcclx_device_v6, latency, 36);
    AT(rcclx_device_v6, max_comms, 40);
    AT(rcclx_device_v6, max_recvs, 44);
    SIZE(rcclx_device_v6, 48);
    AT(rcclx_device_v7, name, 0);
    AT(rcclx_device_v7, pci, 8);
    AT(rcclx_device_v7, guid, 16);
    AT(rcclx_device_v7, pointers, 24);
    AT(rcclx_device_v7, speed, 28);
    AT(rcclx_device_v7, port, 32);
    AT(rcclx_device_v7, latency, 36);
    AT(rcclx_device_v7, max_comms, 40);
    AT(rcclx_device_v7, max_recvs, 44);
    AT(rcclx_device_v7, offload, 48);
    AT(rcclx_device_v7, offload_version, 52);
    SIZE(rcclx_device_v7, 56);
    AT(rcclx_device_v8, name, 0);
    AT(rcclx_device_v8, pci, 8);
    AT(rcclx_device_v8, guid, 16);
    AT(rcclx_device_v8, pointers, 24);
    AT(rcclx_device_v8, reg_is_global, 28);
    AT(rcclx_device_v8, speed, 32);
    AT(rcclx_device_v8, port, 36);
    AT(rcclx_device_v8, latency, 40);
    AT(rcclx_device_v8, max_comms, 44);
    AT(rcclx_device_v8, max_recvs, 48);
    AT(rcclx_device_v8, offload, 52);
    AT(rcclx_device_v8, offload_version, 56);
    SIZE(rcclx_device_v8, 64);
    AT(rcclx_device_v9, name, 0);
    AT(rcclx_device_v9, pci, 8);
    AT(rcclx_device_v9, guid, 16);
    AT(rcclx_device_v9, pointers, 24);
    AT(rcclx_device_v9, reg_is_global, 28);
    AT(rcclx_device_v9, force_flush, 32);
    AT(rcclx_device_v9, speed, 36);
    AT(rcclx_device_v9, port, 40);
    AT(rcclx_device_v9, latency, 44);
    AT(rcclx_device_v9, max_comms, 48);
    AT(rcclx_device_v9, max_recvs, 52);
    AT(rcclx_device_v9, offload, 56);
    AT(rcclx_device_v9, offload_version, 60);
    AT(rcclx_device_v9, parts, 64);
    AT(rcclx_device_v9, max_p2p, 88);
    AT(rcclx_device_v9, max_coll, 96);
    SIZE(rcclx_device_v9, 104);
    AT(rcclx_device_v10, name, 0);
    AT(rcclx_device_v10, pci, 8);
    AT(rcclx_device_v10, guid, 16);
    AT(rcclx_device_v10, pointers, 24);
    AT(rcclx_device_v10, reg_is_global, 28);
    AT(rcclx_device_v10, force_flush, 32);
    AT(rcclx_device_v10, speed, 36);
    AT(rcclx_device_v10, port, 40);
    AT(rcclx_device_v10, latency, 44);
    AT(rcclx_device_v10, max_comms, 48);
    AT(rcclx_device_v10, max_recvs, 52);
    AT(rcclx_device_v10, offload, 56);
    AT(rcclx_device_v10, offload_version, 60);
    AT(rcclx_device_v10, parts, 64);
    AT(rcclx_device_v10, max_p2p, 88);
    AT(rcclx_device_v10, max_coll, 96);
    SIZE(rcclx_device_v10, 104);
    AT(rcclx_device_v11, name, 0);
    AT(rcclx_device_v11, pci, 8);
    AT(rcclx_device_v11, guid, 16);
    AT(rcclx_device_v11, pointers, 24);
    AT(rcclx_device_v11, reg_is_global, 28);
    AT(rcclx_device_v11, force_flush, 32);
    AT(rcclx_device_v11, speed, 36);
    AT(rcclx_device_v11, port, 40);
    AT(rcclx_device_v11, latency, 44);
    AT(rcclx_device_v11, max_comms, 48);
    AT(rcclx_device_v11, max_recvs, 52);
    AT(rcclx_device_v11, offload, 56);
    AT(rcclx_device_v11, offload_version, 60);
    AT(rcclx_device_v11, parts, 64);
    AT(rcclx_device_v11, max_p2p, 88);
    AT(rcclx_device_v11, max_coll, 96);
    AT(rcclx_device_v11, max_requests, 104);
    SIZE(rcclx_device_v11, 112);
    AT(rcclx_device_v12, name, 0);
    AT(rcclx_device_v12, pci, 8);
    AT(rcclx_device_v12, guid, 16);
    AT(rcclx_device_v12, pointers, 24);
    AT(rcclx_device_v12, reg_is_global, 28);
    AT(rcclx_device_v12, force_flush, 32);
    AT(rcclx_device_v12, speed, 36);
    AT(rcclx_device_v12, port, 40);
    AT(rcclx_device_v12, latency, 44);
    AT(rcclx_device_v12, max_comms, 48);
    AT(rcclx_device_v12, max_recvs, 52);
    AT(rcclx_device_v12, offload, 56);
    AT(rcclx_device_v12, offload_version, 60);
    AT(rcclx_device_v12, parts, 64);
    AT(rcclx_device_v12, max_p2p, 104);
    AT(rcclx_device_v12, max_coll, 112);
    AT(rcclx_device_v12, max_requests, 120);
    AT(rcclx_device_v12, rail, 124);
    AT(rcclx_device_v12, plane, 126);
    SIZE(rcclx_device_v12, 128);
}

#define CALLS_OF_ALL(type)                                                                                        \
    CALL(type, name, 0);                                                                                          \
    CALL(type, init, 1);                                                                                          \
    CALL(type, devices, 2);                                                                                       \
    CALL(type, device, 3);                                                                                        \
    CALL(type, listen, 4);                                                                                        \
    CALL(type, connect, 5);                                                                                       \
    CALL(type, accept, 6);                                                                                        \
    CALL(type, reg, 7);                                                                                           \
    CALL(type, reg_dmabuf, 8);                                                                                    \
    CALL(type, dereg, 9);                                                                                         \
    CALL(type, send, 10);                                                                                         \
    CALL(type, recv, 11);                                                                                         \
    CALL(type, flush, 12);                                                                                        \
    CALL(type, test, 13);                                                                                         \
    CALL(type, close_send, 14);                                                                                   \
    CALL(type, close_recv, 15);                                                                                   \
    CALL(type, close_listen, 16)

TEST(calls)
{
    CALLS_OF_ALL(rcclx_net_v6);
    CALLS_OF_ALL(rcclx_net_v7);
    CALLS_OF_ALL(rcclx_net_v8);
    CALLS_OF_ALL(rcclx_net_v9);
    CALLS_OF_ALL(rcclx_net_v10);
    CALLS_OF_ALL(rcclx_net_v11);
    CALLS_OF_ALL(rcclx_net_v12);
    CALL(rcclx_net_v7, device_mr, 17);
    CALL(rcclx_net_v7, consumed, 18);
    CALL(rcclx_net_v8, device_mr, 17);
    CALL(rcclx_net_v8, consumed, 18);
    CALL(rcclx_net_v9, device_mr, 17);
    CALL(rcclx_net_v9, consumed, 18);
    CALL(rcclx_net_v10, device_mr, 17);
    CALL(rcclx_net_v10, consumed, 18);
    CALL(rcclx_net_v11, device_mr, 17);
    CALL(rcclx_net_v11, consumed, 18);
    CALL(rcclx_net_v12, device_mr, 17);
    CALL(rcclx_net_v12, consumed, 18);
    CALL(rcclx_net_v9, virtual_device, 19);
    CALL(rcclx_net_v10, virtual_device, 19);
    CALL(rcclx_net_v11, virtual_device, 19);
    CALL(rcclx_net_v12, virtual_device, 19);
    CALL(rcclx_net_v11, finalize, 20);
    CALL(rcclx_net_v11, attributes, 21);
    CALL(rcclx_net_v12, finalize, 20);
    CALL(rcclx_net_v12, attributes, 21);
    SIZE(rcclx_net_v6, 136);
    SIZE(rcclx_net_v7, 152);
    SIZE(rcclx_net_v8, 152);
    SIZE(rcclx_net_v9, 160);
    SIZE(rcclx_net_v10, 160);
    SIZE(rcclx_net_v11, 176);
    SIZE(rcclx_net_v12, 176);
    SIZE(rcclx_abi_offload, 32);
    SIZE(rcclx_abi_config, 4);
}
