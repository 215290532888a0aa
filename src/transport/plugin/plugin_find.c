/* Which plug-in. See plugin.h.
 *
 *   NCCL_NET_PLUGIN = a,b       a: library -> symbol, newest first -> init -> devices   `-> first that works
 *                               b: ...                                                      and has the name
 *
 * What came of each library is kept for the process, good or bad: a plug-in that failed is
 * not asked again, and `why` says so to everybody. Libraries stay loaded. */
#include "transport/plugin/plugin.h"

#include "base/library.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/option.h"
#include "base/process.h"
#include "transport/plugin/net_abi.h"
#include "transport/plugin/plugin_inside.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { MOST = 14 };

#define PREFIX "libnccl-net"

typedef struct {
    int           n;
    bool          asked; /* by the user, not by default */
    rcclx_plugin *plugin[MOST];
} shelf;

extern const rcclx_plugin_version rcclx_plugin_v6, rcclx_plugin_v7, rcclx_plugin_v8, rcclx_plugin_v9, rcclx_plugin_v10,
    rcclx_plugin_v11, rcclx_plugin_v12;

const rcclx_plugin_version *const rcclx_plugin_versions[] = {
    &rcclx_plugin_v12, &rcclx_plugin_v11, &rcclx_plugin_v10, &rcclx_plugin_v9, &rcclx_plugin_v8, &rcclx_plugin_v7, &rcclx_plugin_v6,
    NULL,
};

int rcclx_plugin_no_events(void **handle, int type, void *parent, int64_t plugin, void *data)
{
    (void)handle, (void)type, (void)parent, (void)plugin, (void)data;
    return 0;
}

/* --- one plug-in ----------------------------------------------------------------------- */

static void find_table(rcclx_plugin *p)
{
    void *library = rcclx_library_open(PREFIX, p->file, p->why, sizeof(p->why));

    for (int i = 0; library && rcclx_plugin_versions[i] && !p->table; i++) {
        p->table = dlsym(library, rcclx_plugin_versions[i]->symbol);
        p->v = p->table ? rcclx_plugin_versions[i] : NULL;
    }
    if (library && !p->v)
        snprintf(p->why, sizeof(p->why), "it exports none of ncclNetPlugin_v6 to ncclNetPlugin_v12");
}

static void refuse(rcclx_plugin *p, const char *what, int result)
{
    char words[160];

    rcclx_library_words(words, sizeof(words));
    snprintf(p->why, sizeof(p->why), "%s: %s%s%s", what, rcclx_library_result(result), *words ? ": " : "", words);
    p->v = NULL;
}

static void take_devices(rcclx_plugin *p)
{
    int n = 0, r = p->v->devices(p->table, &n);

    for (int i = 0; !r && i < n && p->ndevices < RCCLX_PLUGIN_DEVICES; i++) {
        rcclx_plugin_device *d = &p->device[p->ndevices];
        r = p->v->device(p->table, i, d);
        p->ndevices++;
        if (!r)
            RCCLX_INFO_LOG(NET, "NET/Plugin: %s: device %d is %s, %d Mbit/s", p->row.name, i, d->name, d->speed);
    }
    if (r)
        refuse(p, "asking for its devices failed", r);
    else if (!p->ndevices)
        snprintf(p->why, sizeof(p->why), "it has no devices"), p->v = NULL;
}

/* Does it work here? What init gives for a communicator is kept for it. */
static void try_out(rcclx_plugin *p, uint64_t id)
{
    const rcclx_plugin_version *v = p->v;

    rcclx_library_words((char[8]){ 0 }, 8);
    const int r = v->init(p->table, &p->spare, id);
    if (r) {
        refuse(p, "its init failed", r);
        return;
    }
    if (!v->whole(p->table)) {
        snprintf(p->why, sizeof(p->why), "its table %s lacks functions", v->symbol);
        p->v = NULL;
        return;
    }
    snprintf(p->name, sizeof(p->name), "%s", v->name(p->table));
    take_devices(p);
    p->has_spare = p->v && v->finalize;
    p->spare_id = id;
    if (!p->v && v->finalize)
        v->finalize(p->table, p->spare);
}

static void examine(rcclx_plugin *p, uint64_t id, bool asked)
{
    if (p->tried)
        return;
    p->tried = true;
    p->row = rcclx_plugin_row;
    p->row.name = p->name;
    p->row.how = p;
    find_table(p);
    if (p->v)
        try_out(p, id);
    if (p->v)
        RCCLX_INFO_LOG(NET, "NET/Plugin: Loaded %s (%s, v%d), devices: %d", p->name, p->file, p->v->version, p->ndevices);
    else if (asked)
        RCCLX_WARN_LOG("NET/Plugin: %s is not used: %s", p->file, p->why);
    else
        RCCLX_INFO_LOG(NET, "NET/Plugin: %s.so is not used: %s", PREFIX, p->why);
}

int rcclx_plugin_context_open(rcclx_plugin *p, uint64_t id, void **context)
{
    int r = 0;

    pthread_mutex_lock(&rcclx_process()->lock);
    *context = NULL;
    if (p->has_spare && p->spare_id == id) {
        *context = p->spare;
        p->has_spare = false;
    } else if (p->v->finalize) {
        r = p->v->init(p->table, context, id);
    }
    pthread_mutex_unlock(&rcclx_process()->lock);
    return r;
}

void rcclx_plugin_context_close(rcclx_plugin *p, void *context)
{
    pthread_mutex_lock(&rcclx_process()->lock);
    if (p->v->finalize)
        p->v->finalize(p->table, context);
    pthread_mutex_unlock(&rcclx_process()->lock);
}

/* --- all of them ------------------------------------------------------------------------ */

static void add(shelf *s, const char *file, size_t n)
{
    rcclx_plugin *p = s->n < MOST && n < sizeof(p->file) ? RCCLX_NEW(rcclx_plugin) : NULL;

    if (!p) {
        RCCLX_WARN_LOG("NET/Plugin: NCCL_NET_PLUGIN: %.*s is left out: too many, or too long a name", (int)n, file);
        return;
    }
    memcpy(p->file, file, n);
    s->plugin[s->n++] = p;
}

/* The process's; its lock is held. */
static shelf *of_process(void)
{
    rcclx_process_state *state = rcclx_process();
    const char *list = rcclx_option_str(RCCLX_OPT_NET_PLUGIN);
    shelf *s = state->plugins;

    if (s || !(s = state->plugins = RCCLX_NEW(shelf)))
        return s;
    s->asked = *list;
    if (!*list)
        add(s, "", 0);
    for (size_t n; strcasecmp(list, "none") && *list; list += n + (list[n] == ',')) {
        n = strcspn(list, ",");
        if (n)
            add(s, list, n);
    }
    return s;
}

const rcclx_network *rcclx_plugin_network_find(const char *name, uint64_t id, char *why)
{
    const rcclx_network *found = NULL;
    size_t at = 0;

    why[0] = 0;
    pthread_mutex_lock(&rcclx_process()->lock);
    shelf *s = of_process();
    for (int i = 0; s && i < s->n && !found; i++) {
        rcclx_plugin *p = s->plugin[i];
        examine(p, id, s->asked);
        if (p->v && (!*name || !strcasecmp(name, p->name)))
            found = &p->row;
        else if (at < RCCLX_PLUGIN_WORDS && (s->asked || p->v))
            at += (size_t)snprintf(why + at, RCCLX_PLUGIN_WORDS - at, "%s%s: %s%s", at ? "; " : "", *p->file ? p->file : PREFIX ".so",
                                   p->v ? "is called " : "", p->v ? p->name : p->why);
    }
    pthread_mutex_unlock(&rcclx_process()->lock);
    return found;
}

bool rcclx_plugin_network_tell(int index, char *text, size_t n)
{
    pthread_mutex_lock(&rcclx_process()->lock);
    shelf *s = of_process();
    bool is = s && index < s->n;
    if (is) {
        rcclx_plugin *p = s->plugin[index];
        examine(p, 0, s->asked);
        is = s->asked || p->v;
        const char *file = *p->file ? p->file : PREFIX ".so";
        if (p->v)
            snprintf(text, n, "%s (%s, v%d), device%s %s%s", p->name, file, p->v->version, p->ndevices > 1 ? "s" : "", p->device[0].name,
                     p->ndevices > 1 ? " and others" : "");
        else
            snprintf(text, n, "%s is not used: %s", file, p->why);
    }
    pthread_mutex_unlock(&rcclx_process()->lock);
    return is;
}
