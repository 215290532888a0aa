/* What comes over a network plug-in's connections: notes as they should be, notes with bits turned or a byte less, any bytes; parts of
 * other sizes than was said; calls that fail, after which a request is not touched again. Nothing is written beside the area, whoever sends nonsense counts as lost, once, and
 * what was right before has landed.
 *
 * The plug-in is a pretended one, in this program: a connection gives what the case wants. */
#include "check.h"

#include "transport/plugin/plugin_way.h"

enum { AREA = 1 << 16, GUARD = 4096, ROUNDS = 20000, FAR = 1 };

typedef enum { RIGHT, TURNED, SHORT, ANY, WRONG_PART, BROKEN, MANNERS } manner;

typedef struct { bool sends, notes, ended; char *data[RCCLX_PLUGIN_GROUP]; size_t room[RCCLX_PLUGIN_GROUP]; int n; } request;

static struct {
    uint64_t seed;
    manner   how;
    int      ncomms, nlost, nlanded, nright, due; /* due: the size of the part that was announced */
    char     area[GUARD + AREA + GUARD];
    request  requests[64];
    int      nrequests;
} f;

static uint32_t dice(uint32_t n)
{
    f.seed = f.seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(f.seed >> 33) % n;
}

/* --- the plug-in --------------------------------------------------------------------------- */

static int init(const void *t, void **ctx, uint64_t id) { (void)t, (void)ctx, (void)id; return 0; }
static int listen_at(const void *t, void *ctx, int dev, void *handle, void **comm)
{
    (void)t, (void)ctx, (void)dev, (void)handle;
    *comm = &f;
    return 0;
}
static int connect_to(const void *t, void *ctx, int dev, void *handle, void **comm)
{
    (void)t, (void)ctx, (void)dev, (void)handle;
    *comm = &f;
    return 0;
}
static int accept_one(const void *t, void *listen, void **comm) { (void)t; *comm = listen; return 0; }
static int reg(const void *t, void *comm, void *data, size_t n, void **mr) { (void)t, (void)comm, (void)n; *mr = data; return 0; }
static int dereg(const void *t, void *comm, void *mr) { (void)t, (void)comm, (void)mr; return 0; }
static int send_one(const void *t, void *comm, void *data, size_t n, int tag, void *mr, void **out)
{
    (void)t, (void)comm, (void)data, (void)n, (void)tag, (void)mr;
    *out = &f.requests[f.nrequests++ % 64];
    *(request *)*out = (request){ .sends = true };
    return 0;
}
static int recv_some(const void *t, void *comm, int n, void **data, const size_t *sizes, int *tags, void **mrs, void **out)
{
    request *r = &f.requests[f.nrequests++ % 64];

    (void)t, (void)comm, (void)tags, (void)mrs;
    *r = (request){ .n = n, .notes = n == 1 && sizes[0] == sizeof(rcclx_note) };
    for (int i = 0; i < n; i++) {
        r->data[i] = data[i];
        r->room[i] = sizes[i];
    }
    *out = r;
    return 0;
}

/* A note of a frame that fits. */
static size_t right_note(rcclx_note *n)
{
    rcclx_frame frame = { .from = FAR, .seq = (uint64_t)f.nright + 1, .offset = dice(AREA / 2), .ninside = dice(RCCLX_FRAME_INSIDE + 1) };
    const bool large = dice(3) == 0;
    const size_t nframe = rcclx_frame_bytes(&frame);

    *n = (rcclx_note){ .kind = large ? RCCLX_NOTE_LARGE : RCCLX_NOTE_EAGER, .nframe = (uint32_t)nframe,
                       .nbytes = large ? 1 + dice(AREA / 2) : dice(RCCLX_NOTE_DATA + 1), .part = large ? 1 + dice(4000) + 4000 : 0 };
    memcpy(n->bytes, &frame, nframe);
    f.nright++;
    return offsetof(rcclx_note, bytes) + nframe + (large ? 0 : n->nbytes);
}

static int fill(rcclx_note *n)
{
    size_t size = right_note(n);

    if (f.how == TURNED && dice(4) == 0)
        ((unsigned char *)n)[dice((uint32_t)(size < 200 ? size : 200))] ^= (unsigned char)(1u << dice(8));
    if (f.how == TURNED && dice(16) == 0)
        size = dice((uint32_t)sizeof(*n) + 1);
    if (f.how == SHORT && dice(8) == 0)
        size--;
    for (size_t i = 0; f.how == ANY && i < 256; i++)
        ((unsigned char *)n)[i] = (unsigned char)dice(dice(2) ? 4 : 256);
    return f.how == ANY ? (int)dice((uint32_t)sizeof(*n) + 1) : (int)size;
}

static int test_one(const void *t, void *p, int *done, int *sizes)
{
    request *r = p;

    (void)t;
    CHECK(!r->ended, "a request that has ended is tested");
    if (f.how == BROKEN && dice(40) == 0) {
        r->ended = true;
        return 6;
    }
    *done = r->ended = dice(2) == 0;
    if (r->sends || !*done)
        return 0;
    for (int i = 0; i < r->n; i++) {
        sizes[i] = r->notes ? fill((rcclx_note *)(void *)r->data[i]) : (int)r->room[i];
        if (!r->notes)
            memset(r->data[i], 7, r->room[i]);
        if (!r->notes && f.how == WRONG_PART && dice(3) == 0)
            sizes[i] = (int)dice((uint32_t)r->room[i] + 1);
    }
    return 0;
}
static int close_one(const void *t, void *comm) { (void)t, (void)comm; return 0; }

static const rcclx_plugin_version pretended = {
    .version = 12, .init = init, .listen = listen_at, .connect = connect_to, .accept = accept_one, .reg = reg, .dereg = dereg,
    .send = send_one, .recv = recv_some, .test = test_one, .close_send = close_one, .close_recv = close_one, .close_listen = close_one,
};

/* --- its owner ------------------------------------------------------------------------------ */

static void *memory(void *o, int rank, size_t *n) { (void)o, (void)rank; *n = AREA; return f.area + GUARD; }
static void *place(void *o, const rcclx_frame *frame, size_t n)
{
    (void)o;
    CHECK(frame->from == FAR && frame->ninside <= RCCLX_FRAME_INSIDE, "from %u, %u inside", frame->from, frame->ninside);
    if (frame->offset <= AREA && n <= AREA - frame->offset)
        return f.area + GUARD + frame->offset;
    f.nlost++; /* as the mirror does */
    return NULL;
}
static void landed(void *o, const rcclx_frame *frame) { (void)o, (void)frame; f.nlanded++; }
static void lost(void *o, int rank, const char *why)
{
    (void)o;
    CHECK(rank == FAR && *why, "rank %d: %s", rank, why);
    f.nlost++;
}

static void run(uint64_t seed, manner how)
{
    static rcclx_plugin p;
    void *end = NULL;
    char letter[RCCLX_NET_LETTER];

    memset(&f, 0, sizeof(f));
    f.seed = seed;
    f.how = how;
    memset(f.area, 0x55, GUARD);
    memset(f.area + GUARD + AREA, 0x55, GUARD);
    p = (rcclx_plugin){ .row = rcclx_plugin_row, .name = "Pretended", .v = &pretended, .ndevices = 1 };
    p.device[0] = (rcclx_plugin_device){ .name = "x0", .pointers = 1, .max_recvs = 1 + (int)dice(8), .max_bytes = 20000 };
    p.row.how = &p;
    const rcclx_net_owner o = { .net = &p.row, .nranks = 2, .memory = memory, .place = place, .landed = landed, .lost = lost };
    REQUIRE(p.row.open(&o, &end) == RCCLX_OK && p.row.letter(end, FAR, letter) == RCCLX_OK &&
            p.row.connect(end, FAR, letter, sizeof(letter)) == RCCLX_OK, "no end");
    for (int i = 0; i < 200 && !f.nlost; i++)
        p.row.poll(end);
    for (int i = 0; i < 20; i++) /* a lost one stays so */
        p.row.poll(end);
    CHECK(f.nlost <= 1, "lost %d times", f.nlost);
    if (how == RIGHT)
        CHECK(!f.nlost && f.nlanded > 20 && f.nlanded <= f.nright, "%d lost, %d of %d landed", f.nlost, f.nlanded, f.nright);
    p.row.close(end, 0);
    for (int i = 0; i < GUARD; i++)
        if (f.area[i] != 0x55 || f.area[GUARD + AREA + i] != 0x55) {
            CHECK(false, "written beside the area, seed %llu", (unsigned long long)seed);
            return;
        }
}

static void many(manner how, int *nlost)
{
    *nlost = 0;
    for (int i = 0; i < ROUNDS / 20; i++) {
        run((uint64_t)i * MANNERS + how, how);
        *nlost += f.nlost;
    }
}

TEST(right_notes_land)
{
    int n;

    many(RIGHT, &n);
}

TEST(turned_bits)
{
    int n;

    many(TURNED, &n);
    CHECK(n > ROUNDS / 40, "only %d of %d were noticed", n, ROUNDS / 20);
}

TEST(a_byte_less)
{
    int n;

    many(SHORT, &n);
    CHECK(n == ROUNDS / 20, "%d of %d were noticed", n, ROUNDS / 20);
}

TEST(any_bytes)
{
    int n;

    many(ANY, &n);
    CHECK(n == ROUNDS / 20, "%d of %d were noticed", n, ROUNDS / 20);
}

TEST(calls_that_fail)
{
    int n;

    many(BROKEN, &n);
    CHECK(n > ROUNDS / 100, "%d of %d were noticed at once", n, ROUNDS / 20);
}

TEST(parts_of_wrong_sizes)
{
    int n;

    many(WRONG_PART, &n);
    CHECK(n == ROUNDS / 20, "%d of %d were noticed", n, ROUNDS / 20);
}
