#ifndef RCCLX_TOOL_NETWORK_H
#define RCCLX_TOOL_NETWORK_H

#include "base/json.h"

/* `rcclx info`: the network between machines and the plug-ins in force. */
void tool_network_print(void);
void tool_network_json(rcclx_json *j);

#endif
