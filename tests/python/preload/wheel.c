/* Stands for libtorch_cuda.so: built against NCCL, which it finds by a DT_RPATH. */
int ncclGetVersion(int *version);
int wheel_version(void);

int wheel_version(void)
{
    int version = 0;

    return ncclGetVersion(&version) == 0 ? version : -1;
}
