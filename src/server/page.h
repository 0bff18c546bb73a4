/* The page at "/": share/web/index.html as it was when this was built (tools/embed-page.cmake). Beside these
 * the server sends Content-Type: text/html; charset=utf-8, Cache-Control: no-cache, X-Content-Type-Options:
 * nosniff and Referrer-Policy: no-referrer. The page calls v1/models and v1/chat/completions (streamed), with
 * Authorization: Bearer KEY once a 401 made it ask for a key: the page itself must be served without one. */
#pragma once
#include <stddef.h>

extern const unsigned char *const page_html; /* page_html_size bytes */
extern const size_t page_html_size;
/* Values of Content-Security-Policy (the hashes of the page's own style and script) and ETag, in its quotes.
 */
extern const char page_policy[], page_etag[];
