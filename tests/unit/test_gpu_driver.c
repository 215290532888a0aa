/* The drivers of CUDA and HIP, against stand-ins for their libraries (standin/driver.c).
 * A process loads a driver once, so that every case is a process of its own. */
#include "check.h"

#include "base/log.h"
#include "base/mem.h"
#include "device/gpu_entry.h"
#include "unit/standin/standin.h"

#include <dlfcn.h>
#include <sys/socket.h>
#include <sys/time.h>

static char why[256];
static standin *seen;

static const char *path_of(const char *name)
{
    static char path[512];

    snprintf(path, sizeof(path), "%s/tests/standin/%s.so", check_build_dir(), name);
    return path;
}

/* A driver of this stand-in; NULL: why. */
static const rcclx_gpu *open_standin(const char *name)
{
    const rcclx_gpu *g = rcclx_gpu_open_at(name[0] == 'c' ? RCCLX_GPU_CUDA : RCCLX_GPU_HIP, path_of(name), why, sizeof(why));
    void *library = dlopen(path_of(name), RTLD_NOW | RTLD_NOLOAD);

    seen = library ? dlsym(library, "standin_state") : NULL;
    if (library)
        dlclose(library);
    return g;
}

/* Run a case in a process of its own. */
static int call(int rank, int n, void *fn)
{
    void (*run)(void);

    (void)rank;
    (void)n;
    memcpy(&run, fn, sizeof(run));
    run();
    return 0;
}

#define ALONE(name)                                                                                                          \
    static void alone_##name(void);                                                                                          \
    TEST(name)                                                                                                               \
    {                                                                                                                        \
        void (*run)(void) = alone_##name;                                                                                    \
        CHECK(run_ranks_as_processes(1, call, &run) == 0, "the process failed");                                             \
    }                                                                                                                        \
    static void alone_##name(void)

/* Every case that holds for both, and for HIP in three versions. */
static const struct { const char *name, *library, *version, *arch, *about; } drivers[] = {
    { "cuda 13", "cuda", "13000", "sm_90", "CUDA driver 13.0 (cuda.so)" },
    { "cuda 11", "cuda_old", "11040", "sm_90", "CUDA driver 11.4 (cuda_old.so)" },
    { "hip 5", "hip", "50221153", "gfx942", "HIP 5.2 (hip.so)" },
    { "hip 6", "hip", "60443484", "gfx942", "HIP 6.4 (hip.so)" },
    { "hip 7.0", "hip", "70051831", "gfx942", "HIP 7.0 (hip.so)" },
    { "hip 7.1", "hip", "70152802", "gfx942", "HIP 7.1 (hip.so)" },
};
enum { NDRIVERS = sizeof(drivers) / sizeof(*drivers) };

static int which;

static const rcclx_gpu *open_which(void)
{
    setenv("STANDIN_VERSION", drivers[which].version, 1);
    const rcclx_gpu *g = open_standin(drivers[which].library);
    CHECK(g && seen, "%s: %s", drivers[which].name, why);
    return g;
}

#define EACH(title)                                                                                                           \
    static void each_##title(const rcclx_gpu *g);                                                                             \
    static void opened_##title(void)                                                                                          \
    {                                                                                                                        \
        const rcclx_gpu *g = open_which();                                                                                   \
        if (g)                                                                                                               \
            each_##title(g);                                                                                                  \
    }                                                                                                                        \
    TEST(title)                                                                                                               \
    {                                                                                                                        \
        void (*run)(void) = opened_##title;                                                                                   \
        for (which = 0; which < NDRIVERS; which++)                                                                           \
            CASE("%s, %s", #title, drivers[which].name)                                                                       \
                CHECK(run_ranks_as_processes(1, call, &run) == 0, "the process failed");                                     \
    }                                                                                                                        \
    static void each_##title(const rcclx_gpu *g)

#define FINE(call) CHECK((call) == RCCLX_OK, "%s", rcclx_last_error())
#define SAYS(text, part) CHECK(strstr(text, part), "no \"%s\" in: %s", part, text)

static bool hip_plain(const rcclx_gpu *g) /* no virtual memory */
{
    return g->kind == RCCLX_GPU_HIP && strstr(g->about, "HIP 7") == NULL;
}

/* ---- opening */

ALONE(a_missing_library_is_said)
{
    CHECK(!rcclx_gpu_open_at(RCCLX_GPU_CUDA, "/nowhere/libcuda.so.1", why, sizeof(why)), "found");
    SAYS(why, "/nowhere/libcuda.so.1: cannot open shared object file");
    why[0] = 0;
    CHECK(!rcclx_gpu_open_at(RCCLX_GPU_CUDA, path_of("cuda"), why, sizeof(why)), "tried twice");
    SAYS(why, "/nowhere/libcuda.so.1");
}

ALONE(the_real_libraries_are_looked_for)
{
    const rcclx_gpu *g = rcclx_gpu_open(RCCLX_GPU_HIP, why, sizeof(why));

    if (!g) /* a machine may have one, with or without devices */
        CHECK(*why, "no reason");
    g = rcclx_gpu_open(RCCLX_GPU_CUDA, why, sizeof(why));
    if (!g)
        CHECK(*why, "no reason");
    CHECK(g == rcclx_gpu_open(RCCLX_GPU_CUDA, why, sizeof(why)), "another at the second time");
}

ALONE(a_missing_entry_point_is_named)
{
    CHECK(!open_standin("cuda_lacking"), "taken");
    SAYS(why, "cuda_lacking.so has no cuEventQuery");
    CHECK(!open_standin("hip_lacking"), "taken");
    SAYS(why, "hip_lacking.so has no hipEventQuery");
}

ALONE(no_device_is_a_count_of_0_with_the_reason)
{
    setenv("STANDIN_DEVICES", "0", 1);
    const rcclx_gpu *g = open_standin("cuda");
    CHECK(g && g->count == 0, "%s", why);
    SAYS(why, "cuInit of cuda.so failed: CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device is detected; is a GPU visible");
    g = open_standin("hip");
    CHECK(g && g->count == 0, "%s", why);
    SAYS(why, "hipInit of hip.so failed: hipErrorNoDevice (100)");
}

EACH(devices_are_described)
{
    rcclx_gpu_info info;

    CHECK(strcmp(g->about, drivers[which].about) == 0, "%s", g->about);
    CHECK(g->count == 2 && !*why, "%d devices, %s", g->count, why);
    FINE(g->info(1, &info));
    CHECK(strcmp(info.name, "Stand-in 1") == 0, "%s", info.name);
    CHECK(strcmp(info.arch, drivers[which].arch) == 0, "%s", info.arch);
    CHECK(strcmp(info.pci, "0000:1b:00.0") == 0, "%s", info.pci);
    CHECK(info.wave == (g->kind == RCCLX_GPU_HIP ? 64 : 32), "wave %d", info.wave);
    CHECK(info.sms == (g->kind == RCCLX_GPU_HIP ? 304 : 132), "%d units", info.sms);
    CHECK(info.memory == 1 << 30 && info.clock_khz > 1000000, "%zu bytes, %d kHz", info.memory, info.clock_khz);
    CHECK(info.fd_handles == !hip_plain(g), "descriptors %d", info.fd_handles);
    CHECK(g->info(2, &info) == RCCLX_ARGUMENT, "device 2 of 2");
    SAYS(rcclx_last_error(), "device 2");
    CHECK(g->reaches(0, 1) && g->reaches(1, 1) && !g->reaches(0, 2) && !g->reaches(-1, 0), "reach");
}

/* ---- current devices */

EACH(enter_and_leave_restore_what_was)
{
    rcclx_gpu_scope a, b, c;
    int device = -1;

    FINE(g->current(&device));
    CHECK(device == 0, "device %d", device);
    FINE(g->enter(&a, 1));
    FINE(g->current(&device));
    CHECK(device == 1 && a.changed, "device %d", device);
    const int before = seen->pushes + seen->sets;
    FINE(g->enter(&b, 1));
    CHECK(!b.changed && seen->pushes + seen->sets == before, "changed though it was there");
    FINE(g->enter(&c, 0));
    FINE(g->current(&device));
    CHECK(device == 0 && c.changed, "device %d", device);
    g->leave(&c);
    FINE(g->current(&device));
    CHECK(device == 1, "device %d", device);
    g->leave(&b);
    g->leave(&a);
    FINE(g->current(&device));
    CHECK(device == 0 && seen->pops == seen->pushes, "%d pushed, %d popped", seen->pushes, seen->pops);
    CHECK(g->enter(&a, 7) == RCCLX_ARGUMENT && !a.changed, "device 7");
    FINE(g->enter(&a, 0));
    FINE(g->enable_peer(1));
    FINE(g->enable_peer(1));
    CHECK(!seen->last_errors, "left an error for the user: %d", seen->last_errors);
    FINE(g->device_sync());
    g->leave(&a);
}

/* ---- memory */

EACH(memory_is_had_zeroed_and_given_back)
{
    unsigned char *p = NULL, *q = NULL;
    size_t left, total, now;
    const size_t held = rcclx_mem_held();

    FINE(g->memory(&left, &total));
    for (int flags = 0; flags < 2; flags++) {
        FINE(g->alloc((void **)&p, 5001, flags));
        REQUIRE(p, "no memory");
        bool zero = true;
        for (int i = 0; i < 5001; i++)
            zero &= p[i] == 0;
        CHECK(zero, "not zeroed");
        FINE(g->memory(&now, &total));
        CHECK(now < left, "%zu of %zu", now, left);
        p[5000] = 1;
        FINE(g->free(p));
        FINE(g->memory(&now, &total));
        CHECK(now == left, "%zu of %zu left", now, left);
    }
    CHECK(seen->creates == seen->releases && seen->mapped == 0, "handles alive");
    CHECK(hip_plain(g) ? !seen->creates : seen->creates > 0, "%d handles", seen->creates);
    CHECK(g->kind == RCCLX_GPU_CUDA || seen->alloc_flags == 3, "flags %u: not uncached", seen->alloc_flags);
    CHECK(rcclx_mem_held() == held, "%zu blocks lost", rcclx_mem_held() - held);
    CHECK(g->free(q) == RCCLX_OK, "free of NULL");
    FINE(g->alloc_host((void **)&q, 100));
    CHECK(q[0] == 0 && q[99] == 0, "host memory is not zeroed");
    CHECK(seen->host_flags == (g->kind == RCCLX_GPU_HIP ? 0x40000003u : 3u), "flags %x", seen->host_flags);
    FINE(g->free_host(q));
}

EACH(host_memory_of_others_is_registered)
{
    _Alignas(4096) static char page[4096];
    rcclx_gpu_pointer p;

    FINE(g->register_host(page, sizeof(page)));
    CHECK(seen->host_flags == 3, "flags %x: not for all devices, or not mapped", seen->host_flags);
    FINE(g->pointer(page + 7, &p));
    CHECK(p.place == RCCLX_AT_PINNED && p.device_ptr == (uintptr_t)page + 7, "place %d", (int)p.place);
    CHECK(g->register_host(page, sizeof(page)) == RCCLX_SYSTEM, "twice");
    FINE(g->unregister_host(page));
    FINE(g->pointer(page, &p));
    CHECK(p.place == RCCLX_AT_HOST, "place %d", (int)p.place);
    CHECK(g->unregister_host(page) == RCCLX_SYSTEM && strstr(rcclx_last_error(), "ostUnregister"), "%s", rcclx_last_error());
}

EACH(all_devices_get_access_and_copies_arrive)
{
    uint32_t *p, words[4] = { 1, 2, 3, 4 }, back[4] = { 0 };
    rcclx_gpu_scope a;

    FINE(g->alloc((void **)&p, sizeof(words), false));
    CHECK(seen->accesses == (hip_plain(g) ? 0 : 2), "%d accesses", seen->accesses);
    FINE(g->enter(&a, 1));
    FINE(g->share(p));
    CHECK(seen->accesses == (hip_plain(g) ? 0 : 3), "%d accesses", seen->accesses);
    FINE(g->copy(p, words, sizeof(words), (void *)1));
    CHECK(seen->stream == (g->kind == RCCLX_GPU_HIP ? NULL : (void *)1), "stream %p", seen->stream);
    FINE(g->fill(p + 1, 77, 2, (void *)2));
    CHECK(seen->stream == (void *)2, "stream %p", seen->stream);
    FINE(g->copy(back, p, sizeof(back), NULL));
    CHECK(back[0] == 1 && back[1] == 77 && back[2] == 77 && back[3] == 4, "%u %u %u %u", back[0], back[1], back[2], back[3]);
    g->leave(&a);
    FINE(g->free(p));
}

EACH(pointers_are_told_apart)
{
    rcclx_gpu_pointer p, q;
    char *device, *host, *plain = malloc(10);
    rcclx_gpu_scope a;

    FINE(g->pointer(plain, &p));
    CHECK(p.place == RCCLX_AT_HOST && p.device == -1 && !p.serial, "place %d of device %d", (int)p.place, p.device);
    FINE(g->pointer(NULL, &p));
    CHECK(p.place == RCCLX_AT_HOST, "place %d", (int)p.place);
    CHECK(!seen->last_errors, "left an error for the user: %d", seen->last_errors);
    FINE(g->enter(&a, 1));
    FINE(g->alloc((void **)&device, 3 << 20, false));
    FINE(g->alloc_host((void **)&host, 100));
    FINE(g->pointer(device + 1000, &p));
    CHECK(p.place == RCCLX_AT_DEVICE && p.device == 1, "place %d, device %d", (int)p.place, p.device);
    CHECK(p.device_ptr == (uintptr_t)device + 1000 && p.base == (uintptr_t)device, "base %#lx", (unsigned long)p.base);
    CHECK(p.nbytes == (hip_plain(g) ? 3 << 20 : 4 << 20), "%zu bytes", p.nbytes);
    FINE(g->pointer(host + 5, &q));
    CHECK(q.place == RCCLX_AT_PINNED && q.device == -1 && q.device_ptr == (uintptr_t)host + 5, "place %d", (int)q.place);
    FINE(g->free(device));
    FINE(g->alloc((void **)&device, 3 << 20, false));
    FINE(g->pointer(device, &q));
    CHECK(p.serial && q.serial && p.serial != q.serial, "serials %lu %lu", (unsigned long)p.serial, (unsigned long)q.serial);
    FINE(g->free(device));
    FINE(g->free_host(host));
    g->leave(&a);
    free(plain);
}

EACH(out_of_memory_says_so)
{
    void *p = &p;
    rcclx_gpu_scope a;

    FINE(g->enter(&a, 1));
    CHECK(g->alloc(&p, (size_t)2 << 30, false) == RCCLX_NOMEM && !p, "2 GiB of 1");
    SAYS(rcclx_last_error(), g->kind == RCCLX_GPU_CUDA ? "cuMemCreate on device 1 failed: CUDA_ERROR_OUT_OF_MEMORY (2)"
                             : hip_plain(g)            ? "hipMalloc on device 1 failed: hipErrorOutOfMemory (2)"
                                                       : "hipMemCreate on device 1 failed: hipErrorOutOfMemory (2)");
    SAYS(rcclx_last_error(), "(2): out of memory; free memory");
    CHECK(!seen->last_errors, "left an error for the user: %d", seen->last_errors);
    rcclx_mem_fail_after(0); /* the host's */
    CHECK(hip_plain(g) || (g->alloc(&p, 100, false) == RCCLX_NOMEM && !p), "allocated");
    rcclx_mem_fail_after(-1);
    CHECK(seen->creates == seen->releases && !seen->mapped, "%d handles, %d released", seen->creates, seen->releases);
    g->leave(&a);
}

ALONE(without_virtual_memory_plain_memory_is_taken)
{
    setenv("STANDIN_NO_VMM", "1", 1);
    const rcclx_gpu *g = open_standin("cuda");
    rcclx_gpu_handle h;
    rcclx_gpu_info info;
    char *p = NULL;

    FINE(g->info(0, &info));
    CHECK(!info.fd_handles, "descriptors");
    FINE(g->alloc((void **)&p, 7, false));
    CHECK(p[6] == 0 && !seen->creates, "%d handles", seen->creates);
    FINE(g->export(p + 3, &h));
    CHECK(h.fd == -1 && h.offset == 3 && h.nbytes == 8, "offset %lu of %lu", (unsigned long)h.offset, (unsigned long)h.nbytes);
    FINE(g->free(p));
}

/* ---- other processes: rank 0 exports, rank 1 imports */

typedef struct { int sockets[2]; bool plain; } pair;

static bool send_handle(int socket, const rcclx_gpu_handle *h)
{
    union { struct cmsghdr align; char bytes[CMSG_SPACE(sizeof(int))]; } control = { 0 };
    struct iovec io = { (void *)(uintptr_t)h, sizeof(*h) };
    struct msghdr m = { .msg_iov = &io, .msg_iovlen = 1 };

    if (h->fd >= 0) {
        m.msg_control = &control;
        m.msg_controllen = sizeof(control.bytes);
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &h->fd, sizeof(int));
    }
    return sendmsg(socket, &m, 0) == (ssize_t)sizeof(*h);
}

static bool receive_handle(int socket, rcclx_gpu_handle *h)
{
    union { struct cmsghdr align; char bytes[CMSG_SPACE(sizeof(int))]; } control = { 0 };
    struct iovec io = { h, sizeof(*h) };
    struct msghdr m = { .msg_iov = &io, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control.bytes) };

    if (recvmsg(socket, &m, 0) != (ssize_t)sizeof(*h))
        return false;
    const struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    if (c)
        memcpy(&h->fd, CMSG_DATA(c), sizeof(int));
    return true;
}

static void give_out(const rcclx_gpu *g, const pair *t)
{
    rcclx_gpu_handle h;
    char *p, done;

    FINE(g->alloc((void **)&p, 100, t->plain));
    strcpy(p + 8, "hello");
    FINE(g->export(p + 8, &h));
    CHECK((h.fd < 0) == (hip_plain(g) || (g->kind == RCCLX_GPU_HIP && t->plain)), "descriptor %d", h.fd);
    CHECK(h.fd < 0 || fcntl(h.fd, F_GETFD) & FD_CLOEXEC, "the descriptor stays open in programs that are started");
    CHECK(send_handle(t->sockets[0], &h), "%s", strerror(errno));
    if (h.fd >= 0)
        close(h.fd);
    CHECK(read(t->sockets[0], &done, 1) == 1, "no answer");
    CHECK(strcmp(p + 8, "world") == 0, "%s", p + 8);
    FINE(g->free(p));
}

static void take_in(const rcclx_gpu *g, const pair *t)
{
    rcclx_gpu_handle h;
    rcclx_gpu_scope a;
    void *base = NULL, *again = NULL, *other = NULL;

    FINE(g->enter(&a, 1));
    REQUIRE(receive_handle(t->sockets[1], &h), "%s", strerror(errno));
    FINE(g->import(&h, &base));
    FINE(g->import(&h, &again));
    REQUIRE(base && again, "not mapped");
    CHECK(strcmp((char *)base + h.offset, "hello") == 0, "%s", (char *)base + h.offset);
    CHECK(strcmp((char *)again + h.offset, "hello") == 0, "%s", (char *)again + h.offset);
    if (h.fd < 0) {
        CHECK(base == again && seen->opens == 1, "opened %d times", seen->opens);
        g->leave(&a); /* another device has its own */
        FINE(g->import(&h, &other));
        CHECK(other != base && seen->opens == 2, "opened %d times", seen->opens);
        FINE(g->unimport(other));
        FINE(g->enter(&a, 1));
    } else {
        CHECK(fcntl(h.fd, F_GETFD) >= 0, "the caller's descriptor was closed");
        close(h.fd);
    }
    g->leave(&a);
    FINE(g->unimport(again));
    strcpy((char *)base + h.offset, "world");
    FINE(g->unimport(base));
    CHECK(seen->opens == seen->closes, "%d opened, %d closed", seen->opens, seen->closes);
    CHECK(seen->creates == seen->releases && !seen->mapped, "%d handles, %d released", seen->creates, seen->releases);
    CHECK(g->unimport(base) == RCCLX_ARGUMENT, "given back twice");
    CHECK(write(t->sockets[1], "", 1) == 1, "%s", strerror(errno));
}

static int share_rank(int rank, int n, void *arg)
{
    const rcclx_gpu *g = open_which();

    (void)n;
    if (g)
        (rank == 0 ? give_out : take_in)(g, arg);
    shutdown(((const pair *)arg)->sockets[rank], SHUT_RDWR); /* nobody waits for one that has given up */
    return g == NULL;
}

TEST(memory_is_shared_between_processes)
{
    for (which = 0; which < NDRIVERS; which++) {
        for (int plain = 0; plain < 2; plain++) {
            pair t = { .plain = plain };
            CASE("%s, %s", drivers[which].name, plain ? "flags" : "data") {
                const struct timeval patience = { .tv_sec = (time_t)(10 * check_scale()) }; /* for one that has crashed */
                REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, t.sockets) == 0, "%s", strerror(errno));
                for (int i = 0; i < 2; i++)
                    setsockopt(t.sockets[i], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
                CHECK(run_ranks_as_processes(2, share_rank, &t) == 0, "a process failed");
                close(t.sockets[0]);
                close(t.sockets[1]);
            }
        }
    }
}

/* As a framework makes it: two handles side by side in one reservation, the second without descriptor. */
ALONE(virtual_memory_of_others_is_exported_by_mapping)
{
    const rcclx_gpu *g = open_standin("cuda");
    const size_t unit = 2 << 20;
    rcclx_gpu_vmm_kind kind = { .type = 1, .handles = 1, .at = { 1, 0 } };
    uint64_t first = 0, second = 0;
    char *va = NULL;
    rcclx_gpu_handle h;
    rcclx_gpu_pointer p;

    REQUIRE(g, "%s", why);
    const rcclx_gpu_entries *f = &((const rcclx_driver *)g)->f;
    CHECK(f->vmm_reserve((void **)&va, 8 * unit, 0, NULL, 0) == 0 && f->vmm_create(&first, unit, &kind, 0) == 0, "first");
    kind.handles = 0;
    CHECK(f->vmm_create(&second, 2 * unit, &kind, 0) == 0, "second");
    CHECK(f->vmm_map(va, unit, 0, first, 0) == 0 && f->vmm_map(va + unit, 2 * unit, 0, second, 0) == 0, "maps");
    FINE(g->pointer(va + unit + 5, &p));
    CHECK(p.base == (uintptr_t)va + unit && p.nbytes == 2 * unit, "%zu bytes at %#lx", p.nbytes, (unsigned long)p.base);
    CHECK(p.goes_on, "more may be mapped behind it");
    FINE(g->export(va + 5, &h));
    CHECK(h.fd >= 0 && h.offset == 5 && h.nbytes == unit, "%lu bytes", (unsigned long)h.nbytes);
    close(h.fd);
    CHECK(g->export(va + unit + 5, &h) == RCCLX_UNSUPPORTED && h.fd < 0, "exported");
    SAYS(rcclx_last_error(), "made without a descriptor (cuMemExportToShareableHandle: CUDA_ERROR_INVALID_VALUE)");
    CHECK(seen->creates - seen->releases == 2, "%d handles alive", seen->creates - seen->releases);
    char *host = NULL;
    FINE(g->alloc_host((void **)&host, 10));
    CHECK(g->export(host, &h) == RCCLX_UNSUPPORTED, "exported");
    SAYS(rcclx_last_error(), "pinned host memory");
    CHECK(g->export(&h, &h) == RCCLX_UNSUPPORTED, "exported");
    SAYS(rcclx_last_error(), "not memory of a GPU");
    FINE(g->free_host(host));
}

/* ---- streams, graphs, kernels */

EACH(streams_and_events_do_as_told)
{
    rcclx_gpu_stream s = NULL;
    rcclx_gpu_event e = NULL, timed = NULL;
    rcclx_gpu_scope a;
    double us = 0;
    int device = -1;

    FINE(g->enter(&a, 1));
    FINE(g->stream_create(&s));
    FINE(g->event_create(&e, false));
    FINE(g->event_create(&timed, true));
    g->leave(&a);
    FINE(g->stream_device(s, &device));
    CHECK(device == 1, "device %d", device);
    FINE(g->stream_device((void *)2, &device));
    CHECK(device == 0, "device %d", device);
    FINE(g->event_record(e, s));
    FINE(g->stream_wait(NULL, e));
    seen->not_ready = 1;
    CHECK(g->stream_query(s) == RCCLX_AGAIN && g->event_query(e) == RCCLX_AGAIN, "done");
    CHECK(!seen->last_errors, "left an error for the user: %d", seen->last_errors);
    seen->not_ready = 0;
    FINE(g->stream_query(s));
    FINE(g->event_query(e));
    FINE(g->event_elapsed(timed, timed, &us));
    CHECK(us > 2499 && us < 2501, "%g us", us);
    CHECK(g->event_elapsed(timed, e, &us) == RCCLX_SYSTEM, "an event without time");
    SAYS(rcclx_last_error(), g->kind == RCCLX_GPU_CUDA ? "cuEventElapsedTime" : "hipEventElapsedTime");
    FINE(g->event_destroy(e));
    FINE(g->event_destroy(timed));
    FINE(g->stream_sync(s));
    FINE(g->stream_destroy(s));
}

EACH(captures_have_a_number)
{
    rcclx_gpu_stream s = NULL;
    rcclx_gpu_graph exec = NULL;
    rcclx_gpu_scope a;
    uint64_t id = 1;
    int device = -1;

    FINE(g->enter(&a, 1));
    FINE(g->stream_create(&s));
    FINE(g->capture_id(s, &id));
    CHECK(id == 0, "number %lu", (unsigned long)id);
    FINE(g->capture_begin(s));
    FINE(g->capture_id(s, &id));
    CHECK(id != 0, "no number");
    FINE(g->stream_device(s, &device));
    CHECK(device == 1, "device %d", device);
    const int before = g->relax();
    CHECK(before == 0 && seen->mode == 2, "mode %d", seen->mode);
    g->unrelax(before);
    CHECK(seen->mode == 0, "mode %d", seen->mode);
    FINE(g->capture_end(s, &exec));
    FINE(g->graph_launch(exec, s));
    FINE(g->graph_destroy(exec));
    FINE(g->stream_destroy(s));
    g->leave(&a);
}

EACH(kernels_are_launched_with_their_arguments)
{
    const struct { uint64_t a; char text[24]; } args = { 7, "as they are" };
    rcclx_gpu_fn f = NULL;
    rcclx_gpu_scope a;
    int n = 0;

    FINE(g->enter(&a, 0));
    FINE(g->function(&f, (void *)&n, "gp_copy_ll"));
    CHECK(seen->loaded_functions == (g->kind == RCCLX_GPU_CUDA), "%d loaded", seen->loaded_functions);
    FINE(g->launch(f, 8, 512, (void *)1, &args, sizeof(args)));
    CHECK(seen->blocks == 8 && seen->threads == 512 && seen->nargs == sizeof(args), "%u x %u", seen->blocks, seen->threads);
    CHECK(memcmp(seen->args, &args, sizeof(args)) == 0, "arguments");
    CHECK(seen->stream == (g->kind == RCCLX_GPU_HIP ? NULL : (void *)1), "stream %p", seen->stream);
    FINE(g->occupancy(f, 512, &n));
    CHECK(n == 4, "%d blocks", n);
    CHECK(g->function(&f, (void *)&n, "none_of_ours") == RCCLX_SYSTEM, "found");
    g->leave(&a);
}

TEST(the_nearest_code_object_is_taken)
{
    static const unsigned char code[1] = { 1 };
#define OBJECT(kind, arch) { RCCLX_GPU_##kind, arch, "cc", code, 1 }
    static const rcclx_code_object all[] = {
        OBJECT(HIP, "sm_90"), OBJECT(CUDA, "ptx_80"), OBJECT(CUDA, "sm_80"), OBJECT(CUDA, "sm_90"), OBJECT(CUDA, "ptx_90"),
        OBJECT(CUDA, "sm_103a"), OBJECT(CUDA, "sm_100"), OBJECT(HIP, "gfx90a"), OBJECT(HIP, "gfx942"), { 0 },
    };
    static const struct { const char *arch, *best; rcclx_gpu_kind kind; } want[] = {
        { "sm_90", "sm_90", RCCLX_GPU_CUDA },
        { "sm_80", "sm_80", RCCLX_GPU_CUDA },
        { "sm_89", "sm_80", RCCLX_GPU_CUDA },
        { "sm_75", NULL, RCCLX_GPU_CUDA },
        { "sm_100", "sm_100", RCCLX_GPU_CUDA },
        { "sm_103", "sm_103a", RCCLX_GPU_CUDA },
        { "sm_101", "sm_100", RCCLX_GPU_CUDA },
        { "sm_120", "ptx_90", RCCLX_GPU_CUDA },
        { "gfx942", "gfx942", RCCLX_GPU_HIP },
        { "gfx90a", "gfx90a", RCCLX_GPU_HIP },
        { "gfx90", NULL, RCCLX_GPU_HIP },
        { "gfx950", NULL, RCCLX_GPU_HIP },
    };

    for (size_t i = 0; i < sizeof(want) / sizeof(*want); i++) {
        const rcclx_code_object *o = rcclx_code_choose(all, want[i].kind, want[i].arch);
        const char *got = o ? o->arch : "none";
        CHECK(strcmp(got, want[i].best ? want[i].best : "none") == 0, "%s for %s", got, want[i].arch);
    }
}

ALONE(a_device_without_kernels_is_told_what_there_is)
{
    rcclx_gpu_module m;
    char want[32];

    setenv("STANDIN_ARCH", "10", 1);
    const rcclx_gpu *g = open_standin("cuda");
    REQUIRE(g, "%s", why);
    CHECK(g->load(&m, 1) == RCCLX_UNSUPPORTED, "loaded");
    SAYS(rcclx_last_error(), "device 1 (Stand-in 1) is sm_10");
    for (const rcclx_code_object *o = rcclx_code_objects; o->data; o++) {
        snprintf(want, sizeof(want), "%s", o->arch);
        if (o->kind == RCCLX_GPU_CUDA)
            SAYS(rcclx_last_error(), want);
    }
}

EACH(what_is_embedded_is_loaded)
{
    rcclx_gpu_module m = NULL;
    const rcclx_code_object *o = rcclx_code_choose(rcclx_code_objects, g->kind, drivers[which].arch);

    if (!o) {
        CHECK(g->load(&m, 0) == RCCLX_UNSUPPORTED, "loaded");
        return;
    }
    FINE(g->load(&m, 0));
    CHECK(seen->loaded == o->data, "another");
    CHECK(seen->pushes == seen->pops, "left a context");
    rcclx_gpu_scope a;
    FINE(g->enter(&a, 0));
    FINE(g->unload(m));
    g->leave(&a);
}

/* ---- processes */

ALONE(a_forked_child_is_refused)
{
    const rcclx_gpu *g = open_standin("cuda");
    rcclx_gpu_scope a = { .changed = true };
    int device, status = -1;

    REQUIRE(g, "%s", why);
    const pid_t child = fork();
    if (child == 0) {
        CHECK(g->current(&device) == RCCLX_SYSTEM, "the parent's driver was used");
        SAYS(rcclx_last_error(), "fork()");
        g->leave(&a);
        CHECK(!g->reaches(0, 1) && seen->pops == 0, "the parent's driver was used");
        _exit(0); /* without the leak checker: what the parent holds is out of sight here */
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0, "the child ended with %#x", (unsigned)status);
    FINE(g->current(&device));
}

typedef struct { const char *path; const rcclx_gpu *got[8]; } opening;

static int open_thread(int rank, int n, void *arg)
{
    opening *o = arg;
    char text[64];

    (void)n;
    o->got[rank] = rcclx_gpu_open_at(RCCLX_GPU_CUDA, o->path, text, sizeof(text));
    return 0;
}

ALONE(threads_get_the_same_driver)
{
    opening o = { .path = path_of("cuda") };

    CHECK(run_ranks_as_threads(8, open_thread, &o) == 0, "threads failed");
    for (int i = 0; i < 8; i++)
        CHECK(o.got[i] && o.got[i] == o.got[0], "thread %d", i);
}
