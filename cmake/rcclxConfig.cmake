# find_package(rcclx) gives the target rcclx::rcclx.
include("${CMAKE_CURRENT_LIST_DIR}/rcclxTargets.cmake")
