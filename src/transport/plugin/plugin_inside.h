#ifndef RCCLX_TRANSPORT_PLUGIN_INSIDE_H
#define RCCLX_TRANSPORT_PLUGIN_INSIDE_H

/* Private to transport/plugin: what a plug-in of any version is to us. */
#include "transport/net.h"
#include "transport/plugin/plugin.h"

enum { RCCLX_PLUGIN_DEVICES = 16, RCCLX_PLUGIN_GROUP = 8 };

typedef struct {
    char   name[64];
    int    speed;              /* millions of bits a second */
    int    pointers, offload;  /* memory it takes, a bit a type; 0: ordinary connections */
    int    max_recvs;          /* receives of one call */
    size_t max_bytes;          /* of a message */
} rcclx_plugin_device;

/* A version: each call takes the plug-in's own table first. They return ncclResult_t. */
typedef struct {
    int         version;
    const char *symbol;
    bool        (*whole)(const void *table); /* has it all calls that we need? After init, which may change it */
    const char *(*name)(const void *table);
    int (*init)(const void *table, void **context, uint64_t id);
    int (*devices)(const void *table, int *n);
    int (*device)(const void *table, int dev, rcclx_plugin_device *d);
    int (*listen)(const void *table, void *context, int dev, void *handle, void **comm);
    int (*connect)(const void *table, void *context, int dev, void *handle, void **comm);
    int (*accept)(const void *table, void *listen, void **comm);
    int (*reg)(const void *table, void *comm, void *data, size_t nbytes, void **mr);
    int (*dereg)(const void *table, void *comm, void *mr);
    int (*send)(const void *table, void *comm, void *data, size_t nbytes, int tag, void *mr, void **request);
    int (*recv)(const void *table, void *comm, int n, void **data, const size_t *sizes, int *tags, void **mrs, void **request);
    int (*test)(const void *table, void *request, int *done, int *sizes);
    int (*close_send)(const void *table, void *comm);
    int (*close_recv)(const void *table, void *comm);
    int (*close_listen)(const void *table, void *comm);
    int (*finalize)(const void *table, void *context); /* NULL: init is once a process, and there is no context */
} rcclx_plugin_version;

extern const rcclx_plugin_version *const rcclx_plugin_versions[]; /* newest first; ends with NULL */

/* A library that was found, and its network. */
typedef struct rcclx_plugin {
    rcclx_network               row;      /* its name is the plug-in's */
    char                        name[32], file[256];
    const rcclx_plugin_version *v;        /* NULL: unusable, and why */
    const void                 *table;
    bool                        tried;
    char                        why[400];
    rcclx_plugin_device         device[RCCLX_PLUGIN_DEVICES];
    int                         ndevices;
    void                       *spare;    /* a context from the trial, for whoever comes with this id */
    uint64_t                    spare_id;
    bool                        has_spare;
} rcclx_plugin;

/* A context for a communicator; taken and given back under the process's lock. */
int  rcclx_plugin_context_open(rcclx_plugin *p, uint64_t id, void **context);
void rcclx_plugin_context_close(rcclx_plugin *p, void *context);

/* For plug-ins that tell a profiler what they do: there is none. */
int rcclx_plugin_no_events(void **handle, int type, void *parent, int64_t plugin, void *data);

/* The row's calls, but for its name: plugin_net.c. */
extern const rcclx_network rcclx_plugin_row;

#endif
