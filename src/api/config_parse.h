#ifndef RCCLX_API_CONFIG_PARSE_H
#define RCCLX_API_CONFIG_PARSE_H

#include "base/status.h"
#include "comm/config.h"

/* Turn the ncclConfig_t a program passed, of any version of NCCL's header, into
 * settings. user NULL gives the defaults, or, with parent, a copy of the
 * parent's settings; the environment's overrides apply in every case. `call`
 * and `rank` name the caller in error texts. ARGUMENT: no magic, an impossible
 * size, a value out of range; *out is then unspecified. */
rcclx_status rcclx_config_parse(const char *call, int rank, const void *user, const rcclx_comm_config *parent,
                                rcclx_comm_config *out);

#endif
