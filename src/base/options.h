#ifndef RCCLX_BASE_OPTIONS_H
#define RCCLX_BASE_OPTIONS_H

/* Every setting, one row each. To add one, add a row: parsing, the environment,
 * the files, `rcclx info --options` and docs/environment.md follow by themselves
 * (the page is remade with `rcclx info --options --markdown`).
 *
 *   X(id, name, TYPE, default, min, max, FLAGS, help)
 *
 * name   NCCL_X is also read as RCCL_X and RCCLX_X; RCCLX_X also as RCCL_X.
 * TYPE   INT BOOL REAL, SIZE (bytes; suffix K M G T), SECONDS (suffix ms s m h),
 *        STR, LIST (words between commas, kept as they stand), ENUM("a|b|c").
 * bounds are for INT, SIZE, REAL and SECONDS; others write 0, 0.
 * FLAGS  AGREE: all ranks must have the same value, compared at init; or 0. */
#define RCCLX_OPTION_LIST(X)                                                                             \
    /* The log. */                                                                                       \
    X(DEBUG, "NCCL_DEBUG", ENUM("NONE|VERSION|WARN|INFO|ABORT|TRACE"), "NONE", 0, 0, 0,                  \
      "how much is logged; NONE, when set, also silences warnings about settings and dead peers")        \
    X(DEBUG_SUBSYS, "NCCL_DEBUG_SUBSYS", LIST, "INIT,BOOTSTRAP,ENV", 0, 0, 0,                            \
      "whose INFO and TRACE lines are logged: INIT COLL P2P SHM NET GRAPH TUNING ENV ALLOC ALLOC_HOST "  \
      "CALL PROXY NVLS BOOTSTRAP REG PROFILE RAS DESTROY ALL; a leading ^ means all but these")          \
    X(DEBUG_FILE, "NCCL_DEBUG_FILE", STR, "", 0, 0, 0,                                                   \
      "where the log goes (%h host, %p process); standard output without; truncated when opened")        \
    X(DEBUG_TIMESTAMP_FORMAT, "NCCL_DEBUG_TIMESTAMP_FORMAT", STR, "[%F %T] ", 0, 0, 0,                   \
      "strftime form of the time before a line; %3f is milliseconds, %6f microseconds")                  \
    X(DEBUG_TIMESTAMP_LEVELS, "NCCL_DEBUG_TIMESTAMP_LEVELS", LIST, "WARN", 0, 0, 0,                      \
      "levels whose lines carry the time: VERSION WARN INFO ABORT TRACE ALL; a leading ^ inverts")       \
    X(CONF_FILE, "NCCL_CONF_FILE", STR, "", 0, 0, 0,                                                     \
      "file of NAME=VALUE lines read in place of ~/.nccl.conf (environment only)")                       \
    /* Finding the other ranks. */                                                                       \
    X(SOCKET_IFNAME, "NCCL_SOCKET_IFNAME", LIST, "", 0, 0, 0,                                            \
      "network interfaces by prefix; a leading = wants whole names, a leading ^ excludes")               \
    X(SOCKET_FAMILY, "NCCL_SOCKET_FAMILY", ENUM("any|AF_INET|AF_INET6"), "any", 0, 0, 0,                 \
      "address family of the bootstrap")                                                                 \
    X(COMM_ID, "NCCL_COMM_ID", STR, "", 0, 0, 0,                                                         \
      "host:port of the bootstrap's root, in place of the one inside the unique id")                     \
    X(PORT_RANGE, "RCCLX_PORT_RANGE", STR, "", 0, 0, 0,                                                  \
      "first-last: the ports the bootstrap may listen on; any free port without")                        \
    X(BOOTSTRAP, "RCCLX_BOOTSTRAP", ENUM("auto|unix|tcp"), "auto", 0, 0, 0,                              \
      "how ranks meet: a Unix socket on one host, TCP, or what fits")                                    \
    X(RUN_ID, "RCCLX_RUN_ID", STR, "", 0, 0, 0,                                                          \
      "any words, the same for all ranks of a job: where rcclxCommInitEnv lets them meet")                \
    X(HOSTID, "NCCL_HOSTID", STR, "", 0, 0, 0,                                                           \
      "a name for this machine, in place of its own: ranks of unlike names share no memory and go over the network")             \
    X(INIT_TIMEOUT, "RCCLX_INIT_TIMEOUT", SECONDS, "300", 0.1, 1e9, 0,                                   \
      "how long init waits for all ranks before it fails and lists who is missing")                      \
    /* Waiting. */                                                                                       \
    X(TIMEOUT, "RCCLX_TIMEOUT", SECONDS, "0", 0, 1e9, 0,                                                 \
      "an operation that waits longer fails; 0 never")                                                   \
    X(WARN_AFTER, "RCCLX_WARN_AFTER", SECONDS, "10", 0, 1e9, 0,                                          \
      "a wait longer than this is logged with its culprit; 0 never")                                     \
    X(SPIN_US, "RCCLX_SPIN_US", INT, "-1", -1, 1000000, 0,                                               \
      "microseconds a wait spins before it sleeps; -1 chooses by ranks and cores")                       \
    X(COMM_BLOCKING, "NCCL_COMM_BLOCKING", BOOL, "1", 0, 0, 0,                                           \
      "forces the blocking field of every communicator's configuration, when set")                       \
    /* What runs. */                                                                                     \
    X(DEVICE, "RCCLX_DEVICE", ENUM("auto|host|cuda|hip|emu"), "auto", 0, 0, 0,                           \
      "where communicators live: GPUs of CUDA or HIP, emulated ones, host memory; auto: what is there")  \
    X(ISA, "RCCLX_ISA", ENUM("auto|baseline|avx2|avx512|neon"), "auto", 0, 0, 0,                         \
      "vector instructions of the host's reductions")                                                    \
    X(ALGO, "NCCL_ALGO", STR, "", 0, 0, AGREE,                                                           \
      "algorithms to choose from, in NCCL's words: list, ^list, or collective:list;...")                 \
    X(X_ALGO, "RCCLX_ALGO", STR, "", 0, 0, AGREE,                                                        \
      "algorithms to choose from, in our words (rcclx info lists them); wins over NCCL_ALGO")            \
    X(PROTO, "NCCL_PROTO", STR, "", 0, 0, AGREE,                                                         \
      "protocols to choose from: LL, LL128, Simple; without LL small messages are staged, too")          \
    X(ORDERED, "RCCLX_ORDERED", BOOL, "0", 0, 0, AGREE,                                                  \
      "sum in rank order even where NCCL_ALGO or RCCLX_ALGO asks for an algorithm that does not")        \
    X(STREAM_BYTES, "RCCLX_STREAM_BYTES", SIZE, "0", 0, 1e15, AGREE,                                     \
      "bytes a rank reads and writes from which results are stored past the caches; 0: by processor")    \
    X(TUNE_FILE, "RCCLX_TUNE_FILE", STR, "", 0, 0, AGREE,                                                \
      "measured points that replace modelled prices")                                                    \
    X(TUNER_PLUGIN, "NCCL_TUNER_PLUGIN", STR, "", 0, 0, 0,                                               \
      "a tuner plug-in, by library's name, its end (x: libnccl-tuner-x.so) or path; none; default: libnccl-tuner.so") \
    X(TOPO_FILE, "NCCL_TOPO_FILE", STR, "", 0, 0, 0,                                                     \
      "description of the machine (XML as NCCL's and RCCL's), instead of looking around")                \
    X(TOPO_DUMP_FILE, "NCCL_TOPO_DUMP_FILE", STR, "", 0, 0, 0,                                           \
      "where to write the description of the machine")                                                   \
    X(GRAPH_FILE, "NCCL_GRAPH_FILE", STR, "", 0, 0, 0,                                                   \
      "rings and trees of a node (XML as NCCL's), instead of searching")                                 \
    X(GRAPH_DUMP_FILE, "NCCL_GRAPH_DUMP_FILE", STR, "", 0, 0, 0,                                         \
      "where to write the rings and trees of a node")                                                    \
    X(MIN_CTAS, "NCCL_MIN_CTAS", INT, "1", 1, 64, AGREE,                                                 \
      "fewest blocks (host: workers) an operation uses")                                                 \
    X(MAX_CTAS, "NCCL_MAX_CTAS", INT, "64", 1, 64, AGREE,                                                \
      "most blocks (host: workers) an operation uses")                                                   \
    X(CGA_CLUSTER_SIZE, "NCCL_CGA_CLUSTER_SIZE", INT, "4", 0, 8, 0,                                      \
      "thread block clusters on GPUs that have them")                                                    \
    X(CTA_POLICY, "NCCL_CTA_POLICY", STR, "DEFAULT", 0, 0, 0,                                            \
      "DEFAULT, EFFICIENCY, ZERO, several between |, or the number")                                     \
    X(NET, "NCCL_NET", STR, "", 0, 0, AGREE,                                                             \
      "name of the network transport to use")                                                            \
    X(NET_PLUGIN, "NCCL_NET_PLUGIN", STR, "", 0, 0, 0,                                                   \
      "network plug-ins, by library's name, its end (x: libnccl-net-x.so) or path, a list; none; default: libnccl-net.so") \
    X(NET_DEVICE, "RCCLX_NET_DEVICE", LIST, "", 0, 0, 0,                                                 \
      "devices of a network plug-in to use, by name; without: those of NCCL_SOCKET_IFNAME's names, else all") \
    X(P2P_DISABLE, "NCCL_P2P_DISABLE", BOOL, "0", 0, 0, AGREE,                                           \
      "no direct access to the peers' buffers: everything is staged; GPUs: through host memory")         \
    X(SHM_DISABLE, "NCCL_SHM_DISABLE", BOOL, "0", 0, 0, AGREE,                                           \
      "no effect yet: ranks of one machine always share memory")                                         \
    X(NVLS_ENABLE, "NCCL_NVLS_ENABLE", INT, "2", 0, 2, AGREE,                                            \
      "no effect: NVLink multicast is not used")                                                         \
    X(CMA, "RCCLX_CMA", ENUM("0|1|auto"), "auto", 0, 0, AGREE,                                           \
      "read peers' buffers through process_vm_readv: never, always, where it works and pays")            \
    X(LL_BYTES, "RCCLX_LL_BYTES", SIZE, "8K", 0, 8192, AGREE,                                            \
      "largest message whose flags travel with the data")                                                \
    X(CHUNK_BYTES, "RCCLX_CHUNK_BYTES", SIZE, "256K", 4096, 1073741824, AGREE,                           \
      "piece that is staged at a time")                                                                  \
    X(GPU_LL_BYTES, "RCCLX_LL_BYTES_GPU", SIZE, "0", 0, 2097152, AGREE,                                  \
      "GPUs: largest message that goes by protocol LL; 0: by number of ranks")                           \
    X(LL128, "RCCLX_LL128", ENUM("0|1|auto"), "auto", 0, 0, AGREE,                                       \
      "GPUs: protocol LL128: never, always, where a test at init sees lines of memory arrive whole")     \
    X(GPU_LL128_BYTES, "RCCLX_LL128_BYTES", SIZE, "0", 0, 7340032, AGREE,                                \
      "GPUs: largest message that goes by protocol LL128; 0: by number of ranks")                        \
    X(GPU_LANES, "RCCLX_GPU_LANES", INT, "0", 0, 128, AGREE,                                             \
      "GPUs: most blocks an operation uses; 0: by size")                                                 \
    X(GPU_THREADS, "RCCLX_GPU_THREADS", INT, "512", 64, 512, AGREE,                                      \
      "GPUs: threads of a block, a multiple of 64 (emulated ones use 64 unless set)")                    \
    /* Low precision on the wire. */                                                                     \
    X(LOW_PRECISION, "RCCLX_LOW_PRECISION", ENUM("off|fp8|int8"), "off", 0, 0, AGREE,                    \
      "codec of float, bfloat16 and half data on the wire, all collectives but Reduce, Gather, Scatter") \
    X(LOW_PRECISION_MIN_BYTES, "RCCLX_LOW_PRECISION_MIN_BYTES", SIZE, "0", 0, 1e15, AGREE,               \
      "size from which the codec is used, on every device; 0: by collective and GPUs, never on the host") \
    X(LP_ALL, "RCCL_LOW_PRECISION_ENABLE", BOOL, "0", 0, 0, AGREE,                                       \
      "low precision in fp8 where RCCLX_LOW_PRECISION is not set")                                       \
    X(LP_ALLREDUCE, "RCCL_LOW_PRECISION_ENABLE_ALLREDUCE", BOOL, "0", 0, 0, AGREE,                       \
      "the same for AllReduce alone")                                                                    \
    X(LP_ALLGATHER, "RCCL_LOW_PRECISION_ENABLE_ALLGATHER", BOOL, "0", 0, 0, AGREE,                       \
      "the same for AllGather alone")                                                                    \
    X(LP_REDUCESCATTER, "RCCL_LOW_PRECISION_ENABLE_REDUCESCATTER", BOOL, "0", 0, 0, AGREE,               \
      "the same for ReduceScatter alone")                                                                \
    X(LP_ALLTOALL, "RCCL_LOW_PRECISION_ENABLE_ALLTOALL", BOOL, "0", 0, 0, AGREE,                         \
      "the same for AlltoAll alone")                                                                     \
    X(ARENA_BYTES, "RCCLX_ARENA_BYTES", SIZE, "256G", 1048576, INT64_C(70368744177664), 0,               \
      "address space reserved for memory from ncclMemAlloc; only what is used is taken")                 \
    X(EMU_DEVICES, "RCCLX_EMU_DEVICES", INT, "8", 0, 64, 0,                                              \
      "emulated GPUs of a process")                                                                      \
    X(EMU_MEMORY, "RCCLX_EMU_MEMORY", SIZE, "8G", 0, INT64_C(1125899906842624), 0,                       \
      "bytes of an emulated GPU; an allocation beyond fails")                                            \
    X(EMU_UNREACHABLE, "RCCLX_EMU_UNREACHABLE", STR, "", 0, 0, 0,                                        \
      "pairs of emulated GPUs that cannot reach each other's memory, as in 0-1,2-3")                     \
    /* Checks and tests. */                                                                              \
    X(CHECK_POINTERS, "NCCL_CHECK_POINTERS", BOOL, "0", 0, 0, 0,                                         \
      "look at every pointer of every call before it is used")                                           \
    X(SET_THREAD_NAME, "NCCL_SET_THREAD_NAME", BOOL, "0", 0, 0, 0,                                       \
      "name the library's threads")                                                                      \
    X(SEQ_START, "RCCLX_SEQ_START", INT, "0", 0, INT64_MAX, AGREE,                                       \
      "sequence number of the first operation (tests of the wrap)")

/* Names that NCCL, RCCL, their plug-ins and images around them know, which have
 * no effect here: accepted without a warning, one INFO line when set. NCCL_X
 * stands for RCCL_X and RCCLX_X too. A * at the end takes any rest. */
#define RCCLX_OPTION_ACCEPTED_LIST(X)                                                                    \
    X("NCCL_SOCKET_RETRY_CNT") X("NCCL_SOCKET_RETRY_SLEEP_MSEC") X("NCCL_SOCKET_POLL_TIMEOUT_MSEC")      \
    X("NCCL_SOCKET_NTHREADS") X("NCCL_NSOCKS_PERTHREAD") X("NCCL_SOCKET_MAGIC") X("NCCL_SOCKET_INLINE")  \
    X("NCCL_SOCKET_MIN_TASKSIZE") X("NCCL_OOB_NET_ENABLE") X("NCCL_OOB_NET_IFNAME")                      \
    X("NCCL_UID_STAGGER_THRESHOLD") X("NCCL_UID_STAGGER_RATE")                      \
    X("NCCL_PROFILER_PLUGIN") X("NCCL_ENV_PLUGIN") X("NCCL_GIN_PLUGIN")           \
    X("NCCL_PROFILE_EVENT_MASK") X("NCCL_TUNER_CONFIG_PATH") X("NCCL_TUNER_CONFIG_FILE")                 \
    X("NCCL_IB_HCA") X("NCCL_IB_DISABLE") X("NCCL_IB_TIMEOUT") X("NCCL_IB_RETRY_CNT")                    \
    X("NCCL_IB_GID_INDEX") X("NCCL_IB_ADDR_FAMILY") X("NCCL_IB_ADDR_RANGE")                              \
    X("NCCL_IB_ROCE_VERSION_NUM") X("NCCL_IB_SL") X("NCCL_IB_TC") X("NCCL_IB_FIFO_TC")                   \
    X("NCCL_IB_PKEY") X("NCCL_IB_PKEY_VALUE") X("NCCL_IB_QPS_PER_CONNECTION")                            \
    X("NCCL_IB_QPS_PER_P2P") X("NCCL_IB_SPLIT_DATA_ON_QPS") X("NCCL_IB_AR_THRESHOLD")                    \
    X("NCCL_IB_ADAPTIVE_ROUTING") X("NCCL_IB_PCI_RELAXED_ORDERING") X("NCCL_IB_ECE_ENABLE")              \
    X("NCCL_IB_OOO_RQ") X("NCCL_IB_RETURN_ASYNC_EVENTS") X("NCCL_IB_MERGE_NICS") X("NCCL_IB_MERGE_VFS")  \
    X("NCCL_IB_USE_INLINE") X("NCCL_IB_DATA_DIRECT") X("NCCL_IB_WARN_RAIL_LOCAL")                        \
    X("NCCL_IB_CUDA_SUPPORT") X("NCCL_IB_GDR_LEVEL") X("NCCL_IB_RESILIENCY_PORT_FAILOVER")               \
    X("NCCL_IB_RESILIENCY_PORT_RECOVERY") X("NCCL_IBVERBS_LIB") X("NCCL_NET_MERGE_POLICY")               \
    X("NCCL_NET_MERGE_LEVEL") X("NCCL_NET_FORCE_MERGE") X("NCCL_CROSS_NIC") X("NCCL_NETDEVS_POLICY")     \
    X("NCCL_NET_GDR_LEVEL") X("NCCL_NET_GDR_READ") X("NCCL_NET_GDR_C2C") X("NCCL_NET_SHARED_BUFFERS")    \
    X("NCCL_NET_SHARED_COMMS") X("NCCL_NET_DISABLE_INTRA") X("NCCL_NET_OVERHEAD")                        \
    X("NCCL_DMABUF_ENABLE") X("NCCL_GDRCOPY_ENABLE") X("NCCL_GDRCOPY_FIFO_ENABLE")                       \
    X("NCCL_GDRCOPY_SYNC_ENABLE") X("NCCL_GDRCOPY_FLUSH_ENABLE") X("NCCL_GDR_FLUSH_DISABLE")             \
    X("NCCL_P2P_LEVEL") X("NCCL_P2P_DIRECT_DISABLE") X("NCCL_P2P_USE_CUDA_MEMCPY")                       \
    X("NCCL_P2P_READ_ENABLE") X("NCCL_P2P_PXN_LEVEL") X("NCCL_P2P_NET_CHUNKSIZE")                        \
    X("NCCL_P2P_NVL_CHUNKSIZE") X("NCCL_P2P_PCI_CHUNKSIZE") X("NCCL_P2P_LL_THRESHOLD")                   \
    X("NCCL_SHM_LOCALITY") X("NCCL_SHM_USE_CUDA_MEMCPY") X("NCCL_SHM_MEMCPY_MODE")                       \
    X("NCCL_CUMEM_ENABLE") X("NCCL_CUMEM_HOST_ENABLE") X("NCCL_NVB_DISABLE") X("NCCL_NVB_PRECONNECT")    \
    X("NCCL_PXN_DISABLE") X("NCCL_PXN_C2C") X("NCCL_MAX_NCHANNELS") X("NCCL_MIN_NCHANNELS")              \
    X("NCCL_MAX_NRINGS") X("NCCL_MIN_NRINGS") X("NCCL_NRINGS") X("NCCL_MAX_P2P_NCHANNELS")               \
    X("NCCL_MIN_P2P_NCHANNELS") X("NCCL_NTHREADS") X("NCCL_LL128_NTHREADS") X("NCCL_BUFFSIZE")           \
    X("NCCL_LL_BUFFSIZE") X("NCCL_LL128_BUFFSIZE") X("NCCL_LL128_C2C") X("NCCL_THREAD_THRESHOLDS")       \
    X("NCCL_ALLOC_P2P_NET_LL_BUFFERS") X("NCCL_NCHANNELS_PER_NET_PEER") X("NCCL_NCHANNELS_PER_PEER")     \
    X("NCCL_NVLS_NCHANNELS") X("NCCL_NVLS_CHUNKSIZE") X("NCCL_NVLSTREE_MAX_CHUNKSIZE")                   \
    X("NCCL_MNNVL_ENABLE") X("NCCL_MNNVL_UUID") X("NCCL_MNNVL_CLIQUE_ID") X("NCCL_MNNVL_SCATTER_NETS_ENABLE") \
    X("NCCL_COLLNET_ENABLE") X("NCCL_COLLNET_NODE_THRESHOLD") X("NCCL_RUNTIME_CONNECT")                  \
    X("NCCL_GRAPH_REGISTER") X("NCCL_LOCAL_REGISTER") X("NCCL_LEGACY_CUDA_REGISTER")                     \
    X("NCCL_WIN_ENABLE") X("NCCL_WIN_STRIDE") X("NCCL_GRAPH_MIXING_SUPPORT")                             \
    X("NCCL_GRAPH_STREAM_ORDERING") X("NCCL_GRAPH_HELPER_DISABLE") X("NCCL_LAUNCH_ORDER_IMPLICIT")       \
    X("NCCL_LAUNCH_RACE_FATAL") X("NCCL_LAUNCH_MODE") X("NCCL_GROUP_CUDA_STREAM")                        \
    X("NCCL_TOPO_DUMP_FILE_RANK") X("NCCL_GRAPH_DUMP_FILE_RANK") X("NCCL_PROXY_CPUSET")                  \
    X("NCCL_IGNORE_CPU_AFFINITY") X("NCCL_IGNORE_DISABLED_P2P") X("NCCL_CHECK_MODE")                     \
    X("NCCL_RAS_ENABLE") X("NCCL_RAS_ADDR") X("NCCL_RAS_TIMEOUT_FACTOR") X("NCCL_MEM_SYNC_DOMAIN")       \
    X("NCCL_IGNORE_NET_MISMATCH") X("NCCL_IGNORE_COLLNET_MISMATCH") X("NCCL_MULTI_RANK_GPU_ENABLE")      \
    X("NCCL_SYM_KERNEL") X("NCCL_SYM_CTAS") X("NCCL_SYM_CE_THRESHOLD") X("NCCL_SYM_GIN_KERNELS_ENABLE")  \
    X("NCCL_GIN_ENABLE") X("NCCL_GIN_TYPE") X("NCCL_RMA_EAGER_INIT") X("NCCL_WORK_FIFO_BYTES")           \
    X("NCCL_WORK_ARGS_BYTES") X("NCCL_SINGLE_PROC_MEM_REG_ENABLE") X("NCCL_PARAM_DUMP_ALL")              \
    X("NCCL_SINGLE_RING_THRESHOLD") X("NCCL_LL_THRESHOLD") X("NCCL_TREE_THRESHOLD")                      \
    X("NCCL_CHECKS_DISABLE") X("NCCL_PAT_ENABLE") X("NCCL_SPLIT_MASK") X("NCCL_COMM_SPLIT_SHARE_RESOURCES") \
    X("NCCL_COMM_SHRINK_SHARE_RESOURCES") X("NCCL_SET_STACK_SIZE") X("NCCL_SET_CPU_STACK_SIZE")          \
    X("NCCL_WARN_ENABLE_DEBUG_INFO") X("NCCL_DEBUG_NOWARN") X("NCCL_PROGRESS_APPENDOP_FREQ")             \
    X("NCCL_PROXY_APPEND_BATCH_SIZE") X("NCCL_PROXY_DUMP_SIGNAL") X("NCCL_PROXY_PROFILE")                \
    X("NCCL_CREATE_THREAD_CONTEXT") X("NCCL_L1_SHARED_MEMORY_CARVEOUT") X("NCCL_REPORT_CONNECT_PROGRESS") \
    X("NCCL_CONNECT_ROUND_MAX_PEERS") X("NCCL_KERNEL_FUSE_ALL_OPS") X("NCCL_CUDA_PATH")                  \
    X("NCCL_DESYNC_DEBUG") X("NCCL_BLOCKING_WAIT") X("NCCL_ASYNC_ERROR_HANDLING")                        \
    X("NCCL_VERSION") X("NCCL_HOME") X("NCCL_ROOT") X("NCCL_ROOT_DIR") X("NCCL_DIR") X("NCCL_PATH")      \
    X("NCCL_LIB") X("NCCL_LIB_DIR") X("NCCL_LIBRARY") X("NCCL_LIBRARIES") X("NCCL_LIBRARY_PATH")         \
    X("NCCL_INCLUDE") X("NCCL_INCLUDE_DIR") X("NCCL_INCLUDE_DIRS") X("NCCL_INCLUDE_PATH")                \
    X("NCCL_INSTALL_PATH") X("NCCL_TEST_*") X("NCCL_TESTS_*") X("NCCL_FASTRAK_*")                        \
    X("NCCL_GPUDIRECTTCPX_*") X("NCCL_SHIMNET_*") X("NCCL_CTRAN_*") X("NCCL_COLLTRACE_*")                \
    X("RCCL_MSCCL_ENABLE") X("RCCL_MSCCL_FORCE_ENABLE") X("RCCL_MSCCL_ENABLE_SINGLE_PROCESS")            \
    X("RCCL_MSCCLPP_ENABLE") X("RCCL_MSCCLPP_THRESHOLD") X("RCCL_MSCCLPP_FORCE_ENABLE")                  \
    X("RCCL_DISABLE_RAIL_TREES") X("RCCL_P2P_BATCH_ENABLE") X("RCCL_P2P_BATCH_THRESHOLD")                \
    X("RCCL_DIRECT_ALLGATHER_THRESHOLD") X("RCCL_DIRECT_REDUCE_SCATTER_THRESHOLD")                       \
    X("RCCL_WARP_SPEED_AUTO") X("RCCL_UNROLL_FACTOR") X("RCCL_THREADS_PER_BLOCK")                        \
    X("RCCL_OVERRIDE_ALGO") X("RCCL_OVERRIDE_PROTO") X("RCCL_FORCE_ENABLE_DMABUF")                       \
    X("RCCL_DDA_ENABLE") X("RCCL_KERNEL_COLL_TRACE_ENABLE") X("RCCL_ENABLE_HDP_FLUSH")                   \
    X("RCCL_LOW_PRECISION_ENABLE_INIT") X("RCCL_CE_*") X("RCCLX_BUILD") X("RCCLX_TEST_*")

#endif
