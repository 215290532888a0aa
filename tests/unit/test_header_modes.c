/* The public headers as programs meet them: every C and C++ standard, with the
 * vendors' headers on the path or without, and with the sizes and values that
 * binaries rely on. Compilers that this machine lacks are skipped. */
#include "check.h"

#include <ftw.h>
#include <sys/stat.h>

static char folder[] = "/tmp/rcclx-headers-XXXXXX";

static const char *include_dir(void)
{
    static char path[4096];
    const char *tests = strstr(__FILE__, "tests/unit/");
    snprintf(path, sizeof path, "%.*sinclude", tests ? (int)(tests - __FILE__) : 0, __FILE__);
    return path;
}

static void put_file(const char *name, const char *text)
{
    char  path[4096];
    FILE *f;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    f = fopen(path, "w");
    if (!CHECK(f, "%s: %s", path, strerror(errno)))
        return;
    fputs(text, f);
    fclose(f);
}

static void make_folder(const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    mkdir(path, 0700);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    (void)st, (void)kind, (void)where;
    return remove(path);
}

static bool have(const char *compiler)
{
    char command[256];
    snprintf(command, sizeof command, "command -v %s >/dev/null 2>&1", compiler);
    return system(command) == 0;
}

/* Everything a program might use, and what a binary built long ago assumed. */
static const char program[] =
    "#include \"HEADER\"\n"
    "#include \"rcclx.h\"\n"
    "#ifdef __cplusplus\n"
    "#define SAME(c) static_assert(c, #c)\n"
    "#elif __STDC_VERSION__ >= 201112L\n"
    "#define SAME(c) _Static_assert(c, #c)\n"
    "#else\n"
    "#define SAME(c) extern char same[(c) ? 1 : -1]\n"
    "#endif\n"
    "SAME(NCCL_VERSION_CODE == 22809);\n"
    "SAME(NCCL_VERSION(2, 28, 9) == 22809);\n"
    "SAME(NCCL_VERSION(2, 8, 3) == 2803);\n"
    "SAME(sizeof(ncclUniqueId) == 128);\n"
    "SAME(sizeof(ncclConfig_t) == 80);\n"
    "SAME(offsetof(ncclConfig_t, magic) == 8);\n"
    "SAME(offsetof(ncclConfig_t, blocking) == 16);\n"
    "SAME(offsetof(ncclConfig_t, netName) == 32);\n"
    "SAME(offsetof(ncclConfig_t, splitShare) == 40);\n"
    "SAME(offsetof(ncclConfig_t, commName) == 48);\n"
    "SAME(offsetof(ncclConfig_t, CTAPolicy) == 60);\n"
    "SAME(offsetof(ncclConfig_t, nvlinkCentricSched) == 76);\n"
    "SAME(sizeof(ncclSimInfo_t) == 24);\n"
    "SAME(sizeof(ncclCollConfig_t) == 64);\n"
    "SAME(offsetof(ncclCollConfig_t, algSelection) == 40);\n"
    "SAME(offsetof(ncclCollConfig_t, userProfilerTag) == 56);\n"
    "SAME(sizeof(ncclWaitSignalDesc_t) == 16);\n"
    "SAME(sizeof(cudaStream_t) == sizeof(void *));\n"
    "SAME(ncclMaxRedOp == 0x7fffffff);\n"
    "SAME(ncclAvg == 4 && ncclNumOps == 5 && ncclMax == 2 && ncclMin == 3);\n"
    "SAME(ncclBfloat16 == 9 && ncclFloat8e5m2 == 11 && ncclNumTypes == 12);\n"
    "SAME(ncclInProgress == 7 && ncclRemoteError == 6);\n"
    "SAME(NCCL_SPLIT_NOCOLOR == -1 && NCCL_CONFIG_UNDEF_INT == INT_MIN);\n"
    "int use(ncclComm_t comm, cudaStream_t stream);\n"
    "int use(ncclComm_t comm, cudaStream_t stream)\n"
    "{\n"
    "    ncclConfig_t     config = NCCL_CONFIG_INITIALIZER;\n"
    "    ncclSimInfo_t    sim    = NCCL_SIM_INFO_INITIALIZER;\n"
    "    ncclCollConfig_t hints  = NCCL_COLLCONFIG_INITIALIZER;\n"
    "    ncclUniqueId     id;\n"
    "    float            x = 0;\n"
    "    if (pncclGetUniqueId(&id) != ncclSuccess || comm == NCCL_COMM_NULL)\n"
    "        return (int)config.size;\n"
    "    ncclCommInitRankConfig(&comm, 1, id, 0, &config);\n"
    "    ncclGroupStart();\n"
    "    ncclGroupSimulateEnd(&sim);\n"
    "    pncclAllReduceConfig(&x, &x, 1, ncclFloat, ncclSum, comm, stream, &hints);\n"
    "    return pncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, comm, stream);\n"
    "}\n"
    "EXPECT\n";

/* Enough of the vendors' headers to see that they were taken. */
static const char fake_cuda[] = "#pragma once\n"
                                "#define FAKE_CUDA 1\n"
                                "typedef struct CUstream_st *cudaStream_t;\n";
static const char fake_hip[]  = "#pragma once\n"
                                "#define FAKE_HIP 1\n"
                                "typedef struct ihipStream_t *hipStream_t;\n";

static void write_program(const char *file, const char *header, const char *expect)
{
    char        text[8192];
    const char *h = strstr(program, "HEADER"), *e = strstr(program, "EXPECT");
    snprintf(text, sizeof text, "%.*s%s%.*s%s\n", (int)(h - program), program, header, (int)(e - h - 6), h + 6, expect);
    put_file(file, text);
}

static void compile(const char *compiler, const char *standard, const char *flags, const char *file)
{
    char command[8192], line[512];
    snprintf(command, sizeof command,
             "%s -std=%s -fsyntax-only -Wall -Wextra -Wpedantic -Wundef -Wshadow -Werror -I%s %s %s/%s 2>&1", compiler,
             standard, include_dir(), flags, folder, file);
    FILE *p = popen(command, "r");
    if (!CHECK(p, "popen: %s", strerror(errno)))
        return;
    while (fgets(line, sizeof line, p))
        check_say("# %s", line);
    CHECK(pclose(p) == 0, "%s", command);
}

static void compile_all(const char *what, const char *flags, const char *header, const char *expect)
{
    static const struct {
        const char *compiler, *standard, *file;
    } modes[] = {
        { "gcc", "c99", "p.c" },         { "gcc", "c11", "p.c" },         { "gcc", "c17", "p.c" },
        { "gcc", "gnu17", "p.c" },       { "clang", "c99", "p.c" },       { "clang", "c17", "p.c" },
        { "g++", "c++11", "p.cc" },      { "g++", "c++14", "p.cc" },      { "g++", "c++17", "p.cc" },
        { "g++", "c++20", "p.cc" },      { "clang++", "c++11", "p.cc" },  { "clang++", "c++17", "p.cc" },
        { "clang++", "c++20", "p.cc" },
    };
    write_program("p.c", header, expect);
    write_program("p.cc", header, expect);
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        CASE("%s: %s as %s", what, modes[i].compiler, modes[i].standard) {
            if (have(modes[i].compiler))
                compile(modes[i].compiler, modes[i].standard, flags, modes[i].file);
            else
                check_skip("no %s here", modes[i].compiler);
        }
    }
}

TEST(headers_compile_in_every_mode)
{
    char flags[256];

    REQUIRE(mkdtemp(folder), "mkdtemp: %s", strerror(errno));
    make_folder("cuda");
    make_folder("hip");
    make_folder("hip/hip");
    put_file("cuda/cuda_runtime.h", fake_cuda);
    put_file("hip/hip/hip_runtime_api.h", fake_hip);

    compile_all("alone", "-DRCCLX_NO_CUDA_HEADERS", "nccl.h", "");
    snprintf(flags, sizeof flags, "-I%s/cuda", folder);
    compile_all("with CUDA", flags, "nccl.h", "#ifndef FAKE_CUDA\n#error the CUDA header was not taken\n#endif");
    snprintf(flags, sizeof flags, "-I%s/hip -I%s/cuda -D__HIP_PLATFORM_AMD__=1", folder, folder);
    compile_all("with HIP", flags, "rccl/rccl.h",
                "#if !defined(FAKE_HIP) || defined(FAKE_CUDA)\n#error the HIP header was not taken\n#endif\n"
                "int same_stream(hipStream_t s);\nint same_stream(hipStream_t s) { return use(NCCL_COMM_NULL, s); }");
    snprintf(flags, sizeof flags, "-I%s/cuda -DRCCLX_NO_CUDA_HEADERS", folder);
    compile_all("with CUDA, unwanted", flags, "nccl.h", "#ifdef FAKE_CUDA\n#error the CUDA header was taken\n#endif");
    nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

TEST(the_device_interface_compiles_in_c_and_cxx)
{
    static const char text[] = "#define RCCLX_NO_CUDA_HEADERS\n"
                               "#include \"rcclx_teams.h\"\n"
                               "int n(ncclComm_t c);\n"
                               "int n(ncclComm_t c) { return ncclTeamWorld(c).nRanks; }\n";
    strcpy(folder, "/tmp/rcclx-headers-XXXXXX");
    REQUIRE(mkdtemp(folder), "mkdtemp: %s", strerror(errno));
    put_file("t.c", text);
    put_file("t.cc", text);
    compile("cc", "c99", "", "t.c");
    if (have("g++"))
        compile("g++", "c++11", "", "t.cc");
    nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}
