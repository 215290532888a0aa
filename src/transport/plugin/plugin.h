#ifndef RCCLX_TRANSPORT_PLUGIN_H
#define RCCLX_TRANSPORT_PLUGIN_H

#include "transport/net.h"

/* NCCL's network plug-ins, versions 6 to 12, as networks of ours (docs/howto/plugin.md).
 *
 *   NCCL_NET_PLUGIN=aws,/opt/x/libx.so     which libraries are asked, in this order; none: no one;
 *                                          not set: libnccl-net.so
 *   NCCL_NET=name                          the plug-in must be called so
 *
 * A library is loaded, and its plug-in tried (init, devices), when it is first asked. */

enum { RCCLX_PLUGIN_WORDS = 1024 };

/* The first plug-in that works and, if `name` is not "", is called so. NULL: there is none, and `why`
 * (RCCLX_PLUGIN_WORDS bytes) says of each library why not. id: the communicator's. */
const rcclx_network *rcclx_plugin_network_find(const char *name, uint64_t id, char *why);

/* What there is, for `rcclx info`: a line for each library; false: no more. */
bool rcclx_plugin_network_tell(int index, char *text, size_t n);

#endif
