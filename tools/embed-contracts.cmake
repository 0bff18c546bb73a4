# cmake -DOUT=FILE.c -DFILES="A.json;B.json" -P this: the files as arrays of bytes (generate/describe.h).
set(arrays "")
set(rows "")
set(n 0)
foreach(file ${FILES})
  get_filename_component(name ${file} NAME)
  file(READ ${file} hex HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
  string(REGEX REPLACE "((0x..,){24})" "\\1\n    " bytes "${bytes}")
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
