#ifndef RCCLX_TOPO_XML_H
#define RCCLX_TOPO_XML_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Elements with attributes, in memory: what descriptions of machines are made of.
 *
 *   rcclx_xml x = { 0 };
 *   RCCLX_TRY(rcclx_xml_read(&x, "machine.xml"));          // or build it:
 *   const int cpu = rcclx_xml_add(&x, 0, "cpu");            // a child of element 0, the root
 *   rcclx_xml_setf(&x, cpu, "numaid", "%d", 1);
 *   rcclx_xml_write(&x, stdout);
 *   rcclx_xml_fini(&x);
 *
 * Elements are numbers, so that they stay valid while others are added. Text
 * between elements, comments and processing instructions are not kept; text
 * that is not blank is an error. */
enum {
    RCCLX_XML_DEPTH    = 64,         /* elements within elements */
    RCCLX_XML_ELEMENTS = 100000,
    RCCLX_XML_ATTRS    = 64,         /* of one element */
    RCCLX_XML_BYTES    = 16 << 20,   /* of a file */
};

typedef struct {
    const char *key, *value; /* owned by the tree */
} rcclx_xml_attr;

typedef struct {
    const char     *name;
    int             line;                /* where it began; 0: made here */
    int             parent, first, last, next; /* elements; -1: none */
    int             nattrs, cap_attrs;
    rcclx_xml_attr *attrs;
} rcclx_xml_element;

typedef struct {
    rcclx_xml_element *elements; /* 0 is the root */
    int                nelements, cap_elements;
    char             **strings;
    int                nstrings, cap_strings;
    char               source[256]; /* the file's name, for messages */
    rcclx_status       status;      /* first failure while building: rcclx_xml_add and _set go on without effect */
} rcclx_xml;

/* Both leave an empty tree behind when they fail; the message names file, line and what is wrong there. */
rcclx_status rcclx_xml_parse(rcclx_xml *x, const char *text, size_t nbytes, const char *source);
rcclx_status rcclx_xml_read(rcclx_xml *x, const char *path);
void         rcclx_xml_fini(rcclx_xml *x); /* takes zeroed and half-made ones */

/* -1 and x->status on failure. parent -1 makes the root of an empty tree. */
int  rcclx_xml_add(rcclx_xml *x, int parent, const char *name);
void rcclx_xml_set(rcclx_xml *x, int element, const char *key, const char *value);
void rcclx_xml_setf(rcclx_xml *x, int element, const char *key, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

const char *rcclx_xml_get(const rcclx_xml *x, int element, const char *key); /* NULL: has none */
bool        rcclx_xml_is(const rcclx_xml *x, int element, const char *name);

/* A number in an attribute, decimal or with 0x: false if it has none; *bad if what stands there is no number from least to
 * most. */
bool rcclx_xml_int(const rcclx_xml *x, int element, const char *key, long long least, long long most, long long *value,
                   bool *bad);
bool rcclx_xml_real(const rcclx_xml *x, int element, const char *key, double *value, bool *bad);

rcclx_status rcclx_xml_write(const rcclx_xml *x, FILE *out);
rcclx_status rcclx_xml_save(const rcclx_xml *x, const char *path); /* a whole file or none: written beside it, then renamed */

/* The same elements in the same order with the same attributes, in whatever order those stand. */
bool rcclx_xml_equal(const rcclx_xml *a, const rcclx_xml *b);

#endif
