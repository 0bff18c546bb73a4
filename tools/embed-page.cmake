# cmake -DOUT=FILE.c -DPAGE=index.html -P this: the page as bytes, its digest, and the policy that lets only its own style
# and script run (server/page.h).
include(${CMAKE_CURRENT_LIST_DIR}/embed.cmake)

function(to_base64 hex result)
  set(digits "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
  string(LENGTH ${hex} length)
  set(text "")
  foreach(at RANGE 0 ${length} 6)
    if(at LESS length)
      string(SUBSTRING "${hex}" ${at} 6 group)
      string(LENGTH ${group} n)
      string(SUBSTRING "${group}0000" 0 6 group)
      foreach(shift 18 12 6 0)
        math(EXPR digit "(0x${group} >> ${shift}) & 63")
        string(SUBSTRING "${digits}" ${digit} 1 digit)
        if(n EQUAL 2 AND shift LESS 12 OR n EQUAL 4 AND shift LESS 6)
          set(digit "=")
        endif()
        string(APPEND text ${digit})
      endforeach()
    endif()
  endforeach()
  set(${result} ${text} PARENT_SCOPE)
endfunction()

# 'sha256-...' of what stands between the first <tag> and </tag>.
function(source_of tag result)
  string(FIND "${page}" "<${tag}>" from)
  string(FIND "${page}" "</${tag}>" to)
  if(from LESS 0 OR to LESS from)
    message(FATAL_ERROR "${PAGE}: no <${tag}> ... </${tag}>")
  endif()
  string(LENGTH "<${tag}>" length)
  math(EXPR from "${from} + ${length}")
  math(EXPR length "${to} - ${from}")
  string(SUBSTRING "${page}" ${from} ${length} inner)
  string(SHA256 hash "${inner}")
  to_base64(${hash} hash)
  set(${result} "'sha256-${hash}'" PARENT_SCOPE)
endfunction()

file(READ ${PAGE} page)
source_of(style style)
source_of(script script)
string(CONCAT policy "default-src 'none'; script-src ${script}; style-src ${style}; connect-src 'self'; img-src data:; "
       "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'")
file(SHA256 ${PAGE} digest)
bytes_of(${PAGE} bytes)
file(WRITE ${OUT} "/* Made from share/web/index.html; see tools/embed-page.cmake. */
#include \"server/page.h\"

static const unsigned char text[] = {
    ${bytes}
};
const unsigned char *const page_html = text;
const size_t page_html_size = sizeof text;
const char page_policy[] = \"${policy}\";
const char page_etag[] = \"\\\"${digest}\\\"\";
")
