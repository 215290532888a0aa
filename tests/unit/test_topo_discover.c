/* Looking around, in trees of files made up like those of the kernel. */
#include "check.h"

#include "base/log.h"
#include "base/mem.h"
#include "topo/topo.h"

#include <sys/stat.h>

static char root[64];
static rcclx_topo topo;

/* --- a made-up /sys ------------------------------------------------------------------------ */

static void make_folders(char *path)
{
    for (char *c = path + strlen(root) + 1; *c; c++)
        if (*c == '/') {
            *c = 0;
            mkdir(path, 0755);
            *c = '/';
        }
}

__attribute__((format(printf, 2, 3))) static void put(const char *text, const char *format, ...)
{
    char path[1024];
    va_list args;
    int n = snprintf(path, sizeof(path), "%s/", root);

    va_start(args, format);
    vsnprintf(path + n, sizeof(path) - (size_t)n, format, args);
    va_end(args);
    make_folders(path);
    FILE *out = fopen(path, "w");
    if (!CHECK(out && fputs(text, out) >= 0 && !fclose(out), "%s: %s", path, strerror(errno)))
        check_give_up();
}

static void link_to(const char *target, const char *name)
{
    char from[1024], to[1024];

    snprintf(from, sizeof(from), "%s/%s", root, name);
    snprintf(to, sizeof(to), "%s/%s", root, target);
    make_folders(from);
    CHECK(symlink(to, from) == 0, "%s: %s", from, strerror(errno));
}

/* `place` is the path below /sys/devices, the last part the bus id. */
static void put_pci(const char *place, const char *class, const char *vendor, const char *speed, int width, int numa)
{
    const char *busid = strrchr(place, '/') + 1;
    char text[64], name[128], target[256];

    put(class, "sys/devices/%s/class", place);
    put(vendor, "sys/devices/%s/vendor", place);
    put("0x1234\n", "sys/devices/%s/device", place);
    put(speed, "sys/devices/%s/max_link_speed", place);
    snprintf(text, sizeof(text), "%d\n", width);
    put(text, "sys/devices/%s/max_link_width", place);
    snprintf(text, sizeof(text), "%d\n", numa);
    put(text, "sys/devices/%s/numa_node", place);
    snprintf(target, sizeof(target), "sys/devices/%s", place);
    snprintf(name, sizeof(name), "sys/bus/pci/devices/%s", busid);
    link_to(target, name);
}

static void put_cpus(int n)
{
    for (int i = 0; i < n; i++) {
        put("0-7\n", "sys/devices/system/node/node%d/cpulist", i);
        put("ff\n", "sys/devices/system/node/node%d/cpumap", i);
    }
    put("processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: a processor\n", "proc/cpuinfo");
}

static void put_port(const char *name, const char *device, const char *rate, const char *state)
{
    char link[256], target[256];

    put("506f:4b03:00cd:6838\n", "sys/class/infiniband/%s/node_guid", name);
    put(rate, "sys/class/infiniband/%s/ports/1/rate", name);
    put(state, "sys/class/infiniband/%s/ports/1/state", name);
    snprintf(link, sizeof(link), "sys/class/infiniband/%s/device", name);
    snprintf(target, sizeof(target), "sys/devices/%s", device);
    link_to(target, link);
}

static void begin(void)
{
    snprintf(root, sizeof(root), "/tmp/rcclx_sys_XXXXXX");
    if (!CHECK(mkdtemp(root) != NULL, "%s", strerror(errno)))
        check_give_up();
}

static void end(void)
{
    char command[128];

    rcclx_topo_fini(&topo);
    snprintf(command, sizeof(command), "rm -rf %s", root);
    CHECK(system(command) == 0, "%s", command);
}

static const char *attribute(int vertex, const char *key)
{
    const char *value = rcclx_xml_get(&topo.xml, topo.vertices[vertex].element, key);

    return value ? value : "(none)";
}

/* --- AMD --------------------------------------------------------------------------------------- */

/* KFD's node, as its driver writes it. */
static void put_kfd(int node, const char *target, int location, int simds)
{
    char text[256];

    snprintf(text, sizeof(text), "cpu_cores_count 0\nsimd_count %d\nsimd_per_cu 4\ngfx_target_version %s\nlocation_id %d\ndomain 0\n", simds, target, location);
    put(text, "sys/class/kfd/kfd/topology/nodes/%d/properties", node);
}

static void put_kfd_link(int node, int link, int type, int to, int weight, int lanes)
{
    char text[256];

    snprintf(text, sizeof(text), "type %d\nversion_major 0\nnode_from %d\nnode_to %d\nweight %d\nmin_bandwidth 50000\nmax_bandwidth %d\n", type, node, to,
             weight, 50000 * lanes);
    put(text, "sys/class/kfd/kfd/topology/nodes/%d/io_links/%d/properties", node, link);
}

TEST(gpus_of_amd_with_their_links)
{
    begin();
    put_cpus(2);
    put_pci("pci0000:00/0000:00:01.0", "0x060400\n", "0x1022\n", "32.0 GT/s PCIe\n", 16, 0);
    put_pci("pci0000:00/0000:00:01.0/0000:03:00.0", "0x120000\n", "0x1002\n", "32.0 GT/s PCIe\n", 16, 0);
    put_pci("pci0000:00/0000:00:01.0/0000:04:00.0", "0x020700\n", "0x15b3\n", "16.0 GT/s PCIe\n", 16, 0);
    put_pci("pci0000:80/0000:80:01.0", "0x060400\n", "0x1022\n", "32.0 GT/s PCIe\n", 16, 1);
    put_pci("pci0000:80/0000:80:01.0/0000:83:00.0", "0x120000\n", "0x1002\n", "32.0 GT/s PCIe\n", 16, 1);
    put_pci("pci0000:80/0000:80:01.0/0000:84:00.0", "0x120000\n", "0x1002\n", "Unknown\n", 16, 1);
    put("gfx_target_version 0\ncpu_cores_count 8\n", "sys/class/kfd/kfd/topology/nodes/0/properties");
    put_kfd(1, "90402", 0x300, 1216);
    put_kfd(2, "90402", 0x8300, 1216);
    put_kfd(10, "90010", 0x8400, 440);
    put_kfd_link(1, 0, 2, 0, 20, 1);   /* PCI, to the CPU */
    put_kfd_link(1, 1, 11, 2, 15, 1);  /* XGMI */
    put_kfd_link(2, 0, 11, 1, 15, 1);
    put_kfd_link(2, 1, 11, 10, 15, 4); /* four lanes */
    put_kfd_link(10, 0, 11, 2, 15, 4);
    put_kfd_link(10, 1, 11, 1, 30, 1); /* two hops: none of its own */
    put_port("mlx5_0", "pci0000:00/0000:00:01.0/0000:04:00.0", "200 Gb/sec (4X HDR)\n", "4: ACTIVE\n");
    put_port("mlx5_1", "pci0000:00/0000:00:01.0/0000:04:00.0", "200 Gb/sec (4X HDR)\n", "1: DOWN\n");
    REQUIRE(rcclx_topo_discover(&topo, root, false) == RCCLX_OK, "%s", rcclx_last_error());
    REQUIRE(topo.ngpus == 3 && topo.nnets == 1 && topo.ncpus == 2, "%d GPUs, %d ports, %d CPUs", topo.ngpus, topo.nnets, topo.ncpus);
    CHECK(!strcmp(topo.vertices[topo.gpus[2]].name, "0000:84:00.0"), "GPU 2 is %s", topo.vertices[topo.gpus[2]].name);
    CHECK(rcclx_topo_reach(&topo, 0, 1).kind == RCCLX_PATH_NVL && !strcmp(rcclx_topo_kind_name(&topo, 0, 1), "XGMI"), "%s", rcclx_topo_kind_name(&topo, 0, 1));
    CHECK(rcclx_topo_path(&topo, 0, 1)->rate > 47 && rcclx_topo_path(&topo, 1, 2)->rate > 191, "%g and %g", rcclx_topo_path(&topo, 0, 1)->rate,
          rcclx_topo_path(&topo, 1, 2)->rate);
    CHECK(rcclx_topo_reach(&topo, 0, 2).kind == RCCLX_PATH_NVB, "%s", rcclx_topo_kind_name(&topo, 0, 2));
    CHECK(rcclx_topo_reach(&topo, 0, 3).kind == RCCLX_PATH_PIX && rcclx_topo_reach(&topo, 1, 3).kind == RCCLX_PATH_PXN, "%s, %s",
          rcclx_topo_kind_name(&topo, 0, 3), rcclx_topo_kind_name(&topo, 1, 3));
    CHECK(topo.vertices[topo.nets[0]].rate > 24.9 && topo.vertices[topo.nets[0]].rate < 25.1, "%g", topo.vertices[topo.nets[0]].rate);
    for (int v = 0; v < topo.nvertices; v++)
        if (topo.vertices[v].kind == RCCLX_TOPO_CPU)
            CHECK(!strcmp(attribute(v, "familyid"), "175") && !strcmp(attribute(v, "modelid"), "17") && !strcmp(attribute(v, "affinity"), "ff"), "%s %s %s",
                  attribute(v, "familyid"), attribute(v, "modelid"), attribute(v, "affinity"));
    end();
}

/* --- NVIDIA, without its library ------------------------------------------------------------------ */

TEST(gpus_of_nvidia_are_found_on_the_bus)
{
    begin();
    put_cpus(1);
    put_pci("pci0000:00/0000:00:01.0", "0x060400\n", "0x8086\n", "16.0 GT/s PCIe\n", 16, -1);
    put_pci("pci0000:00/0000:00:01.0/0000:03:00.0", "0x030200\n", "0x10de\n", "16.0 GT/s PCIe\n", 16, -1);
    put_pci("pci0000:00/0000:00:01.0/0000:04:00.0", "0x030200\n", "0x10de\n", "16.0 GT/s PCIe\n", 16, -1);
    put_pci("pci0000:00/0000:00:01.0/0000:04:00.1", "0x040300\n", "0x10de\n", "16.0 GT/s PCIe\n", 16, -1); /* its sound */
    put_pci("pci0000:00/0000:00:02.0", "0x030000\n", "0x1a03\n", "2.5 GT/s PCIe\n", 1, -1);                  /* a screen of the board */
    REQUIRE(rcclx_topo_discover(&topo, root, false) == RCCLX_OK, "%s", rcclx_last_error());
    CHECK(topo.ngpus == 2 && topo.ncpus == 1 && topo.nnets == 0, "%d GPUs, %d CPUs, %d ports", topo.ngpus, topo.ncpus, topo.nnets);
    CHECK(rcclx_topo_reach(&topo, 0, 1).kind == RCCLX_PATH_PIX, "%s", rcclx_topo_kind_name(&topo, 0, 1));
    end();
}

/* --- networks ---------------------------------------------------------------------------------------- */

static void put_interface(const char *name, const char *state, const char *speed)
{
    put(state, "sys/class/net/%s/operstate", name);
    if (*speed)
        put(speed, "sys/class/net/%s/speed", name);
}

TEST(interfaces_where_there_is_no_rdma)
{
    begin();
    put_cpus(1);
    put_pci("pci0000:00/0000:00:03.0", "0x020000\n", "0x1af4\n", "Unknown\n", 0, 0);
    put("", "sys/devices/pci0000:00/0000:00:03.0/virtio0/uevent");
    put_interface("lo", "unknown\n", "");
    put_interface("docker0", "up\n", "10000\n");
    put_interface("eth0", "up\n", "25000\n");
    put_interface("eth1", "down\n", "25000\n");
    put_interface("eth10", "up\n", "-1\n");
    link_to("sys/devices/pci0000:00/0000:00:03.0/virtio0", "sys/class/net/eth0/device");
    REQUIRE(rcclx_topo_discover(&topo, root, false) == RCCLX_OK, "%s", rcclx_last_error());
    REQUIRE(topo.nnets == 2, "%d ports", topo.nnets);
    CHECK(!strcmp(topo.vertices[topo.nets[0]].name, "eth0") && topo.vertices[topo.nets[0]].rate > 3.12 && topo.vertices[topo.nets[0]].rate < 3.13, "%s %g",
          topo.vertices[topo.nets[0]].name, topo.vertices[topo.nets[0]].rate);
    CHECK(!strcmp(topo.vertices[topo.nets[1]].name, "eth10"), "%s", topo.vertices[topo.nets[1]].name);
    CHECK(rcclx_xml_is(&topo.xml, topo.xml.elements[topo.xml.elements[topo.vertices[topo.nets[0]].element].parent].parent, "pci"), "eth0 is not below its device");
    end();
}

TEST(a_machine_about_which_nothing_is_known)
{
    begin();
    REQUIRE(rcclx_topo_discover(&topo, root, false) == RCCLX_OK, "%s", rcclx_last_error());
    CHECK(topo.ncpus == 1 && !topo.ngpus && !topo.nnets, "%d CPUs, %d GPUs, %d ports", topo.ncpus, topo.ngpus, topo.nnets);
    end();
}

/* What is found is a description: written, it is read as the same machine. */
TEST(what_is_found_can_be_written)
{
    char path[] = "/tmp/rcclx_found_XXXXXX";
    const int fd = mkstemp(path);
    rcclx_topo again;

    REQUIRE(fd >= 0 && rcclx_topo_discover(&topo, NULL, true) == RCCLX_OK, "%s", rcclx_last_error());
    CHECK(topo.ncpus > 0, "a machine without a CPU");
    CHECK(rcclx_xml_save(&topo.xml, path) == RCCLX_OK, "%s", rcclx_last_error());
    if (CHECK(rcclx_topo_read(&again, path) == RCCLX_OK, "%s", rcclx_last_error()))
        CHECK(rcclx_xml_equal(&topo.xml, &again.xml) && again.nlinks == topo.nlinks && again.ngpus == topo.ngpus, "it is another machine");
    rcclx_topo_fini(&again);
    rcclx_topo_fini(&topo);
    close(fd);
    unlink(path);
}

TEST(memory_may_fail_anywhere)
{
    bool done = false;

    begin();
    put_cpus(1);
    put_pci("pci0000:00/0000:00:01.0", "0x120000\n", "0x1002\n", "32.0 GT/s PCIe\n", 16, 0);
    put_kfd(1, "90402", 0x8, 1216);
    const size_t held = rcclx_mem_held();
    for (int n = 0; !done && n < 10000; n++) {
        rcclx_mem_fail_after(n);
        const rcclx_status s = rcclx_topo_discover(&topo, root, false);
        rcclx_mem_fail_after(-1);
        CHECK(s == RCCLX_OK || s == RCCLX_NOMEM, "%s: %s", rcclx_status_name(s), rcclx_last_error());
        done = s == RCCLX_OK;
        CHECK(!done || topo.ngpus == 1, "an allocation failed, and %d GPUs are found", topo.ngpus);
        rcclx_topo_fini(&topo);
        CHECK(rcclx_mem_held() == held, "the %dth allocation failed, and %zu blocks are left", n, rcclx_mem_held() - held);
    }
    CHECK(done, "it never went well");
    end();
}
