/* The part of YAML that metadata files of packages use, as the tree of base/json.h: mappings by indentation,
 * lists ("- x" and "[x, y]"), plain and quoted scalars on one line, block texts (| and >), comments.
 * Integers, reals, true, false and null are what they look like; all else is text. Anchors, tags, flow
 * mappings and several documents are refused. Errors name file and line. */
#ifndef BASE_YAML_H
#define BASE_YAML_H
#include "base/json.h"

const json *yaml_parse(arena *a, const char *what, const char *text, size_t n, err *e);
/* The same of a file; its root must be a mapping. */
const json *yaml_parse_file(arena *a, const char *path, err *e);
#endif
