/* A network plug-in of a version that nobody can load any more. */
__attribute__((visibility("default"))) extern const char *const ncclNetPlugin_v5;
const char *const ncclNetPlugin_v5 = "Sample";
