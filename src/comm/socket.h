#ifndef RCCLX_COMM_SOCKET_H
#define RCCLX_COMM_SOCKET_H

/* Private to comm/: sockets for the bootstrap. */
#include "base/status.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

typedef union {
    struct sockaddr         any;
    struct sockaddr_in      v4;
    struct sockaddr_in6     v6;
    struct sockaddr_storage room;
} rcclx_address;

socklen_t rcclx_address_size(const rcclx_address *a);
bool      rcclx_address_is_loopback(const rcclx_address *a);
void      rcclx_address_text(const rcclx_address *a, char *text, size_t n);

/* The address to be found at: the best interface that NCCL_SOCKET_IFNAME and
 * NCCL_SOCKET_FAMILY allow. AGAIN: there is none (no network), which is fine on
 * one machine. ARGUMENT: the variable names something and nothing matches; the
 * text quotes it and lists what there is. The port is 0. */
rcclx_status rcclx_interface_pick(rcclx_address *a);

/* Of the interfaces with an IPv6 address that holds on their link alone, the turn-th, in a circle; 0: there is none. */
uint32_t rcclx_interface_scope(int turn);

/* Names of the interfaces that NCCL_SOCKET_IFNAME allows, between commas; if it is not set, of all but containers' bridges, or ""
 * where there are none of these. Errors as above. */
rcclx_status rcclx_interface_names(char *names, size_t n);

/* host:port or [v6]:port. */
rcclx_status rcclx_address_parse(rcclx_address *a, const char *host_port);

/* Listening sockets, non-blocking, closed on exec. listen_tcp takes a port of
 * RCCLX_PORT_RANGE if *a has none, and writes the one it got back. */
/* An address in use is tried again for `patience` seconds. */
rcclx_status rcclx_listen_tcp(rcclx_address *a, double patience, int *fd);
rcclx_status rcclx_listen_unix(const char *name, double patience, int *fd); /* abstract: no file */

/* A connected socket, or -1 with errno. */
int rcclx_connect_tcp(const rcclx_address *a, int timeout_ms);
int rcclx_connect_unix(const char *name);

/* Send all of buf, with file handles alongside (Unix only); 0, or -1 with errno.
 * Blocks at most timeout_ms. */
int rcclx_send_all(int fd, const void *buf, size_t n, const int *fds, int nfds, int timeout_ms);

/* Receive what is there, up to n bytes, and handles (room for *nfds; the number
 * that came is written back). Bytes, 0 at the end, -1 with errno (EAGAIN: nothing
 * yet; EMFILE: handles came that this process has no room for). */
ssize_t rcclx_recv_some(int fd, void *buf, size_t n, int *fds, int *nfds);

#endif
