/* The files of an open package: the model file and the weight files, mapped, and the constants read from
 * them. */
#ifndef COREML_FILES_H
#define COREML_FILES_H
#include "base/file.h"
#include "base/map.h"
#include "coreml/model.h"

typedef struct {
    const char *name; /* below the model's directory: "weights/weight.bin" */
    file_map map;
} files_weight;

typedef struct coreml_files {
    arena *a;
    const char
        *dir; /* @model_path: the directory of the model file; NULL: no weight files (a model in memory) */
    file_map model;
    files_weight *file;
    size_t n_file, cap_file;
    map *by_name;
    ir_const **konst;
    size_t n_const, cap_const;
    map *by_origin; /* file, offset and type -> konst */
} coreml_files;

coreml_files *files_new(arena *a);
void files_close(coreml_files *f);
/* The constant of a BlobFileValue. file_name: as written, "@model_path/weights/weight.bin". NULL on error.
 * Without weight files (dir is NULL) its bytes are not there: asking for them is the error. */
const ir_const *files_const(coreml_files *f, const char *file_name, uint64_t offset, const ir_type *t,
                            err *e);
/* A relative path that can't leave the directory it is used in: no empty, "." or ".." part. */
bool files_path_ok(const char *path);
#endif
