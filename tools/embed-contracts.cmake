# cmake -DOUT=FILE.c -DFILES="A.json;B.json" -P this: the files as arrays of bytes (generate/describe.h).
include(${CMAKE_CURRENT_LIST_DIR}/embed.cmake)
set(arrays "")
set(rows "")
set(n 0)
foreach(file ${FILES})
  get_filename_component(name ${file} NAME)
  bytes_of(${file} bytes)
  string(APPEND arrays "static const unsigned char text_${n}[] = {\n    ${bytes}\n};\n\n")
  string(APPEND rows "    {\"${name}\", text_${n}, sizeof text_${n}},\n")
  math(EXPR n "${n} + 1")
endforeach()
file(WRITE ${OUT} "/* Made from share/contracts; see tools/embed-contracts.cmake. */
#include \"generate/describe.h\"

${arrays}const describe_builtin describe_builtins[] = {
${rows}};
const size_t describe_n_builtin = ${n};
")
