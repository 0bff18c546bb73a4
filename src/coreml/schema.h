/* The part of Core ML's protobuf schema that is read and written here: field numbers by message, and the
 * numbers that the formats use for element types. */
#ifndef COREML_SCHEMA_H
#define COREML_SCHEMA_H
#include "ir/type.h"

enum {
    MODEL_SPEC = 1,
    MODEL_DESCRIPTION = 2,
    MODEL_FIRST_TYPE = 200,
    MODEL_PIPELINE = 202,
    MODEL_PROGRAM = 502
};
enum { PIPELINE_MODEL = 1, PIPELINE_NAME = 2 };
enum {
    DESC_INPUT = 1,
    DESC_OUTPUT = 10,
    DESC_PREDICTED = 11,
    DESC_PROBABILITIES = 12,
    DESC_STATE = 13,
    DESC_FUNCTION = 20,
    DESC_DEFAULT_FUNCTION = 21,
    DESC_METADATA = 100
};
enum {
    FUNC_DESC_NAME = 1,
    FUNC_DESC_INPUT = 2,
    FUNC_DESC_OUTPUT = 3,
    FUNC_DESC_PREDICTED = 4,
    FUNC_DESC_PROBABILITIES = 5,
    FUNC_DESC_STATE = 6
};
enum { META_DESCRIPTION = 1, META_VERSION = 2, META_AUTHOR = 3, META_LICENSE = 4, META_USER = 100 };
enum { ENTRY_KEY = 1, ENTRY_VALUE = 2 }; /* of every map */
enum { FEATURE_NAME = 1, FEATURE_DESCRIPTION = 2, FEATURE_TYPE = 3 };
enum { TYPE_MULTI_ARRAY = 5, TYPE_STATE = 8, TYPE_LAST = 8, TYPE_OPTIONAL = 1000 };
enum {
    ARRAY_SHAPE = 1,
    ARRAY_DTYPE = 2,
    ARRAY_ENUMERATED = 21,
    ARRAY_RANGE = 31,
    ARRAY_DEFAULT_INT = 41,
    ARRAY_DEFAULT_FLOAT = 51,
    ARRAY_DEFAULT_DOUBLE = 61
};

enum { PROGRAM_VERSION = 1, PROGRAM_FUNCTION = 2, PROGRAM_ATTRIBUTE = 4 };
enum { FUNCTION_INPUT = 1, FUNCTION_OPSET = 2, FUNCTION_BLOCK = 3 };
enum { BLOCK_INPUT = 1, BLOCK_OUTPUT = 2, BLOCK_OP = 3 };
enum {
    OPERATION_TYPE = 1,
    OPERATION_INPUT = 2,
    OPERATION_OUTPUT = 3,
    OPERATION_BLOCK = 4,
    OPERATION_ATTRIBUTE = 5
};
enum { BINDING_NAME = 1, BINDING_VALUE = 2 };
enum { NAMED_NAME = 1, NAMED_TYPE = 2 };
enum { VALUE_TYPE = 2, VALUE_IMMEDIATE = 3, VALUE_BLOB = 5 };
enum { BLOB_FILE = 1, BLOB_OFFSET = 2 };
enum { VTYPE_TENSOR = 1, VTYPE_LIST = 2, VTYPE_TUPLE = 3, VTYPE_DICTIONARY = 4, VTYPE_STATE = 5 };
enum { TENSOR_DTYPE = 1, TENSOR_RANK = 2, TENSOR_DIM = 3 };
enum { DIM_CONSTANT = 1, DIM_UNKNOWN = 2 };
enum { IMMEDIATE_TENSOR = 1, IMMEDIATE_TUPLE = 2, IMMEDIATE_LIST = 3, IMMEDIATE_DICTIONARY = 4 };
/* TensorValue: which field holds the elements. */
enum {
    TENSOR_NONE = 0,
    TENSOR_FLOATS = 1,
    TENSOR_INTS = 2,
    TENSOR_BOOLS = 3,
    TENSOR_STRINGS = 4,
    TENSOR_LONGS = 5,
    TENSOR_DOUBLES = 6,
    TENSOR_BYTES = 7
};

typedef struct {
    uint8_t mil;   /* MILSpec.DataType */
    uint8_t blob;  /* data type of a weight.bin record; 0: can't be in one */
    uint8_t field; /* TensorValue field of immediate values */
} schema_dtype;

const schema_dtype *schema_of(ir_dtype d);
ir_dtype schema_by_mil(uint64_t code);   /* DT_NONE when unknown */
ir_dtype schema_by_blob(uint32_t code);  /* DT_NONE when unknown */
ir_dtype schema_by_array(uint64_t code); /* ArrayFeatureType.dataType; DT_NONE when unknown */
uint32_t schema_array_code(ir_dtype d);  /* 0: no feature may have this type */

#define MODEL_PATH "@model_path/"
#endif
