/* The GPU kernels in the library are what the table says, and what is not there has a reason. */
#include "check.h"
#include "device/gpu.h"
#include "device/kernels/work.h"

#include <elf.h>

#define NAMES(id) "gp_" #id "_ll", "gp_" #id "_ll128", "gp_" #id "_simple",
#define PAIR_NAME(id) "gp_pairs_" #id,
static const char *const kernels[] = {GP_KERNEL_LIST(NAMES) GP_PAIR_KERNEL_LIST(PAIR_NAME)};

enum { ELF_CUDA = 190, ELF_AMDGPU = 224 };

static bool holds(const rcclx_code_object *c, const char *text)
{
    return memmem(c->data, c->nbytes, text, strlen(text)) != NULL;
}

TEST(objects_are_what_they_say)
{
    for (const rcclx_code_object *c = rcclx_code_objects; c->data; c++) {
        const Elf64_Ehdr *elf = (const void *)c->data;
        const bool        ptx = !strncmp(c->arch, "ptx_", 4);

        CASE("%s", c->arch) {
            REQUIRE(c->nbytes > sizeof(*elf), "%zu bytes", c->nbytes);
            CHECK((uintptr_t)c->data % 16 == 0, "at %p", (const void *)c->data);
            CHECK(c->data[c->nbytes] == 0, "no zero after it, and drivers take PTX as a string");
            CHECK(strpbrk(c->built_by, "0123456789"), "built by '%s': which version?", c->built_by);
            if (ptx)
                CHECK(c->kind == RCCLX_GPU_CUDA && holds(c, ".version") && !memchr(c->data, 0, c->nbytes), "not PTX");
            else
                CHECK(!memcmp(elf->e_ident, ELFMAG, SELFMAG) &&
                          elf->e_machine == (c->kind == RCCLX_GPU_CUDA ? ELF_CUDA : ELF_AMDGPU), "ELF machine %d", elf->e_machine);
            for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++)
                CHECK(holds(c, kernels[i]), "no %s", kernels[i]);
        }
    }
}

/* "gfx942" among the words before the colon of a line. */
static bool excused(const char *arch)
{
    for (const char *line = rcclx_code_missing; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        const char *end = line + strcspn(line, ":"), *at = line;

        for (; at < end; at += strcspn(at, " :"), at += *at == ' ')
            if (strcspn(at, " :") == strlen(arch) && !strncmp(at, arch, strlen(arch)))
                return true;
    }
    return false;
}

TEST(what_is_missing_has_a_reason)
{
    static const char *const archs[] = {"sm_80", "sm_90", "ptx_90", "gfx90a", "gfx942", "gfx950"};

    for (size_t i = 0; i < sizeof(archs) / sizeof(archs[0]); i++) {
        int built = 0;

        for (const rcclx_code_object *c = rcclx_code_objects; c->data; c++)
            built += !strcmp(c->arch, archs[i]);
        CHECK(built + excused(archs[i]) == 1, "%s: built %d times, excused %d", archs[i], built, excused(archs[i]));
    }
}
