# A file as the elements of a C array.
function(bytes_of file result)
  file(READ ${file} hex HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
  string(REPEAT "0x..," 24 row)
  string(REGEX REPLACE "(${row})" "\\1\n    " bytes "${bytes}")
  set(${result} "${bytes}" PARENT_SCOPE)
endfunction()
