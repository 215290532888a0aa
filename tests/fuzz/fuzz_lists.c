/* Fuzzes lists of hosts: Slurm's short forms, --hosts, host files, the note to other machines.
 *
 * Built with -fsanitize=fuzzer and -DRCCLX_LIBFUZZER it is libFuzzer's target.
 * Without, main replays a small corpus and 20,000 mutations of it, the same ones
 * every time, and prints TAP. Whatever is broken aborts. */
#include "../../tools/tool_hosts.c"
#include "../../tools/tool_note.c"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(cond)                                                                   \
    do {                                                                             \
        if (!(cond)) {                                                               \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #cond);       \
            abort();                                                                 \
        }                                                                            \
    } while (0)

static void check_names(const char *text)
{
    const long n = rcclx_nodelist_count(text);
    char       name[32], first[32] = "";

    MUST(n >= 0 && n <= RCCLX_NODELIST_MAX);
    for (long i = 0; i < n; i += 1 + n / 16) {
        memset(name, 1, sizeof(name));
        const bool fits = rcclx_nodelist_name(text, i, name, sizeof(name));
        MUST(memchr(name, 0, sizeof(name)));
        MUST(!fits || (*name && !strpbrk(name, "[], \n")));
        if (i == 0)
            memcpy(first, name, sizeof(first));
    }
    /* a name that is whole is a list of itself */
    if (n && rcclx_nodelist_name(text, 0, name, sizeof(name)))
        MUST(rcclx_nodelist_count(first) == 1 && rcclx_nodelist_name(first, 0, name, sizeof(name)) && !strcmp(name, first));
    MUST(!rcclx_nodelist_name(text, n, name, sizeof(name)));
    for (int i = 0; i < 4; i++)
        MUST(rcclx_counts_at(text, i) >= -1);
}

/* Whatever comes out may be given to a command. */
static void check_hosts(tool_hosts *h, bool good, const char *why, size_t nwhy)
{
    int slots = 0;

    if (!good) {
        MUST(!h->host && !h->n && *why && memchr(why, 0, nwhy));
        return;
    }
    MUST(h->n >= 1 && h->n <= TOOL_HOSTS_MAX && h->slots <= TOOL_SLOTS_MAX);
    for (int i = 0; i < h->n; i++) {
        const char *name = h->host[i].name;
        MUST(*name && *name != '-' && memchr(name, 0, TOOL_HOST_NAME) && !strpbrk(name, " ;$`'\"\\&|<>\n") && h->host[i].slots >= 1);
        for (int k = 0; k < i && i < 64; k++)
            MUST(strcmp(name, h->host[k].name));
        slots += h->host[i].slots;
    }
    MUST(slots == h->slots);
    tool_hosts_fini(h);
}

static void check_note(const char *bytes, size_t size)
{
    const char *at = NULL;
    size_t      n = 0;

    while ((at = tool_note_next(bytes, size, at))) {
        MUST(at >= bytes && at < bytes + size);
        n += strlen(at) + 1;
    }
    MUST(n == size || (n == 0 && size && bytes[size - 1]));
    if (size >= TOOL_NOTE_HEADER)
        MUST(tool_note_header(bytes) <= TOOL_NOTE_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char      *text = malloc(size + 1), why[64] = "";
    tool_hosts h;
    int        line = -1;

    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = 0;
    check_names(text);
    check_hosts(&h, !tool_hosts_list(&h, text, why, sizeof(why)), why, sizeof(why));
    check_hosts(&h, !tool_hosts_file(&h, text, size, &line, why, sizeof(why)), why, sizeof(why));
    MUST(line >= 0 && (size_t)line <= size);
    text = realloc(text, size ? size : 1); /* the end is where the bytes end */
    check_note(text, size);
    free(text);
    return 0;
}

#ifndef RCCLX_LIBFUZZER

static const struct { const char *text; size_t size; } corpus[] = {
#define TEXT(t) { t, sizeof(t) - 1 }
    TEXT(""), TEXT("node[01-04,7],login"), TEXT("r[1-2]n[1-2,08-10]s[0-1]x"), TEXT("a[0-65535]"), TEXT("[1-2]"), TEXT("4(x2),3"),
    TEXT("a:4,b:4"), TEXT("user@node[01-02]:8,[fd00::1]:4,fe80::1%eth0"), TEXT("a[999999999-1000000000]"),
    TEXT("# all\n a slots=4 max_slots=8 # big\r\nb:2\n\nnode[1-3] slots=2\n"), TEXT("a slots=4\na slots=4096\n"),
    TEXT("rcclx job 00000012\nv1.0\0ha\0n0 1 1\0eA=b\0a./x\0"), TEXT("vx\0\0\0a\0"),
};

static uint32_t state = 2463534242u;

static uint32_t draw(uint32_t below)
{
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state % below;
}

/* Change, drop, double a byte, or splice the tail of another text. */
static size_t mutate(uint8_t *data, size_t size, size_t room)
{
    static const char bytes[] = "[]-,:09 =#\n(x)@-\0a9\xff";
    const size_t      at      = draw((uint32_t)size + 1);

    switch (draw(4)) {
    case 0:
        if (at < size)
            data[at] = (uint8_t)bytes[draw(sizeof(bytes) - 1)];
        return size;
    case 1:
        if (at < size)
            memmove(data + at, data + at + 1, size - at - 1);
        return size ? size - (at < size) : 0;
    case 2:
        if (at >= size || size >= room)
            return size;
        memmove(data + at + 1, data + at, size - at);
        return size + 1;
    default: {
        const size_t k = draw(sizeof(corpus) / sizeof(corpus[0]));
        const size_t n = corpus[k].size < room - at ? corpus[k].size : room - at;
        memcpy(data + at, corpus[k].text, n);
        return at + n;
    }
    }
}

int main(void)
{
    const size_t ncorpus = sizeof(corpus) / sizeof(corpus[0]);
    uint8_t      data[200];

    for (size_t i = 0; i < ncorpus; i++)
        LLVMFuzzerTestOneInput((const uint8_t *)corpus[i].text, corpus[i].size);
    printf("ok 1 - the corpus\n");
    for (int i = 0; i < 20000; i++) {
        const size_t k    = draw((uint32_t)ncorpus);
        size_t       size = corpus[k].size;

        memcpy(data, corpus[k].text, size);
        for (uint32_t m = 1 + draw(6); m; m--)
            size = mutate(data, size, sizeof(data));
        LLVMFuzzerTestOneInput(data, size);
    }
    printf("ok 2 - 20000 mutations\n1..2\n");
    return 0;
}

#endif
