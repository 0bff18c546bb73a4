/* Where the parts of an artifact are. A path is a .mlpackage or .aimodel, or a directory with, in this order:
 *   metadata.json            its "packages", in order; in format 1: the file's "package", or model.mlpackage;
 * of a Core AI bundle: its "assets"."main" conversion_manifest.json the recommended variant that is there,
 * else the first that is chunk_i_of_N.mlpackage   all N of them, and head_j_of_M.mlpackage behind
 *   model.mlpackage, or the only .mlpackage
 * Paths in these files are relative and stay inside the directory; the table alone may be "../NAME". */
#ifndef GENERATE_ARTIFACT_H
#define GENERATE_ARTIFACT_H
#include "base/arena.h"
#include "base/err.h"

typedef struct {
    const char *dir;            /* that metadata.json and the packages lie in */
    const char *const *package; /* in order */
    size_t n_package;
    const char *metadata;  /* metadata.json, or the manifest that named the package; NULL: none */
    const char *table;     /* as metadata.json names it; NULL: it doesn't */
    const char *tokenizer; /* the directory given, or Tokenizer (tokenizer) beside the packages; NULL: none */
    bool asset;            /* the only package is a Core AI asset */
    bool member;           /* the path is one package of a set, by its name or by metadata.json */
} artifact_paths;

/* Strings live in a. ERR_IO when there is no package, or one is missing; ERR_FORMAT for a metadata file that
 * breaks its rules. */
bool artifact_locate(artifact_paths *p, arena *a, const char *path, const char *tokenizer_dir, err *e);
/* The embedding table: p->table, else the only embed_tokens.bin or *_embed_tokens.*.bin in dir, else the only
 * *_embed_tokens.*.bin in the directory above. *table NULL: there is none. Several: ERR_USAGE names them. */
bool artifact_table(const artifact_paths *p, arena *a, const char **table, err *e);
/* The last part of a path. */
const char *artifact_name(const char *path);
#endif
