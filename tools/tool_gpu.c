/* Drivers are asked, not contexts made: info costs no memory on a device. */
#include "tool_gpu.h"

#include "base/log.h"
#include "device/gpu.h"

#include <stdio.h>
#include <string.h>

static const char *const words[RCCLX_GPU_KINDS] = {"cuda", "hip", "emu"};

/* The code object made for just this architecture, or NULL: then PTX or another one may do. */
static const rcclx_code_object *code_for(rcclx_gpu_kind kind, const char *arch)
{
    const size_t n = strcspn(arch, ":"); /* "gfx942:sramecc+:xnack-" */

    for (const rcclx_code_object *c = rcclx_code_objects; c->data; c++)
        if (c->kind == kind && strlen(c->arch) == n && !memcmp(c->arch, arch, n))
            return c;
    return NULL;
}

/* The next line of a text, without its end; false: there is none. */
static bool next_line(const char **at, char *line, size_t n)
{
    const size_t length = strcspn(*at, "\n");

    if (!**at)
        return false;
    snprintf(line, n, "%.*s", (int)length, *at);
    *at += length + ((*at)[length] == '\n');
    return true;
}

/* --- text ------------------------------------------------------------------- */

static void print_device(const rcclx_gpu *g, int device)
{
    const rcclx_code_object *code;
    rcclx_gpu_info           i;

    if (g->info(device, &i) != RCCLX_OK) {
        printf("         %d  cannot be asked: %s\n", device, rcclx_last_error());
        return;
    }
    code = code_for(g->kind, i.arch);
    printf("         %d  %s, %s, %s, %.1f GiB, %d %s\n", device, i.name, i.arch, i.pci, (double)i.memory / (1 << 30), i.sms,
           g->kind == RCCLX_GPU_HIP ? "compute units" : "multiprocessors");
    if (!code)
        printf("            no kernels built for it%s\n", g->kind == RCCLX_GPU_CUDA ? " (PTX may do)" : "");
}

void tool_gpu_print_drivers(void)
{
    char why[256];

    for (rcclx_gpu_kind kind = 0; kind < RCCLX_GPU_KINDS; kind++) {
        const rcclx_gpu *g = rcclx_gpu_open(kind, why, sizeof(why));

        if (!g) {
            printf("  %-6s no: %s\n", words[kind], why);
            continue;
        }
        printf("  %-6s %s, %d device%s\n", words[kind], g->about, g->count, g->count == 1 ? "" : "s");
        for (int d = 0; d < g->count && kind != RCCLX_GPU_EMU; d++)
            print_device(g, d);
    }
}

void tool_gpu_print_kernels(void)
{
    const char *at = rcclx_code_missing;
    char        line[256];

    printf("\nGPU kernels in this build\n");
    for (const rcclx_code_object *c = rcclx_code_objects; c->data; c++)
        printf("  %-10s %-4s  %7zu bytes  %s\n", c->arch, words[c->kind], c->nbytes, c->built_by);
    while (next_line(&at, line, sizeof(line)))
        printf("  none for %s\n", line);
}

/* --- JSON ------------------------------------------------------------------- */

static void json_device(rcclx_json *j, const rcclx_gpu *g, int device)
{
    rcclx_gpu_info i;

    rcclx_json_object_open(j, NULL);
    rcclx_json_int(j, "device", device);
    if (g->info(device, &i) != RCCLX_OK) {
        rcclx_json_string(j, "why", rcclx_last_error());
    } else {
        rcclx_json_string(j, "name", i.name);
        rcclx_json_string(j, "arch", i.arch);
        rcclx_json_string(j, "pci", i.pci);
        rcclx_json_int(j, "memory", (int64_t)i.memory);
        rcclx_json_int(j, "multiprocessors", i.sms);
        rcclx_json_int(j, "wave", i.wave);
        rcclx_json_int(j, "clock_khz", i.clock_khz);
        rcclx_json_bool(j, "fd_handles", i.fd_handles);
    }
    rcclx_json_object_close(j);
}

void tool_gpu_json_drivers(rcclx_json *j)
{
    char why[256];

    for (rcclx_gpu_kind kind = 0; kind < RCCLX_GPU_KINDS; kind++) {
        const rcclx_gpu *g = rcclx_gpu_open(kind, why, sizeof(why));

        rcclx_json_object_open(j, words[kind]);
        rcclx_json_bool(j, "works", g != NULL);
        rcclx_json_string(j, g ? "about" : "why", g ? g->about : why);
        rcclx_json_array_open(j, "devices");
        for (int d = 0; g && d < g->count; d++)
            json_device(j, g, d);
        rcclx_json_array_close(j);
        rcclx_json_object_close(j);
    }
}

void tool_gpu_json_kernels(rcclx_json *j)
{
    const char *at = rcclx_code_missing;
    char        line[256];

    rcclx_json_object_open(j, "kernels");
    rcclx_json_array_open(j, "built");
    for (const rcclx_code_object *c = rcclx_code_objects; c->data; c++) {
        rcclx_json_object_open(j, NULL);
        rcclx_json_string(j, "driver", words[c->kind]);
        rcclx_json_string(j, "arch", c->arch);
        rcclx_json_int(j, "bytes", (int64_t)c->nbytes);
        rcclx_json_string(j, "compiler", c->built_by);
        rcclx_json_object_close(j);
    }
    rcclx_json_array_close(j);
    rcclx_json_array_open(j, "missing");
    while (next_line(&at, line, sizeof(line)))
        rcclx_json_string(j, NULL, line);
    rcclx_json_array_close(j);
    rcclx_json_object_close(j);
}
