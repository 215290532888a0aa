#ifndef RCCLX_TRANSPORT_TCP_MEET_H
#define RCCLX_TRANSPORT_TCP_MEET_H

/* How two ends of the TCP network (tcp.c) find each other. One listens, and hands out where;
 * the other connects and says who it is, with the listener's nonce, which strangers do not know. */
#include "base/status.h"

#include <stdint.h>

enum { RCCLX_TCP_PLACES = 24 };

typedef struct {
    uint16_t v6, prefix;  /* bits that a network's addresses have in common */
    uint8_t  bytes[16];
} rcclx_tcp_place;

/* Best places first. */
typedef struct {
    uint64_t        nonce[2];
    uint16_t        port, nplaces;
    rcclx_tcp_place places[RCCLX_TCP_PLACES];
} rcclx_tcp_address;

/* devices: names of interfaces, between commas, that may be used; "": any. */
rcclx_status rcclx_tcp_listen(const char *devices, rcclx_tcp_address *a, int *fd);

/* As rank `me`; SYSTEM with the reasons if none of the places answers. mine: to prefer networks that both are in. */
rcclx_status rcclx_tcp_connect(const rcclx_tcp_address *to, const rcclx_tcp_address *mine, int me, int *fd);

/* Who has come, a connection at a time: its handle and its rank; -1: nobody. */
int rcclx_tcp_accept(int listener, const rcclx_tcp_address *mine, int nranks, int *rank);

#endif
