/* The rows, best first, and the walk over them. */
#include "transport/transport.h"

#include "base/log.h"

extern const rcclx_transport rcclx_transport_pointer, rcclx_transport_arena, rcclx_transport_cma;

const rcclx_transport *const rcclx_transports[] = {
    &rcclx_transport_pointer,
    &rcclx_transport_arena,
    &rcclx_transport_cma,
    NULL,
};

void *rcclx_peer_map(const rcclx_peer *p, uint64_t where, bool in_arena, size_t nbytes)
{
    for (const rcclx_transport *const *t = rcclx_transports; *t; t++) {
        void *at = (*t)->map ? (*t)->map(p, where, in_arena, nbytes) : NULL;
        if (at)
            return at;
    }
    return NULL;
}

rcclx_status rcclx_peer_get(const rcclx_peer *p, void *dst, uint64_t where, size_t nbytes)
{
    for (const rcclx_transport *const *t = rcclx_transports; *t; t++)
        if ((*t)->get)
            return (*t)->get(p, dst, where, nbytes);
    return RCCLX_UNSUPPORTED;
}

rcclx_status rcclx_peer_put(const rcclx_peer *p, uint64_t where, const void *src, size_t nbytes)
{
    for (const rcclx_transport *const *t = rcclx_transports; *t; t++)
        if ((*t)->put)
            return (*t)->put(p, where, src, nbytes);
    return RCCLX_UNSUPPORTED;
}
