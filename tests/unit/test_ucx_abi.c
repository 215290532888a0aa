/* The structures of libucp.so.0 that src/transport/ucx_abi.h writes down are those of UCX's own headers, where these are
 * installed. */
#include "check.h"

#include "transport/ucx_abi.h"

#if defined(__has_include)
#if __has_include(<ucp/api/ucp.h>)
#define HAVE_UCX_HEADERS 1
#endif
#endif

#ifdef HAVE_UCX_HEADERS
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#include <ucp/api/ucp.h>
#pragma GCC diagnostic pop

#define SAME(ours, theirs, field, their_field)                                                                    \
    CHECK(offsetof(ours, field) == offsetof(theirs, their_field), #ours "." #field " lies at %zu, in UCX at %zu",  \
          offsetof(ours, field), offsetof(theirs, their_field))
#define EQUAL(ours, theirs) CHECK((long long)(ours) == (long long)(theirs), #ours " is %lld, in UCX %lld",         \
                                  (long long)(ours), (long long)(theirs))

TEST(structures)
{
    SAME(ucx_params, ucp_params_t, features, features);
    SAME(ucx_params, ucp_params_t, mt_workers_shared, mt_workers_shared);
    SAME(ucx_params, ucp_params_t, name, name);
    SAME(ucx_worker_params, ucp_worker_params_t, thread_mode, thread_mode);
    SAME(ucx_worker_params, ucp_worker_params_t, events, events);
    SAME(ucx_worker_params, ucp_worker_params_t, am_alignment, am_alignment);
    SAME(ucx_worker_attr, ucp_worker_attr_t, address_flags, address_flags);
    SAME(ucx_worker_attr, ucp_worker_attr_t, address_length, address_length);
    SAME(ucx_worker_attr, ucp_worker_attr_t, max_am_header, max_am_header);
    SAME(ucx_worker_attr, ucp_worker_attr_t, name, name);
    SAME(ucx_ep_params, ucp_ep_params_t, address, address);
    SAME(ucx_ep_params, ucp_ep_params_t, err_mode, err_mode);
    SAME(ucx_ep_params, ucp_ep_params_t, err_handler, err_handler);
    SAME(ucx_ep_params, ucp_ep_params_t, sockaddr, sockaddr);
    SAME(ucx_ep_params, ucp_ep_params_t, name, name);
    SAME(ucx_am_handler, ucp_am_handler_param_t, cb, cb);
    SAME(ucx_am_handler, ucp_am_handler_param_t, arg, arg);
    SAME(ucx_am_recv_param, ucp_am_recv_param_t, mask, recv_attr);
    SAME(ucx_request, ucp_request_param_t, flags, flags);
    SAME(ucx_request, ucp_request_param_t, cb, cb);
    SAME(ucx_request, ucp_request_param_t, datatype, datatype);
    SAME(ucx_request, ucp_request_param_t, user_data, user_data);
    SAME(ucx_request, ucp_request_param_t, memory_type, memory_type);
    EQUAL(sizeof(ucs_status_t), sizeof(signed char));
    CHECK(sizeof(ucx_params) >= sizeof(ucp_params_t) || UCP_API_VERSION > UCP_VERSION(1, 13), "ucp_params_t has grown");
}

TEST(numbers)
{
    EQUAL(UCX_PARAM_FEATURES, UCP_PARAM_FIELD_FEATURES);
    EQUAL(UCX_PARAM_MT_SHARED, UCP_PARAM_FIELD_MT_WORKERS_SHARED);
    EQUAL(UCX_FEATURE_AM, UCP_FEATURE_AM);
    EQUAL(UCX_FEATURE_WAKEUP, UCP_FEATURE_WAKEUP);
    EQUAL(UCX_WORKER_PARAM_THREAD_MODE, UCP_WORKER_PARAM_FIELD_THREAD_MODE);
    EQUAL(UCX_THREAD_SERIALIZED, UCS_THREAD_MODE_SERIALIZED);
    EQUAL(UCX_WORKER_ATTR_ADDRESS, UCP_WORKER_ATTR_FIELD_ADDRESS);
    EQUAL(UCX_WORKER_ATTR_ADDRESS_FLAGS, UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS);
    EQUAL(UCX_ADDRESS_NET_ONLY, UCP_WORKER_ADDRESS_FLAG_NET_ONLY);
    EQUAL(UCX_EP_REMOTE_ADDRESS, UCP_EP_PARAM_FIELD_REMOTE_ADDRESS);
    EQUAL(UCX_EP_ERR_MODE, UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE);
    EQUAL(UCX_EP_ERR_HANDLER, UCP_EP_PARAM_FIELD_ERR_HANDLER);
    EQUAL(UCX_ERR_MODE_PEER, UCP_ERR_HANDLING_MODE_PEER);
    EQUAL(UCX_AM_RECV_RNDV, UCP_AM_RECV_ATTR_FLAG_RNDV);
    EQUAL(UCX_AM_HANDLER_ID, UCP_AM_HANDLER_PARAM_FIELD_ID);
    EQUAL(UCX_AM_HANDLER_CB, UCP_AM_HANDLER_PARAM_FIELD_CB);
    EQUAL(UCX_AM_HANDLER_ARG, UCP_AM_HANDLER_PARAM_FIELD_ARG);
    EQUAL(UCX_OP_CALLBACK, UCP_OP_ATTR_FIELD_CALLBACK);
    EQUAL(UCX_OP_USER_DATA, UCP_OP_ATTR_FIELD_USER_DATA);
    EQUAL(UCX_OP_FLAGS, UCP_OP_ATTR_FIELD_FLAGS);
    EQUAL(UCX_EP_CLOSE_FORCE, UCP_EP_CLOSE_FLAG_FORCE);
    EQUAL(UCX_INPROGRESS, UCS_INPROGRESS);
    EQUAL(UCX_ERR_LAST, UCS_ERR_LAST);
}
#else
TEST(structures)
{
    SKIP("UCX's headers are not installed (libucx-dev)");
}
#endif
