/* Rank 0 makes the library's unique id and lays it into the store under the communicator's name; the others take it. The
 * version of the library lies beside it.
 *
 *     store   rcclx/dp/joined    5              each rank adds one: the count says which communicator of that name this is
 *             rcclx/dp/0/word    id, "0.1.0"    the first of two ranks, long gone
 *             rcclx/dp/2/word    id, "0.1.0"    the third, in the making
 */
#include "rendezvous.h"

#include <comms/torchcomms/utils/StoreManager.hpp>
#include <comms/torchcomms/utils/Utils.hpp>

#include <cstdlib>
#include <cstring>

namespace rcclx {

using torch::comms::CommOptions;
using Bytes = std::vector<uint8_t>;

static Bytes word_of_rank_0(ncclUniqueId *id)
{
    const std::string version = library().rcclxVersion();

    check(library().ncclGetUniqueId(id));
    Bytes word(sizeof(*id) + version.size());
    std::memcpy(word.data(), id, sizeof(*id));
    std::memcpy(word.data() + sizeof(*id), version.data(), version.size());
    return word;
}

static void read_word(const Bytes &word, int rank, ncclUniqueId *id)
{
    const std::string mine = library().rcclxVersion();

    if (word.size() < sizeof(*id))
        throw Error("rank 0's word in the store is cut short; is the store used by another program, too?");
    std::memcpy(id, word.data(), sizeof(*id));
    const std::string theirs(word.begin() + sizeof(*id), word.end());
    if (theirs != mine)
        throw Error("rank 0 runs RCCLX " + theirs + ", rank " + std::to_string(rank) + " runs " + mine + " (" + library().path +
                    "); install the same on all machines");
}

static c10::intrusive_ptr<c10d::Store> open_store(const std::string &name, const CommOptions &options)
{
    for (const char *variable : { "MASTER_ADDR", "MASTER_PORT" })
        if (!std::getenv(variable))
            throw Error(std::string(variable) + " is not set and no store was given, so the ranks have no place to meet. Start "
                        "the program with torchrun, set MASTER_ADDR and MASTER_PORT, or pass store=");
    return torch::comms::createPrefixStore(name, options.timeout);
}

static void exchange(const std::string &name, const CommOptions &options, c10d::Store &store, Meeting *m)
{
    const std::string prefix = "rcclx/" + name + "/";
    const int64_t     turn = (store.add(prefix + "joined", 1) - 1) / m->size;
    const std::string key = prefix + std::to_string(turn) + "/word";

    if (m->rank == 0) {
        store.set(key, word_of_rank_0(&m->id));
        return;
    }
    store.wait({ key }, options.timeout);
    read_word(store.get(key), m->rank, &m->id);
}

Meeting meet(const std::string &name, const CommOptions &options)
{
    Meeting m = {};

    std::tie(m.rank, m.size) = torch::comms::query_ranksize();
    if (m.size == 1) { /* nobody to meet */
        check(library().ncclGetUniqueId(&m.id));
        return m;
    }
    try {
        if (!options.store)
            m.own_store = open_store(name, options);
        exchange(name, options, options.store ? *options.store : *m.own_store, &m);
    } catch (const Error &) {
        throw;
    } catch (const std::exception &what) {
        throw Error(std::string("the ranks did not meet in the store (") + what.what() + "). Do all of them create this "
                    "communicator under this name, with the same store, within the timeout of " +
                    std::to_string(options.timeout.count()) + " ms? Has nobody else the port MASTER_PORT?");
    }
    return m;
}

} // namespace rcclx
