#ifndef RCCLX_TRANSPORT_UCX_ABI_H
#define RCCLX_TRANSPORT_UCX_ABI_H

#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* What net_ucx.c needs of libucp.so.0, written down so that building needs no UCX: the
 * interface of 1.10 and later, which has kept these layouts (a test compares them with
 * UCX's own headers where those are installed). A mask in each struct says which fields
 * are filled in; later versions only append. */

typedef struct {
    uint64_t    mask, features;
    size_t      request_size;
    void      (*request_init)(void *), (*request_cleanup)(void *);
    uint64_t    tag_sender_mask;
    int         mt_workers_shared;
    size_t      estimated_num_eps, estimated_num_ppn;
    const char *name;
} ucx_params;
enum { UCX_PARAM_FEATURES = 1 << 0, UCX_PARAM_MT_SHARED = 1 << 5, UCX_PARAM_EPS = 1 << 6 };
enum { UCX_FEATURE_WAKEUP = 1 << 4, UCX_FEATURE_AM = 1 << 6 };

typedef struct {
    uint64_t    mask;
    int         thread_mode;
    struct { unsigned long bits[1024 / (8 * sizeof(long))]; } cpus;
    unsigned    events;
    void       *user_data;
    int         event_fd;
    uint64_t    flags;
    const char *name;
    size_t      am_alignment;
    uint64_t    client_id;
} ucx_worker_params;
enum { UCX_WORKER_PARAM_THREAD_MODE = 1 << 0, UCX_THREAD_SERIALIZED = 1 };

typedef struct {
    uint64_t mask;
    int      thread_mode;
    uint32_t address_flags;
    void    *address;
    size_t   address_length, max_am_header;
    char     name[32];
    size_t   max_debug_string;
} ucx_worker_attr;
enum { UCX_WORKER_ATTR_ADDRESS = 1 << 1, UCX_WORKER_ATTR_ADDRESS_FLAGS = 1 << 2, UCX_WORKER_ATTR_MAX_AM_HEADER = 1 << 3,
       UCX_ADDRESS_NET_ONLY = 1 << 0 };

typedef struct { void (*cb)(void *arg, void *ep, signed char status); void *arg; } ucx_err_handler;
typedef struct { const struct sockaddr *addr; socklen_t length; } ucx_sockaddr;
typedef struct {
    uint64_t        mask;
    const void     *address;
    int             err_mode;
    ucx_err_handler err_handler;
    void           *user_data;
    unsigned        flags;
    ucx_sockaddr    sockaddr;
    void           *conn_request;
    const char     *name;
    ucx_sockaddr    local_sockaddr;
} ucx_ep_params;
enum { UCX_EP_REMOTE_ADDRESS = 1 << 0, UCX_EP_ERR_MODE = 1 << 1, UCX_EP_ERR_HANDLER = 1 << 2, UCX_ERR_MODE_PEER = 1 };

typedef struct { uint64_t mask; void *reply_ep; } ucx_am_recv_param;
enum { UCX_AM_RECV_RNDV = 1 << 17 };
typedef signed char (*ucx_am_recv)(void *arg, const void *header, size_t nheader, void *data, size_t nbytes,
                                   const ucx_am_recv_param *param);
typedef struct {
    uint64_t    mask;
    unsigned    id;
    uint32_t    flags;
    ucx_am_recv cb;
    void       *arg;
} ucx_am_handler;
enum { UCX_AM_HANDLER_ID = 1 << 0, UCX_AM_HANDLER_CB = 1 << 2, UCX_AM_HANDLER_ARG = 1 << 3 };

typedef struct {
    uint32_t mask, flags;
    void    *request;
    union {
        void (*send)(void *request, signed char status, void *user_data);
        void (*recv_am)(void *request, signed char status, size_t nbytes, void *user_data);
    } cb;
    uint64_t datatype;
    void    *user_data, *reply_buffer;
    int      memory_type;
    void    *recv_info, *memh;
} ucx_request;
enum { UCX_OP_CALLBACK = 1 << 1, UCX_OP_USER_DATA = 1 << 2, UCX_OP_FLAGS = 1 << 4 };
enum { UCX_EP_CLOSE_FORCE = 1 << 0 };

enum { UCX_OK = 0, UCX_INPROGRESS = 1, UCX_ERR_NO_RESOURCE = -2, UCX_ERR_BUSY = -15, UCX_ERR_LAST = -100 };

#define UCX_ENTRIES(X)                                                                                            \
    X(void,        ucp_get_version,               (unsigned *, unsigned *, unsigned *))                           \
    X(signed char, ucp_config_read,               (const char *, const char *, void **))                         \
    X(signed char, ucp_config_modify,             (void *, const char *, const char *))                          \
    X(void,        ucp_config_release,            (void *))                                                      \
    X(signed char, ucp_init_version,              (unsigned, unsigned, const ucx_params *, const void *, void **)) \
    X(void,        ucp_cleanup,                   (void *))                                                      \
    X(signed char, ucp_worker_create,             (void *, const ucx_worker_params *, void **))                  \
    X(void,        ucp_worker_destroy,            (void *))                                                      \
    X(signed char, ucp_worker_query,              (void *, ucx_worker_attr *))                                   \
    X(void,        ucp_worker_release_address,    (void *, void *))                                              \
    X(unsigned,    ucp_worker_progress,           (void *))                                                      \
    X(signed char, ucp_worker_get_efd,            (void *, int *))                                               \
    X(signed char, ucp_worker_arm,                (void *))                                                      \
    X(signed char, ucp_worker_set_am_recv_handler, (void *, const ucx_am_handler *))                             \
    X(signed char, ucp_ep_create,                 (void *, const ucx_ep_params *, void **))                      \
    X(void *,      ucp_ep_close_nbx,              (void *, const ucx_request *))                                 \
    X(void *,      ucp_am_send_nbx, (void *, unsigned, const void *, size_t, const void *, size_t, const ucx_request *)) \
    X(void *,      ucp_am_recv_data_nbx,          (void *, void *, void *, size_t, const ucx_request *))         \
    X(signed char, ucp_request_check_status,      (void *))                                                      \
    X(void,        ucp_request_free,              (void *))                                                      \
    X(const char *, ucs_status_string,            (signed char))

#endif
