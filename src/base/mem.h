#ifndef RCCLX_BASE_MEM_H
#define RCCLX_BASE_MEM_H

#include <stddef.h>
#include <stdint.h>

/* The only callers of malloc. Tests count what is held and make the n-th call
 * fail. Memory comes zeroed; free takes NULL. */
void *rcclx_mem_alloc(size_t nbytes);
void *rcclx_mem_realloc(void *p, size_t nbytes); /* new bytes are not zeroed */
void  rcclx_mem_free(void *p);
char *rcclx_mem_strdup(const char *s);

#define RCCLX_NEW(type) ((type *)rcclx_mem_alloc(sizeof(type)))

/* For tests: blocks held now, and "let n more calls succeed, fail the next
 * one" (-1: never fail). */
size_t rcclx_mem_held(void);
void   rcclx_mem_fail_after(int64_t n);

#endif
