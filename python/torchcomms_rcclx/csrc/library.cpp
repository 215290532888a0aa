/* Where the library is looked for, the first that is there:
 *
 *     RCCLX_LIBRARY           a path; nothing else is tried when it is set
 *     in the process          one that the Python package rcclx has loaded: two copies would not know of each other
 *     lib/ beside this file   the copy that was taken along at install
 *     the system's loader     /usr/local/lib, LD_LIBRARY_PATH, ...
 */
#include "library.h"

#include <dlfcn.h>

#include <cstdlib>

namespace rcclx {

static const char file_name[] = "librcclx.so";

static std::string beside_this_file()
{
    Dl_info here;

    if (!dladdr(reinterpret_cast<void *>(&beside_this_file), &here) || !here.dli_fname)
        return file_name;
    const std::string path = here.dli_fname;
    return path.substr(0, path.rfind('/') + 1) + "lib/" + file_name;
}

static void *open_any(std::string *path)
{
    const char *asked = std::getenv("RCCLX_LIBRARY");
    const bool  one = asked && *asked;
    std::string faults;

    if (!one)
        if (void *there = dlopen(file_name, RTLD_NOW | RTLD_NOLOAD)) {
            *path = file_name;
            return there;
        }
    const std::string places[] = { one ? asked : beside_this_file(), file_name };
    for (const std::string &place : places) {
        if (void *handle = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL)) {
            *path = place;
            return handle;
        }
        faults += std::string(faults.empty() ? "" : "; ") + dlerror();
        if (one)
            break;
    }
    throw Error("rcclx: the C library cannot be loaded: " + faults + ". Set RCCLX_LIBRARY=/path/to/build/lib/librcclx.so, or "
                "install this package again from RCCLX's tree after `make`, which takes a copy along.");
}

static void *find(void *handle, const char *name, const std::string &path)
{
    void *function = dlsym(handle, name);

    if (!function)
        throw Error("rcclx: " + path + " has no " + name + ": it is another library, or an older one than this package was "
                    "built for. Build both from one tree and install again.");
    return function;
}

static Library open_library()
{
    Library lib;
    void   *handle = open_any(&lib.path);

#define RCCLX_FIND(name) lib.name = reinterpret_cast<decltype(lib.name)>(find(handle, #name, lib.path));
    RCCLX_TORCHCOMMS_FUNCTIONS(RCCLX_FIND)
#undef RCCLX_FIND
    return lib;
}

const Library &library()
{
    static const Library lib = open_library();
    return lib;
}

std::string explain(ncclResult_t result)
{
    const char *said = library().ncclGetLastError(nullptr);

    return said && *said ? said : library().ncclGetErrorString(result);
}

} // namespace rcclx
