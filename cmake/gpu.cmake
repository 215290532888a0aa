# The GPU kernels, compiled for each architecture below and laid into the library:
#
#   src/device/kernels/kernels.c --- nvcc ----> gpu/sm_80.cubin ... gpu/ptx_90.ptx
#                                 \- clang ---> gpu/gfx90a.hsaco ...      |
#                                                       embed.cmake: gpu/code_objects.c
#
# The same file is a source of the library too: the kernels as host code.
#
# Neither compiler has to be there. What cannot be made is left out, with the
# reason in rcclx_code_missing (`rcclx info` shows it); RCCLX_GPU=off leaves out all.
# gpu/objects.txt says what is made: kind, architecture, file, compiler and command,
# a tab between them; check/gpu_isa reads it.
set(RCCLX_GPU auto CACHE STRING "GPU kernels: auto (for the compilers that are here) or off")
set_property(CACHE RCCLX_GPU PROPERTY STRINGS auto off)
set(RCCLX_CUDA_ARCHS sm_80 sm_90 ptx_90 CACHE STRING "NVIDIA architectures; ptx_N: for N and all that come after it")
set(RCCLX_AMD_ARCHS gfx90a gfx942 gfx950 CACHE STRING "AMD architectures")

set(gpu ${CMAKE_BINARY_DIR}/gpu)
set(kernels ${PROJECT_SOURCE_DIR}/src/device/kernels/kernels.c)
set(gpu_objects "")   # files
set(gpu_table "")     # the text of objects.txt
set(gpu_missing "")   # the text of rcclx_code_missing
set(gpu_said "")

# ---- which compilers, and what they know

# run(VAR COMMAND...): what it prints; "" if it fails
function(run var)
  execute_process(COMMAND ${ARGN} OUTPUT_VARIABLE said RESULT_VARIABLE status ERROR_QUIET)
  if(status)
    set(said "")
  endif()
  set(${var} "${said}" PARENT_SCOPE)
endfunction()

# programs(VAR FOLDER... NAMES NAME...): those that exist, the given folders first
function(programs var)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "NAMES")
  set(found "")
  foreach(folder IN LISTS arg_UNPARSED_ARGUMENTS)
    foreach(name IN LISTS arg_NAMES)
      if(EXISTS ${folder}/${name})
        list(APPEND found ${folder}/${name})
      endif()
    endforeach()
  endforeach()
  foreach(name IN LISTS arg_NAMES)
    find_program(program ${name} NO_CACHE)
    if(program)
      list(APPEND found ${program})
    endif()
    unset(program)
  endforeach()
  list(REMOVE_DUPLICATES found)
  set(${var} "${found}" PARENT_SCOPE)
endfunction()

# nvcc from 12.0 on: the PATH's, the usual places, scripts/setup's.
function(find_nvcc)
  set(NVCC "" PARENT_SCOPE)
  set(why "no nvcc (scripts/setup gpu, or CUDA_HOME=/its/folder, then build again)")
  programs(found NAMES nvcc)
  programs(more $ENV{CUDA_HOME}/bin /usr/local/cuda/bin ${CMAKE_BINARY_DIR}/cuda/bin
    ${PROJECT_SOURCE_DIR}/build/cuda/bin NAMES nvcc)
  foreach(nvcc IN LISTS found more)
    run(said ${nvcc} --version)
    run(archs ${nvcc} --list-gpu-arch)
    if(NOT said MATCHES "V([0-9]+\\.[0-9.]+)")
      set(why "${nvcc} does not start")
    elseif(CMAKE_MATCH_1 VERSION_LESS 12)
      set(why "${nvcc} is ${CMAKE_MATCH_1}, 12.0 is needed")
    else()
      set(NVCC ${nvcc} PARENT_SCOPE)
      set(NVCC_VERSION ${CMAKE_MATCH_1} PARENT_SCOPE)
      string(REGEX MATCHALL "[0-9]+[a-z]*" archs "${archs}")
      set(NVCC_ARCHS ${archs} PARENT_SCOPE)
      break()
    endif()
  endforeach()
  set(NVCC_WHY "${why}" PARENT_SCOPE)
endfunction()

# A clang from 19 on that has AMD's target and lld; the one that knows most chips.
function(find_amd_clang)
  set(AMD_CLANG "" PARENT_SCOPE)
  set(why "no clang >= 19 with lld (apt-get install clang-19 lld-19, then build again)")
  set(most 0)
  programs(found NAMES clang-19 clang-20 clang-21 clang-22 clang-23 clang)
  programs(more $ENV{ROCM_PATH}/llvm/bin /opt/rocm/llvm/bin NAMES clang)
  foreach(clang IN LISTS found more)
    run(said ${clang} --version)
    if(NOT said MATCHES "clang version ([0-9]+\\.[0-9.]+)" OR CMAKE_MATCH_1 VERSION_LESS 19)
      continue()
    endif()
    set(version ${CMAKE_MATCH_1})
    run(lld ${clang} -print-prog-name=lld)
    string(STRIP "${lld}" lld)
    if(NOT IS_ABSOLUTE "${lld}" OR NOT EXISTS "${lld}")
      set(why "${clang} is here, its lld is not (apt-get install lld-19, then build again)")
      continue()
    endif()
    execute_process(COMMAND ${clang} --target=amdgcn-amd-amdhsa -nogpulib --print-supported-cpus
      OUTPUT_VARIABLE chips ERROR_VARIABLE chips)
    string(REGEX MATCHALL "gfx[0-9a-f]+" chips "${chips}")
    set(known "")
    foreach(arch IN LISTS RCCLX_AMD_ARCHS)
      if(arch IN_LIST chips)
        list(APPEND known ${arch})
      endif()
    endforeach()
    list(LENGTH known n)
    if(n GREATER most)
      set(most ${n})
      set(AMD_CLANG ${clang} PARENT_SCOPE)
      set(AMD_CLANG_VERSION ${version} PARENT_SCOPE)
      set(AMD_CLANG_ARCHS ${known} PARENT_SCOPE)
    endif()
  endforeach()
  set(AMD_CLANG_WHY "${why}" PARENT_SCOPE)
endfunction()

# ---- one object

# add_code(KIND ARCH FILE BUILT_BY COMMAND...): from kernels.c; the command gets its files here.
function(add_code kind arch file built_by)
  set(output ${gpu}/${file})
  set(command ${ARGN} -MD -MF ${output}.d -MT ${output} -o ${output} ${kernels})
  add_custom_command(OUTPUT ${output} COMMAND ${command} DEPENDS ${kernels} DEPFILE ${output}.d
    COMMENT "Building GPU kernels for ${arch}" VERBATIM)
  add_row(${kind} ${arch} ${file} "${built_by}" ${command})
endfunction()

# The same from PTX that is made anyway: half the time is saved.
function(add_code_from ptx kind arch file built_by)
  set(command ${ARGN} -o ${gpu}/${file} ${gpu}/${ptx})
  add_custom_command(OUTPUT ${gpu}/${file} COMMAND ${command} DEPENDS ${gpu}/${ptx}
    COMMENT "Building GPU kernels for ${arch}" VERBATIM)
  add_row(${kind} ${arch} ${file} "${built_by}" ${command})
endfunction()

macro(add_row kind arch file built_by)
  list(JOIN command " " text)
  set(gpu_objects ${gpu_objects} ${gpu}/${file} PARENT_SCOPE)
  set(gpu_table "${gpu_table}${kind}\t${arch}\t${gpu}/${file}\t${built_by}\t${text}\n" PARENT_SCOPE)
endmacro()

# A line for the user; what is missing is told by the library too.
macro(say_built text)
  string(APPEND gpu_said "GPU kernels: ${text}\n")
endmacro()
macro(say_missing archs why)
  list(JOIN ${archs} " " _archs)
  string(APPEND gpu_missing "${_archs}: ${why}\n")
  string(APPEND gpu_said "GPU kernels: none for ${_archs}: ${why}\n")
endmacro()

macro(add_cuda)
  find_nvcc()
  set(made "")
  set(unknown "")
  set(built_by "nvcc ${NVCC_VERSION}")
  set(nvcc_flags -O3 --fmad=false)
  set(cuda_flags ${nvcc_flags} -x cu -std=c++17 -allow-unsupported-compiler -I${PROJECT_SOURCE_DIR}/src)
  if(RCCLX_WERROR)
    list(APPEND cuda_flags -Werror all-warnings)
  endif()
  foreach(arch IN LISTS RCCLX_CUDA_ARCHS)
    string(REGEX REPLACE "^[a-z]*_" "" number ${arch})
    list(APPEND made ${arch})
    if(NOT NVCC OR NOT number IN_LIST NVCC_ARCHS)
      list(REMOVE_ITEM made ${arch})
      list(APPEND unknown ${arch})
    elseif(arch MATCHES "^ptx_")
      add_code(CUDA ${arch} ${arch}.ptx "${built_by}" ${NVCC} ${cuda_flags} -ptx -arch=compute_${number})
    elseif("ptx_${number}" IN_LIST RCCLX_CUDA_ARCHS)
      add_code_from(ptx_${number}.ptx CUDA ${arch} ${arch}.cubin "${built_by}" ${NVCC} ${nvcc_flags} -cubin -arch=${arch})
    else()
      add_code(CUDA ${arch} ${arch}.cubin "${built_by}" ${NVCC} ${cuda_flags} -cubin -arch=${arch})
    endif()
  endforeach()
  if(made)
    list(JOIN made " " made)
    say_built("${made} with nvcc ${NVCC_VERSION} (${NVCC})")
    set(NVCC_WHY "nvcc ${NVCC_VERSION} does not make it")
  endif()
  if(unknown)
    say_missing(unknown "${NVCC_WHY}")
  endif()
endmacro()

macro(add_amd)
  find_amd_clang()
  set(unknown ${RCCLX_AMD_ARCHS})
  set(clang_flags -x hip --cuda-device-only --no-gpu-bundle-output -nogpuinc -nogpulib -mcode-object-version=5
    -O3 -std=c++17 -ffp-contract=off -Wall -Wextra -Wno-missing-field-initializers -I${PROJECT_SOURCE_DIR}/src)
  if(RCCLX_WERROR)
    list(APPEND clang_flags -Werror)
  endif()
  if(AMD_CLANG)
    foreach(arch IN LISTS AMD_CLANG_ARCHS)
      add_code(HIP ${arch} ${arch}.hsaco "clang ${AMD_CLANG_VERSION}" ${AMD_CLANG} ${clang_flags} --offload-arch=${arch})
    endforeach()
    list(REMOVE_ITEM unknown ${AMD_CLANG_ARCHS})
    list(JOIN AMD_CLANG_ARCHS " " made)
    say_built("${made} with clang ${AMD_CLANG_VERSION} (${AMD_CLANG})")
    set(AMD_CLANG_WHY "clang ${AMD_CLANG_VERSION} does not know it, a newer one may (gfx950: clang >= 20)")
  endif()
  if(unknown)
    say_missing(unknown "${AMD_CLANG_WHY}")
  endif()
endmacro()

# ---- all of them

set(all_archs ${RCCLX_CUDA_ARCHS} ${RCCLX_AMD_ARCHS})
if(NOT RCCLX_GPU MATCHES "^(auto|off)$")
  message(FATAL_ERROR "RCCLX_GPU=${RCCLX_GPU}: auto or off?")
elseif(RCCLX_GPU STREQUAL off)
  say_missing(all_archs "built with RCCLX_GPU=off")
elseif(NOT EXISTS ${kernels})
  say_missing(all_archs "this source tree has no src/device/kernels/kernels.c")
else()
  add_cuda()
  add_amd()
endif()

# Said when it is news.
string(MD5 hash "${gpu_said}")
if(NOT hash STREQUAL "$CACHE{RCCLX_GPU_SAID}")
  string(STRIP "${gpu_said}" text)
  message(NOTICE "${text}")
  set(RCCLX_GPU_SAID ${hash} CACHE INTERNAL "")
endif()

file(MAKE_DIRECTORY ${gpu})
file(CONFIGURE OUTPUT ${gpu}/objects.txt CONTENT "${gpu_table}" @ONLY)
file(CONFIGURE OUTPUT ${gpu}/missing.txt CONTENT "${gpu_missing}" @ONLY)
set(code_objects ${gpu}/code_objects.c)
add_custom_command(OUTPUT ${code_objects}
  COMMAND ${CMAKE_COMMAND} -DFOLDER=${gpu} -P ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
  DEPENDS ${gpu_objects} ${gpu}/objects.txt ${gpu}/missing.txt ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
  COMMENT "Embedding GPU kernels" VERBATIM)
set_property(SOURCE ${code_objects} PROPERTY OBJECT_DEPENDS "${gpu_objects}") # .incbin reads them
