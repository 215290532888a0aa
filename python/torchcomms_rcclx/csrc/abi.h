/* Whether the torchcomms in this process is the one whose headers this was compiled with. */
#ifndef RCCLX_TORCHCOMMS_ABI_H
#define RCCLX_TORCHCOMMS_ABI_H

#include <string>

namespace rcclx {

/* Throws an Error that says what to do when it is not. `self` is this library's file. */
void check_abi(const std::string &self);

} // namespace rcclx

#endif
