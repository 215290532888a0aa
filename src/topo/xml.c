/* The tree: an array of elements that point to each other by number, and a list
 * of the strings that it owns.
 *
 *   elements   0 system   1 cpu      2 pci      3 gpu      4 pci
 *   first        1          2          3          -1         -1
 *   next        -1         -1          4          -1         -1       */
#include "topo/xml.h"

#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* An array with room for one more, which grows by doubling; NULL: no memory, and the array is as it was. */
static void *grown(void *array, int n, int *cap, size_t size)
{
    if (n < *cap)
        return array;
    const int more = *cap ? *cap * 2 : 16;
    void *p = rcclx_mem_realloc(array, (size_t)more * size);
    if (p)
        *cap = more;
    return p;
}

static void fail(rcclx_xml *x)
{
    if (x->status == RCCLX_OK)
        x->status = RCCLX_FAIL(RCCLX_NOMEM, "no memory for the elements of %s", *x->source ? x->source : "a description");
}

static const char *keep(rcclx_xml *x, const char *text)
{
    char **strings = grown(x->strings, x->nstrings, &x->cap_strings, sizeof(*x->strings)), *copy;

    if (!strings)
        return NULL;
    x->strings = strings;
    if (!(copy = rcclx_mem_strdup(text)))
        return NULL;
    return x->strings[x->nstrings++] = copy;
}

void rcclx_xml_fini(rcclx_xml *x)
{
    for (int i = 0; i < x->nstrings; i++)
        rcclx_mem_free(x->strings[i]);
    for (int i = 0; i < x->nelements; i++)
        rcclx_mem_free(x->elements[i].attrs);
    rcclx_mem_free(x->strings);
    rcclx_mem_free(x->elements);
    *x = (rcclx_xml){ .elements = NULL };
}

int rcclx_xml_add(rcclx_xml *x, int parent, const char *name)
{
    if (x->status != RCCLX_OK || (parent < 0 && x->nelements))
        return -1;
    rcclx_xml_element *elements = grown(x->elements, x->nelements, &x->cap_elements, sizeof(*elements));
    const char *own = keep(x, name);
    x->elements = elements ? elements : x->elements;
    if (!elements || !own) {
        fail(x);
        return -1;
    }
    const int e = x->nelements++;
    x->elements[e] = (rcclx_xml_element){ .name = own, .parent = parent, .first = -1, .last = -1, .next = -1 };
    if (parent >= 0) {
        rcclx_xml_element *p = &x->elements[parent];
        if (p->last >= 0)
            x->elements[p->last].next = e;
        else
            p->first = e;
        p->last = e;
    }
    return e;
}

static rcclx_xml_attr *find(const rcclx_xml *x, int element, const char *key)
{
    const rcclx_xml_element *e = &x->elements[element];

    for (int i = 0; i < e->nattrs; i++)
        if (!strcmp(e->attrs[i].key, key))
            return &e->attrs[i];
    return NULL;
}

void rcclx_xml_set(rcclx_xml *x, int element, const char *key, const char *value)
{
    if (x->status != RCCLX_OK || element < 0)
        return;
    rcclx_xml_element *e = &x->elements[element];
    rcclx_xml_attr *a = find(x, element, key);
    const char *own_value = keep(x, value), *own_key = a ? a->key : keep(x, key);
    rcclx_xml_attr *attrs = grown(e->attrs, e->nattrs, &e->cap_attrs, sizeof(*attrs));
    e->attrs = attrs ? attrs : e->attrs;
    if (!own_value || !own_key || !attrs) {
        fail(x);
        return;
    }
    a = find(x, element, key); /* it may have moved */
    a = a ? a : &e->attrs[e->nattrs++];
    *a = (rcclx_xml_attr){ own_key, own_value };
}

void rcclx_xml_setf(rcclx_xml *x, int element, const char *key, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    rcclx_xml_set(x, element, key, text);
}

const char *rcclx_xml_get(const rcclx_xml *x, int element, const char *key)
{
    const rcclx_xml_attr *a = find(x, element, key);

    return a ? a->value : NULL;
}

bool rcclx_xml_is(const rcclx_xml *x, int element, const char *name)
{
    return !strcmp(x->elements[element].name, name);
}

bool rcclx_xml_int(const rcclx_xml *x, int element, const char *key, long long least, long long most, long long *value,
                   bool *bad)
{
    const char *text = rcclx_xml_get(x, element, key);
    char *end;

    if (!text || !*text)
        return false;
    errno = 0;
    const long long n = strtoll(text, &end, 0);
    if (errno || end == text || *end || n < least || n > most) {
        *bad = true;
        return false;
    }
    *value = n;
    return true;
}

bool rcclx_xml_real(const rcclx_xml *x, int element, const char *key, double *value, bool *bad)
{
    const char *text = rcclx_xml_get(x, element, key);
    double n = 0, unit = 1;
    int digits = 0;

    if (!text || !*text)
        return false;
    /* strtod would read what the program's locale says */
    for (bool point = false; *text; text++) {
        if (*text == '.' && !point) {
            point = true;
        } else if (*text >= '0' && *text <= '9' && ++digits < 300) {
            n = n * 10 + (*text - '0');
            unit *= point ? 10 : 1;
        } else {
            *bad = true;
            return false;
        }
    }
    *bad |= !digits || n / unit > 1e15;
    *value = n / unit;
    return !*bad;
}

/* --- writing ------------------------------------------------------------------------ */

static void put_value(FILE *out, const char *text)
{
    for (; *text; text++)
        switch (*text) {
        case '<': fputs("&lt;", out); break;
        case '>': fputs("&gt;", out); break;
        case '&': fputs("&amp;", out); break;
        case '"': fputs("&quot;", out); break;
        case '\n': case '\t': case '\r': fprintf(out, "&#%d;", *text); break;
        default: fputc(*text, out);
        }
}

static void put_open(const rcclx_xml *x, FILE *out, int element, int depth)
{
    const rcclx_xml_element *e = &x->elements[element];

    fprintf(out, "%*s<%s", 2 * depth, "", e->name);
    for (int i = 0; i < e->nattrs; i++) {
        fprintf(out, " %s=\"", e->attrs[i].key);
        put_value(out, e->attrs[i].value);
        fputc('"', out);
    }
    fputs(e->first < 0 ? "/>\n" : ">\n", out);
}

/* The next element in the order of opening tags, -1 behind the last; elements left on the way are closed on `out`, if given. */
static int after(const rcclx_xml *x, int e, int *depth, FILE *out)
{
    if (x->elements[e].first >= 0) {
        ++*depth;
        return x->elements[e].first;
    }
    while (e >= 0 && x->elements[e].next < 0) {
        e = x->elements[e].parent;
        --*depth;
        if (e >= 0 && out)
            fprintf(out, "%*s</%s>\n", 2 * *depth, "", x->elements[e].name);
    }
    return e >= 0 ? x->elements[e].next : -1;
}

rcclx_status rcclx_xml_write(const rcclx_xml *x, FILE *out)
{
    int depth = 0;

    for (int e = x->nelements ? 0 : -1; e >= 0; e = after(x, e, &depth, out))
        put_open(x, out, e, depth);
    return ferror(out) ? RCCLX_FAIL_ERRNO("cannot write a description") : RCCLX_OK;
}

rcclx_status rcclx_xml_save(const rcclx_xml *x, const char *path)
{
    char beside[4096];

    if (snprintf(beside, sizeof(beside), "%s.%d~", path, (int)getpid()) >= (int)sizeof(beside))
        return RCCLX_FAIL(RCCLX_USAGE, "the name %.64s... is too long for a file", path);
    FILE *out = fopen(beside, "we");
    if (!out)
        return RCCLX_FAIL_ERRNO("cannot write %s", path);
    rcclx_status s = rcclx_xml_write(x, out);
    if (fclose(out) && s == RCCLX_OK)
        s = RCCLX_FAIL_ERRNO("cannot write %s", path);
    if (s == RCCLX_OK && rename(beside, path))
        s = RCCLX_FAIL_ERRNO("cannot write %s", path);
    if (s != RCCLX_OK)
        unlink(beside);
    return s;
}

/* --- comparing ------------------------------------------------------------------------ */

static bool same(const rcclx_xml *a, int i, const rcclx_xml *b, int j)
{
    const rcclx_xml_element *e = &a->elements[i];

    if (e->nattrs != b->elements[j].nattrs || strcmp(e->name, b->elements[j].name))
        return false;
    for (int k = 0; k < e->nattrs; k++) {
        const char *other = rcclx_xml_get(b, j, e->attrs[k].key);
        if (!other || strcmp(other, e->attrs[k].value))
            return false;
    }
    return true;
}

bool rcclx_xml_equal(const rcclx_xml *a, const rcclx_xml *b)
{
    int i = 0, j = 0, depth = 0, depth_b = 0;

    if (a->nelements != b->nelements)
        return false;
    for (int n = a->nelements; n; n--) {
        if (depth != depth_b || !same(a, i, b, j))
            return false;
        i = after(a, i, &depth, NULL);
        j = after(b, j, &depth_b, NULL);
    }
    return true;
}
