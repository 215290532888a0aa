/* The root of a bootstrap: a thread that gathers the ranks and hands out the
 * shared memory.
 *
 *   rank 0 --hello--> +------+ --welcome, handles--> rank 0
 *   rank 1 --hello--> | root | --welcome, handles--> rank 1
 *   rank 2 --hello--> +------+ --welcome, handles--> rank 2      2n small messages
 *
 * Ranks of several machines get no handles; they go on to a root of their machine (the
 * same code), come back with a card each (where their network's end is), and get all cards.
 *
 * A connection that does not know the id's token within ten seconds (one, when all places
 * are taken) is closed and does no harm. When a rank contradicts another, goes away again, or does not
 * come before the deadline, everyone who came is told which, and so is who comes
 * in the next seconds. */
#include "comm/root.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MAX_GUESTS = RCCLX_MAX_RANKS + 192, STRANGER_NS = 1000000000, LINGER_NS = 2000000000, SEND_MS = 5000 };

typedef struct {
    int         fd, handle, nbytes; /* handle: the arena's, -1 none */
    bool        heard, known;       /* its hello is here; and it is one of the ranks */
    uint64_t    since;
    rcclx_hello hello;
} guest;

typedef struct {
    uint64_t token[2];
    int      tcp, local;
    uint64_t deadline;
    bool     off;       /* the meeting: whoever comes now is told why */
    int      nranks, narrived, team;
    int      of_rank[RCCLX_MAX_RANKS]; /* guest + 1 */
    guest    guests[MAX_GUESTS];
    int      nguests;
    rcclx_welcome welcome;
} root;

static void drop(root *r, int g)
{
    guest *x = &r->guests[g];

    close(x->fd);
    if (x->handle >= 0)
        close(x->handle);
    if (x->known)
        r->narrived--, r->of_rank[x->hello.me.rank] = 0;
    *x = r->guests[--r->nguests];
    if (g < r->nguests && x->known)
        r->of_rank[x->hello.me.rank] = g + 1;
}

/* Tell every rank that was heard why there will be no communicator.
 * The ranks of this process come last: its end would be the end of the root. */
static void refuse(root *r, rcclx_status s)
{
    r->welcome.status = (int32_t)s;
    for (int own = 0; own < 2; own++)
        for (const guest *x = r->guests; x < r->guests + r->nguests; x++)
            if (x->heard && (x->hello.me.pid == (int32_t)getpid()) == own)
                rcclx_send_all(x->fd, &r->welcome, rcclx_welcome_bytes(&r->welcome), NULL, 0, SEND_MS);
}

static void missing(const root *r, char *text, size_t n)
{
    size_t at = 0;

    *text = 0;
    for (int i = 0; i < r->nranks && at < n; i++)
        if (!r->of_rank[i])
            at += (size_t)snprintf(text + at, n - at, "%s%d", at ? ", " : "", i);
}

/* A complete hello: false when the meeting is off. */
static bool admit(root *r, int g)
{
    guest *x = &r->guests[g];
    const rcclx_hello *h = &x->hello;
    char *text = r->welcome.text;
    const size_t n = sizeof(r->welcome.text);
    const int rank = h->me.rank;

    x->heard = true;
    if (r->off)
        return false;
    *text = 0;
    if (h->version != RCCLX_SEGMENT_VERSION)
        snprintf(text, n, "rank %d (pid %d) runs another version of this library (%d, not %d); load the same on all ranks (see "
                 "LD_PRELOAD, LD_LIBRARY_PATH, ldd)", rank, h->me.pid, h->version, (int)RCCLX_SEGMENT_VERSION);
    else if (h->nranks < 1 || h->nranks > RCCLX_MAX_RANKS || rank < 0 || rank >= h->nranks)
        snprintf(text, n, "rank %d of %d is impossible", rank, h->nranks);
    else if (r->nranks && h->nranks != r->nranks)
        snprintf(text, n, "rank %d (pid %d) expects %d ranks, but others expect %d; pass the same nranks everywhere", rank,
                 h->me.pid, h->nranks, r->nranks);
    else if (r->of_rank[rank])
        snprintf(text, n, "two processes are rank %d (pids %d and %d); every rank must come once", rank,
                 r->guests[r->of_rank[rank] - 1].hello.me.pid, h->me.pid);
    else if (h->team < h->nranks || h->team > RCCLX_MAX_RANKS || (r->nranks && h->team != r->team))
        snprintf(text, n, "rank %d speaks of a communicator of %d ranks, others of %d", rank, h->team, r->team);
    if (*text) {
        refuse(r, RCCLX_USAGE);
        return false;
    }
    r->nranks = h->nranks;
    r->team = h->team;
    x->known = true;
    r->of_rank[rank] = g + 1; /* cppcheck-suppress negativeIndex ; such a rank is refused above */
    r->narrived++;
    return true;
}

/* The stranger who has been here longest makes room, but not before it had time to say its
 * name: a rank may just have come. False: nobody can go yet. */
static bool make_room(root *r)
{
    int oldest = -1;

    for (int g = 0; g < r->nguests; g++)
        if (!r->guests[g].known && (oldest < 0 || r->guests[g].since < r->guests[oldest].since))
            oldest = g;
    if (oldest < 0 || rcclx_clock_ns() - r->guests[oldest].since < STRANGER_NS)
        return false;
    drop(r, oldest);
    return true;
}

/* Who finds no place waits at the door, in the listener's queue. */
static void greet(root *r, int listener)
{
    for (int fd; (r->nguests < MAX_GUESTS || make_room(r)) &&
                 (fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0;)
        r->guests[r->nguests++] = (guest){ .fd = fd, .handle = -1, .since = rcclx_clock_ns() };
}

/* Bytes of a guest. 0: still here; 1: it is to be dropped; -1: the meeting is off. */
static int listen_to(root *r, int g)
{
    guest *x = &r->guests[g];
    int handle = -1, nhandles = 1;
    char rest[64];
    const bool full = x->known;
    const ssize_t k = rcclx_recv_some(x->fd, full ? rest : (char *)&x->hello + x->nbytes,
                                      full ? sizeof(rest) : sizeof(x->hello) - (size_t)x->nbytes, &handle, &nhandles);

    if (nhandles == 1) {
        if (x->handle >= 0)
            close(x->handle);
        x->handle = handle;
    }
    if (k < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (k <= 0 && full && !r->off) {
        snprintf(r->welcome.text, sizeof(r->welcome.text), "rank %d (pid %d) went away while the ranks were meeting",
                 x->hello.me.rank, x->hello.me.pid);
        drop(r, g);
        refuse(r, RCCLX_PEER_LOST);
        return -1;
    }
    if (k <= 0)
        return 1;
    if (full)
        return 0;
    x->nbytes += (int)k;
    const size_t judge = offsetof(rcclx_hello, version);
    if ((size_t)x->nbytes >= judge && (x->hello.magic != RCCLX_HELLO_MAGIC || x->hello.token[0] != r->token[0] ||
                                       x->hello.token[1] != r->token[1]))
        return 1;
    if ((size_t)x->nbytes < sizeof(x->hello))
        return 0;
    if (admit(r, g))
        return 0;
    if (!r->off)
        return -1;
    rcclx_send_all(x->fd, &r->welcome, rcclx_welcome_bytes(&r->welcome), NULL, 0, SEND_MS);
    return 1;
}

/* Those that came by TCP fetch the handles from this process: stay until each says
 * that it has them. Who goes without a word has failed, and cannot tell the others,
 * who would wait for it. */
static void hear_out(const root *r, int rank, int segment_fd)
{
    const guest *x = &r->guests[r->of_rank[rank] - 1];
    struct pollfd p = { .fd = x->fd, .events = POLLIN };
    rcclx_segment s;
    char word;

    if (poll(&p, 1, SEND_MS) != 1 || recv(x->fd, &word, 1, MSG_DONTWAIT) > 0 ||
        rcclx_segment_map(&s, segment_fd, r->token) != RCCLX_OK)
        return;
    rcclx_ident *id = &rcclx_segment_area(&s, rank)->ident;
    uint32_t absent = RCCLX_RANK_ABSENT;
    snprintf(id->text, sizeof(id->text), "rank %d (pid %d) went before it had the shared memory: it has ended, or it has no room "
             "for file handles (ulimit -n)", rank, x->hello.me.pid);
    atomic_compare_exchange_strong(&id->state, &absent, RCCLX_RANK_UNFIT);
    rcclx_segment_unmap(&s);
}

/* A card, at the latest at the deadline. */
static bool take_card(const root *r, int rank, rcclx_card *card)
{
    const int fd = r->guests[r->of_rank[rank] - 1].fd;

    for (size_t have = 0; have < sizeof(*card);) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        int none = 0;
        if (rcclx_clock_ns() > r->deadline)
            return false;
        const ssize_t k = poll(&p, 1, 200) == 1 ? rcclx_recv_some(fd, (char *)card + have, sizeof(*card) - have, NULL, &none) : -2;
        if (k == 0 || (k == -1 && errno != EAGAIN && errno != EINTR))
            return false;
        have += k > 0 ? (size_t)k : 0;
    }
    return card->rank == rank && card->status >= RCCLX_OK && card->status < RCCLX_STATUS_COUNT &&
           card->naddress <= sizeof(card->address) && card->nletter <= RCCLX_NET_LETTER;
}

/* What is wrong with a rank's card, as the deck's status and text. */
static void judge(const root *r, int rank, bool here, rcclx_deck *d)
{
    rcclx_card *c = &d->card[rank];
    const size_t n = sizeof(d->text);

    c->text[sizeof(c->text) - 1] = c->network[sizeof(c->network) - 1] = 0;
    if (!here) {
        d->status = RCCLX_PEER_LOST;
        snprintf(d->text, n, "rank %d (pid %d) did not say how its network finds it: it has ended, or its machine's ranks do not come "
                 "together", rank, r->guests[r->of_rank[rank] - 1].hello.me.pid);
    } else if (c->status != RCCLX_OK) {
        d->status = c->status;
        snprintf(d->text, n, "%s", c->text);
    } else if (strcmp(c->network, d->card[0].network) || c->nletter != d->card[0].nletter) {
        d->status = RCCLX_USAGE;
        snprintf(d->text, n, "rank 0 uses network %s and rank %d %s; set NCCL_NET and NCCL_NET_PLUGIN alike", d->card[0].network, rank, c->network);
    }
}

/* The ranks are on several machines: gather their cards, all of them (what is left unread when a connection is closed
 * takes the answer with it), and hand them to all. */
static void swap_cards(const root *r)
{
    rcclx_deck *d = RCCLX_NEW(rcclx_deck);

    if (!d)
        return; /* the connections close, which says enough */
    d->magic = RCCLX_HELLO_MAGIC;
    d->nranks = r->nranks;
    for (int i = 0; i < r->nranks; i++) {
        const bool here = take_card(r, i, &d->card[i]);
        if (d->status == RCCLX_OK)
            judge(r, i, here, d);
    }
    /* the ranks of this process come last: its end would be the end of the root */
    int fds[RCCLX_MAX_RANKS], order[RCCLX_MAX_RANKS], n = 0;
    for (int own = 0; own < 2; own++)
        for (int i = 0; i < r->nranks; i++)
            if ((r->guests[r->of_rank[i] - 1].hello.me.pid == (int32_t)getpid()) == own)
                order[n++] = i;
    for (int i = 0; i < n; i++) {
        fds[order[i]] = r->guests[r->of_rank[order[i]] - 1].fd;
        rcclx_send_all(fds[order[i]], d, rcclx_deck_bytes(r->nranks), NULL, 0, SEND_MS);
    }
    if (d->status == RCCLX_OK && d->card[0].nletter)
        rcclx_letters_carry(fds, order, n, d->card[0].nletter, r->deadline);
    rcclx_mem_free(d);
}

static bool on_one_machine(const root *r)
{
    for (int i = 1; i < r->nranks; i++)
        if (r->guests[r->of_rank[i] - 1].hello.me.host != r->guests[r->of_rank[0] - 1].hello.me.host)
            return false;
    return true;
}

/* How many there are of what one number of a hello tells apart, among the ranks before `end`. */
static int kinds(const root *r, int end, size_t offset)
{
    int n = 0;

    for (int i = 0; i < end; i++) {
        const char *mine = (const char *)&r->guests[r->of_rank[i] - 1].hello.me + offset;
        int k = 0;
        while (k < i && memcmp((const char *)&r->guests[r->of_rank[k] - 1].hello.me + offset, mine, sizeof(uint64_t)))
            k++;
        n += k == i;
    }
    return n;
}

static void welcome_far(root *r)
{
    rcclx_welcome *w = &r->welcome;
    const int machines = kinds(r, r->nranks, offsetof(rcclx_arrival, host));

    if (machines > RCCLX_MAX_NODES) {
        snprintf(w->text, sizeof(w->text), "the %d ranks are on %d machines; a communicator may have %d", r->nranks, machines, RCCLX_MAX_NODES);
        refuse(r, RCCLX_UNSUPPORTED);
        return;
    }
    w->nranks = r->nranks;
    w->segment_fd = -1;
    for (int i = 0; i < r->nranks; i++)
        w->peer[i].who = r->guests[r->of_rank[i] - 1].hello.me;
    for (int i = 0; i < r->nranks; i++)
        rcclx_send_all(r->guests[r->of_rank[i] - 1].fd, w, rcclx_welcome_bytes(w), NULL, 0, SEND_MS);
    swap_cards(r);
}

static void serve(root *r)
{
    rcclx_welcome *w = &r->welcome;
    int handles[1 + RCCLX_MAX_PROCESSES], n = 1;

    if (!on_one_machine(r)) {
        welcome_far(r);
        return;
    }
    const int processes = kinds(r, r->nranks, offsetof(rcclx_arrival, key));
    if (processes > RCCLX_MAX_PROCESSES) {
        snprintf(w->text, sizeof(w->text), "%d processes of one machine are in one communicator; there may be %d", processes,
                 RCCLX_MAX_PROCESSES);
        refuse(r, RCCLX_UNSUPPORTED);
        return;
    }
    w->status = (int32_t)rcclx_segment_create(r->nranks, r->team, r->token, &handles[0]);
    if (w->status != RCCLX_OK) {
        snprintf(w->text, sizeof(w->text), "%s", rcclx_last_error());
        refuse(r, (rcclx_status)w->status);
        return;
    }
    w->nranks = r->nranks;
    w->root_pid = (int32_t)getpid();
    w->segment_fd = handles[0];
    for (int i = 0; i < r->nranks; i++) {
        const guest *x = &r->guests[r->of_rank[i] - 1];
        w->peer[i].who = x->hello.me;
        w->peer[i].handle = -1;
        for (int k = 0; k < i; k++)
            if (w->peer[k].who.key == w->peer[i].who.key)
                w->peer[i].handle = w->peer[k].handle;
        if (w->peer[i].handle < 0 && x->handle >= 0 && n <= RCCLX_MAX_PROCESSES) {
            w->peer[i].handle = n;
            handles[n++] = x->handle;
        }
    }
    for (int i = 0; i < r->nranks; i++) {
        struct sockaddr_storage a;
        socklen_t size = sizeof(a);
        const int fd = r->guests[r->of_rank[i] - 1].fd;
        const bool local = getsockname(fd, (struct sockaddr *)&a, &size) == 0 && a.ss_family == AF_UNIX;
        rcclx_send_all(fd, w, rcclx_welcome_bytes(w), handles, local ? n : 0, SEND_MS);
    }
    for (int i = 0; i < r->nranks; i++)
        hear_out(r, i, handles[0]);
    close(handles[0]);
}

/* One round of listening; false when the meeting is over. */
static bool round_of(root *r)
{
    struct pollfd p[MAX_GUESTS + 2] = { 0 };
    const int n = r->nguests;

    p[0] = (struct pollfd){ .fd = n < MAX_GUESTS ? r->tcp : -1, .events = POLLIN };
    p[1] = (struct pollfd){ .fd = n < MAX_GUESTS ? r->local : -1, .events = POLLIN };
    for (int g = 0; g < n; g++)
        p[g + 2] = (struct pollfd){ .fd = r->guests[g].fd, .events = POLLIN };
    poll(p, (nfds_t)n + 2, 200);
    const uint64_t now = rcclx_clock_ns();
    for (int g = n - 1; g >= 0; g--) {
        int what = p[g + 2].revents ? listen_to(r, g) : 0;
        if (what < 0) {
            r->off = true;
            r->deadline = now + LINGER_NS;
            return true;
        }
        if (what || (!r->guests[g].known && now - r->guests[g].since > STRANGER_NS * 10ull))
            drop(r, g);
    }
    if (p[0].revents || n == MAX_GUESTS)
        greet(r, r->tcp);
    if (p[1].revents || n == MAX_GUESTS)
        greet(r, r->local);
    if (!r->off && r->nranks && r->narrived == r->nranks) {
        serve(r);
        return false;
    }
    if (now < r->deadline)
        return true;
    if (!r->off && r->narrived) {
        char list[512];
        missing(r, list, sizeof(list));
        snprintf(r->welcome.text, sizeof(r->welcome.text), "%d of %d ranks came before the deadline; missing: rank %s; start "
                 "them all, or raise RCCLX_INIT_TIMEOUT", r->narrived, r->nranks, list);
        refuse(r, RCCLX_TIMEOUT);
    }
    return false;
}

static void *work(void *arg)
{
    root *r = arg;

    rcclx_thread_name("rcclx root");
    while (round_of(r))
        ;
    while (r->nguests)
        drop(r, r->nguests - 1);
    if (r->tcp >= 0)
        close(r->tcp);
    if (r->local >= 0)
        close(r->local);
    rcclx_mem_free(r);
    return NULL;
}

rcclx_status rcclx_root_start(const uint64_t token[2], int tcp, int local, double timeout)
{
    root *r = RCCLX_NEW(root);
    pthread_t t;
    pthread_attr_t attr;
    int e = ENOMEM;

    if (r) {
        memcpy(r->token, token, sizeof(r->token));
        r->tcp = tcp;
        r->local = local;
        r->welcome.magic = RCCLX_HELLO_MAGIC;
        r->deadline = rcclx_clock_ns() + (uint64_t)(timeout * 1e9);
        pthread_attr_init(&attr);
        pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
        e = pthread_create(&t, &attr, work, r);
        pthread_attr_destroy(&attr);
        if (!e)
            return RCCLX_OK;
    }
    rcclx_mem_free(r);
    if (tcp >= 0)
        close(tcp);
    if (local >= 0)
        close(local);
    return RCCLX_FAIL(RCCLX_SYSTEM, "the bootstrap's thread cannot be started: %s", strerror(e));
}
