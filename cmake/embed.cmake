# cmake -DFOLDER=build/gpu -P embed.cmake
#
# Writes code_objects.c, the table that src/device/gpu.h declares, from objects.txt
# and missing.txt. The assembler reads the bytes; a zero follows each object, since
# drivers take PTX as a string.
cmake_policy(VERSION 3.22)

set(bytes "")
set(names "")
set(rows "")
file(STRINGS ${FOLDER}/objects.txt lines)
foreach(line IN LISTS lines)
  string(REPLACE "\t" ";" fields "${line}")
  list(GET fields 0 kind)
  list(GET fields 1 arch)
  list(GET fields 2 path)
  list(GET fields 3 built_by)
  file(SIZE ${path} size)
  string(APPEND bytes "        \".balign 64\\nrcclx_code_${arch}:\\n.incbin \\\"${path}\\\"\\n.byte 0\\n\"\n")
  string(APPEND names "extern const unsigned char rcclx_code_${arch}[];\n")
  string(APPEND rows "    {RCCLX_GPU_${kind}, \"${arch}\", \"${built_by}\", rcclx_code_${arch}, ${size}},\n")
endforeach()
if(bytes)
  set(bytes "__asm__(\".pushsection .rodata\\n\"\n${bytes}        \".popsection\\n\");\n\n")
endif()

file(READ ${FOLDER}/missing.txt missing)
string(REGEX REPLACE "([\\\\\"])" "\\\\\\1" missing "${missing}")
string(REGEX REPLACE "\n(.)" "\\\\n\"\n    \"\\1" missing "${missing}")
string(REGEX REPLACE "\n$" "\\\\n" missing "${missing}")

file(WRITE ${FOLDER}/code_objects.c "/* Written by cmake/embed.cmake. */
#include \"device/gpu.h\"

${bytes}${names}
const rcclx_code_object rcclx_code_objects[] = {
${rows}    {RCCLX_GPU_KINDS, NULL, NULL, NULL, 0},
};

const char rcclx_code_missing[] =
    \"${missing}\";
")
